"""The model of an alignment, a sentence-transformers model with its encoder, and its loss."""

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses.gradcache import CachedLossMixin
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy, normalize
from transformers import PreTrainedModel

from longform.conversion.local import local_source
from longform.conversion.pooling_modules import SUBLINEAR_TF, WORD_WEIGHTS
from longform.conversion.report import OWN_FILE
from longform.errors import ConfigurationError
from longform.models.configuration_linformer import LinformerConfig
from longform.models.loading import quiet_transformers
from longform.pretrained.adapters import join_adapters
from longform.pretrained.sentence_folder import settings_of, write_settings
from longform.pretrained.weights import reading
from longform_text.inference.encoders import Encoder
from longform_text.training.alignment.steps import DOCUMENT, PARTS, PLAIN, QUERY, Step


class SentenceModel(nn.Module):
    """A sentence-transformers model, as it is trained. ``encoder``: the same weights, as Longform runs them.

    ``sides``: the encoder with the prompts for queries, for documents, and with its default one.
    """

    def __init__(self, sentences: Any, encoder: Encoder) -> None:
        super().__init__()
        self.sentences = sentences
        self.sides = {QUERY: encoder.for_queries(), DOCUMENT: encoder.for_documents(), PLAIN: encoder}
        self.activation_checkpointing_enable = encoder.model.activation_checkpointing_enable
        self.activation_checkpointing_disable = encoder.model.activation_checkpointing_disable

    def forward(self, batch: dict[str, Any]) -> dict[str, Tensor]:
        """Vectors (B, F) of a batch of one ``side``, or those of its ``parts``, not normalised."""
        encoder = self.sides[batch["side"]]
        inputs = {name: value for name, value in batch.items() if isinstance(value, Tensor)}
        found = encoder.model(**inputs)
        states, layers = found.last_hidden_state, found.get("hidden_states")
        own = {**inputs, "attention_mask": inputs["attention_mask"].clone()}  # modules may write into it
        if PARTS not in batch:
            return {"sentence_embedding": encoder.pool(states, own, layers)}
        vectors = []
        for row, start, end in batch[PARTS]:
            here = (slice(row, row + 1), slice(start, end))
            tokens = {name: value[here] for name, value in own.items()}
            above = None if layers is None else tuple(layer[here] for layer in layers)
            vectors.append(encoder.pool(states[here], tokens, above, prompted=start == 0))
        return {"sentence_embedding": torch.cat(vectors)}


@dataclass(frozen=True)
class SentenceOrigin:
    """A sentence-transformers model and the name it was read by; ``report``: its folder's conversion report."""

    sentences: Any
    name: str
    report_file: bytes | None

    def __str__(self) -> str:
        return self.name

    @property
    def conversion(self) -> dict[str, Any] | None:
        """The report of the conversion, None of what is no conversion."""
        return None if self.report_file is None else json.loads(self.report_file)

    def pooling(self) -> dict[str, Any]:
        """Weights of tokens in the mean, as ``longform.conversion.adapter.write_account`` takes them."""
        weights = [module.emb_layer.weight.detach().cpu()[:, 0] for module in self._of_kind(WORD_WEIGHTS)]
        return {"token_weights": next(iter(weights), None), "sublinear_tf": bool(self._of_kind(SUBLINEAR_TF))}

    def round_token_weights(self) -> None:
        """To float16, as an adapter has them."""
        for module in self._of_kind(WORD_WEIGHTS):
            module.emb_layer.weight.data = module.emb_layer.weight.data.half().float()

    def _of_kind(self, name: str) -> list[Any]:
        return [module for module in self.sentences if type(module).__name__ == name]

    def save_pretrained(self, folder: Path) -> None:
        """Save the folder; a Longform's says, as that of a conversion, that it needs Longform."""
        for module in self._of_kind(WORD_WEIGHTS):  # whose weights are read from its settings, not from its tensors
            module.word_weights = dict(zip(module.vocab, module.emb_layer.weight[:, 0].tolist(), strict=True))
        self.sentences.save_pretrained(str(folder), create_model_card=False)
        if self.report_file is not None:
            (folder / OWN_FILE).write_bytes(self.report_file)
        if self.sentences[0].auto_model.config.model_type == LinformerConfig.model_type:
            write_settings(folder, settings_of(folder))


class OpenedModel(NamedTuple):
    """``trained``: what learns; ``before``: the encoder as it was, which says what short texts keep."""

    trained: SentenceModel
    before: Encoder
    encoder: PreTrainedModel
    origin: SentenceOrigin


def open_sentence_model(model: Any, device: torch.device) -> OpenedModel:
    """A folder or hub name, or what has ``save_pretrained`` (a ConversionResult, a SentenceTransformer), copied.

    Raises CheckpointError for what cannot be read, ConfigurationError for what is no such model,
    MissingDependencyError.
    """
    if isinstance(model, str | Path):
        return _opened(str(model), device)
    if isinstance(model, PreTrainedModel) or not hasattr(model, "save_pretrained"):
        raise ConfigurationError(
            f"a model to align is a folder, a hub name, a ConversionResult or a SentenceTransformer, not "
            f"{type(model).__name__}: save it with its tokenizer, and give the folder"
        )
    with tempfile.TemporaryDirectory(prefix="longform-") as folder:
        with quiet_transformers():
            model.save_pretrained(folder)
        return _opened(folder, device)


def _opened(source: str, device: torch.device) -> OpenedModel:
    source = local_source(source)
    encoder = Encoder.from_pretrained(source, device=device.type)
    with reading(source):
        sentences: Any = SentenceTransformer(source, device=device.type, model_kwargs={"dtype": torch.float32})
    if hasattr(sentences[0].auto_model, "peft_config"):
        join_adapters(sentences[0].auto_model)
    ends_unit = type(sentences[-1]).__name__ == "Normalize"
    modules = tuple(sentences)[1 : -1 if ends_unit else None]
    own = replace(encoder, model=sentences[0].auto_model, folder=encoder.folder._replace(modules=modules))
    report = Path(source, OWN_FILE)
    origin = SentenceOrigin(sentences, source, report.read_bytes() if report.is_file() else None)
    return OpenedModel(SentenceModel(sentences, own), encoder, sentences[0].auto_model, origin)


def ranking_loss(queries: Tensor, given: Tensor, answers: Tensor, excluded: Tensor, temperature: float) -> Tensor:
    """Cross-entropy of each query's answers among all that are given (InfoNCE), by cosine; mean over queries.

    ``queries`` (Q, F), ``given`` (P, F), ``answers`` bool (Q, P): together these have the softmax's mass that is to be
    1; ``excluded`` bool (Q, P): what is neither right nor wrong. With one answer of its own for each query this is
    sentence-transformers' MultipleNegativesRankingLoss.
    """
    scores = normalize(queries, dim=-1) @ normalize(given, dim=-1).T / temperature
    first = answers.int().argmax(dim=1, keepdim=True)
    mass = scores.masked_fill(~answers, -torch.inf).logsumexp(dim=1, keepdim=True)
    among = scores.masked_fill(answers | excluded, -torch.inf).scatter(1, first, mass)
    return cross_entropy(among, first[:, 0])


class AlignmentLoss(CachedLossMixin, nn.Module):
    """Ranking loss of the queries, and 1 - cosine of the short texts to the vectors that they had, by its weight.

    ``same_document``: share of the ranking loss that is among passages of a query's document, not of others.
    ``vectors_before``: the vectors (S, F) that texts had. Each batch is read twice (gradient cache), so
    that the activations of one alone are kept; numbers that dropout draws are the same both times.
    """

    mini_batch_size = 2**40  # a batch is one already: it is not parted again

    def __init__(
        self,
        *,
        temperature: float,
        keep_weight: float,
        vectors_before: Callable[[list[str]], np.ndarray],
        same_document: float = 0.0,
    ) -> None:
        super().__init__()
        self.temperature, self.keep_weight, self.same_document = temperature, keep_weight, same_document
        self.vectors_before = vectors_before
        self.model: Any = None

    def forward(self, model: nn.Module, batch: dict[str, Step]) -> Tensor:
        """The loss of a "step", a scalar, whose backward() reads all again; ``model`` maps a batch to vectors."""
        self.model, step = model, batch["step"]
        batches: Any = step.batches
        return self.forward_cached(batches, step)  # ty: ignore[invalid-argument-type]

    def calculate_loss(self, reps: list[list[Tensor]], labels: Any = None, *, with_backward: bool = False) -> Tensor:
        """The loss of all vectors of a step, ``reps`` of its batches; ``labels``: the step."""
        vectors, step = [batch for column in reps for batch in column], labels
        device = vectors[0].device
        with torch.autocast(device.type, enabled=False):
            queries, passages, short = step.parted(vectors)
            right, own = step.right.to(device), (step.answers[:, None] == step.owners).to(device)
            excluded = own | step.excluded[:, step.owners].to(device)
            loss = ranking_loss(queries, passages, right, excluded, self.temperature)
            if self.same_document:
                within = ranking_loss(queries, passages, right, ~own, self.temperature)
                loss = torch.lerp(loss, within, self.same_document)
            if len(step.short):
                kept = torch.from_numpy(self.vectors_before(step.short)).to(device)
                loss = loss + self.keep_weight * (1 - cosine_similarity(short, kept, dim=-1)).mean()
        if with_backward:
            loss.backward()
            return loss.detach()
        return loss
