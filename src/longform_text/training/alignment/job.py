"""An alignment: a model, its pairs as numbered steps, the loss, what is measured, and a low-rank adapter."""

import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from transformers import PreTrainedModel

from longform.conversion.adapter import WEIGHTS, write_account
from longform.errors import ConfigurationError, require
from longform.files import content_key
from longform.pretrained.checkpoint_files import model_key
from longform.pretrained.model_card import Block, Heading
from longform.pretrained.tokenizers import special_tokens
from longform.pretrained.weights import reading
from longform_text.inference.loading import checked_limit
from longform_text.training.alignment.model import AlignmentLoss, OpenedModel
from longform_text.training.alignment.settings import DEFAULT_STEPS, AlignmentSettings
from longform_text.training.alignment.sources import PairSource
from longform_text.training.alignment.steps import PLAIN, AlignmentSteps, Heldout, Reader, Step
from longform_text.training.engine.job import Job
from longform_text.training.engine.run_folder import RunFolder
from longform_text.training.engine.students import Student
from longform_text.training.engine.trained_card import scores_table, write_card

FOLDER = "adapter"


class LowRankAdapter:
    """Put into ``encoder``, in place, on every linear layer but a pooler; ``rank``: of the two thin matrices.

    ``seed``: of the first of them; the second begins as zeros. Raises MissingDependencyError without PEFT.
    """

    def __init__(self, encoder: PreTrainedModel, rank: int, *, seed: int) -> None:
        peft = require("peft", extra="lora")
        self.learned = [name for name, parameter in encoder.named_parameters() if parameter.requires_grad]
        self.encoder, self.state = encoder, partial(peft.get_peft_model_state_dict, save_embedding_layers=False)
        self.changes = model_key(encoder)
        layers = [
            name
            for name, module in encoder.named_modules()
            if isinstance(module, nn.Linear) and "pooler" not in name.split(".")
        ]
        config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules=layers)
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())), warnings.catch_warnings():
            torch.manual_seed(seed)
            warnings.simplefilter("ignore", FutureWarning)  # PEFT asks transformers by a name of before
            self.wrapped: Any = peft.get_peft_model(encoder, config)
        self.saved: dict[str, Tensor] = {}

    def merge(self) -> None:
        """Add it, rounded to float16, to the weights; the encoder then is as it was built."""
        for parameter in self.wrapped.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.half().float()
        self.saved = {name: value.half().contiguous() for name, value in self.state(self.wrapped).items()}
        self.wrapped.merge_and_unload()
        for name, parameter in self.encoder.named_parameters():
            parameter.requires_grad_(name in self.learned)

    def save(self, folder: Path, *, report: Mapping[str, Any] | None, **pooling: Any) -> None:
        """PEFT's two files in a folder of their own; of a conversion, with its ``report``, what ``convert`` needs.

        ``pooling``: ``token_weights`` and ``sublinear_tf``, as ``write_account`` takes them.
        """
        place = folder / FOLDER
        place.mkdir()
        config = self.wrapped.peft_config["default"]
        config.inference_mode, config.base_model_name_or_path = True, None  # a path of this machine
        config.save_pretrained(str(place))
        save_file(self.saved, place / WEIGHTS)
        if report is not None:
            write_account(place, report=report, key=self.changes, **pooling)


def document_limit(opened: OpenedModel, settings: AlignmentSettings) -> int:
    """Tokens that are read of a document. Raises ConfigurationError for more than the model takes."""
    encoder = opened.trained.sides[PLAIN]
    room = encoder.limit - special_tokens(encoder.tokenizer).total
    if settings.passage_tokens is not None and settings.passage_tokens > room:
        raise ConfigurationError(
            f"passage_tokens={settings.passage_tokens} is more than the model takes beside special tokens: {room}"
        )
    return checked_limit(encoder.limit, settings.max_length, name="the model")


class AlignmentJob(Job):
    """A model, its pairs, its loss and how it is measured; ``weights``: of the sources."""

    kind, event, doing = "alignment", "evaluation", "aligning"
    metric = "ndcg"
    settings: AlignmentSettings

    def __init__(
        self,
        model: OpenedModel,
        sources: Sequence[PairSource],
        weights: Sequence[float],
        settings: AlignmentSettings,
        process: Any,
    ) -> None:
        super().__init__(settings, process)
        encoder = model.trained.sides[PLAIN]
        self.opened = Student(model.encoder, encoder.tokenizer, model.origin)
        self.trained, self.before, self.sentences = model.trained, model.before, model.origin.sentences
        self.data = content_key([source.key for source in sources], weights)
        self.start = model_key(self.trained)
        limit = document_limit(model, settings)
        passages = (settings.passage_tokens, settings.passage_boundaries)
        reader = Reader(model.trained.sides, limit, settings.tokens_per_forward, *passages)
        self.heldout = Heldout(sources, reader, settings.seed, self._vectors_before)
        self.source = AlignmentSteps(
            sources, weights, reader, settings, rank=process.process_index, processes=process.num_processes
        )
        self.loss = AlignmentLoss(
            self.trained,
            temperature=settings.temperature,
            keep_weight=settings.keep_weight,
            autocast=self.autocast,
            same_document=settings.same_document_negatives,
        )
        self.adapter: LowRankAdapter | None = None

    def _vectors_before(self, texts: list[str]) -> np.ndarray:
        with torch.autocast(self.device.type, enabled=False):  # the encoder reads in its own dtype, as at the start
            return self.before.collect(texts).values

    def subject(self) -> dict[str, Any]:
        """The model, and the pairs."""
        return {"model": self.start, "data": self.data}

    def steps(self, start: int = 0) -> Iterator[list[Step]]:
        """See Job."""
        return self.source.steps(start)

    def part_loss(self, model: nn.Module, step: Step, share: float) -> Tensor:
        """The loss of a step, which is one part."""
        self.loss.model = model
        kept = torch.from_numpy(self._vectors_before(step.short)).to(self.device)
        loss = self.loss(step, kept)
        self.note(1.0, **self.loss.last, tokens=step.tokens)
        return share * loss

    @contextmanager
    def prepared(self) -> Generator[None]:
        """See Job; with a rank the adapter alone learns, which is part of the weights in the end."""
        with self.learning():
            if self.settings.lora_rank is not None:
                self.adapter = LowRankAdapter(self.opened.model, self.settings.lora_rank, seed=self.settings.seed)
            try:
                yield
            finally:
                if self.adapter is not None:
                    self.adapter.merge()
                    self.opened.origin.round_token_weights()

    def measure_every(self, steps: int) -> int | None:
        """See Job; None where no documents were held out."""
        return super().measure_every(steps) if self.heldout.steps else None

    def measure(self) -> dict[str, Any]:
        """Measurement of what is found of the documents that were held out."""
        with self.autocast():
            return self.heldout.measure(lambda batch: self.trained(batch)["sentence_embedding"])

    def budgets(self) -> Sequence[float]:
        """A number of steps where nothing was chosen."""
        return [DEFAULT_STEPS] if self.is_unbounded else []

    def end(self, run: RunFolder, steps: int) -> dict[str, Any]:
        """Documents that were read."""
        return {"documents": self.source.documents(steps)}

    def save(self, run: RunFolder, folder: Path) -> None:
        """The sentence-transformers folder and its card."""
        super().save(run, folder)
        if self.adapter is not None:
            origin = self.opened.origin
            self.adapter.save(folder, report=origin.conversion, **origin.pooling())
        measured = run.records.of("evaluation")
        end = run.end
        blocks: list[Block] = [
            "An encoder that has learned to find long documents by queries (longform align: contrastive, "
            f"{end['step']:,} steps of {end['documents']:,} documents in all)."
        ]
        if measured:
            moments = {"before": measured[0], "after": measured[-1]}
            scores = {when: {name: row[name] for name in ("ndcg", "short_cosine")} for when, row in moments.items()}
            blocks += [
                Heading("Evaluation"),
                f"On {measured[-1]['documents']:,} documents that were held out, with {measured[-1]['queries']:,} "
                "queries: nDCG@10 among the documents of the same source, and the cosine between the vectors that "
                "short texts have and had.",
                scores_table(["nDCG@10", "short texts"], scores),
            ]
        write_card(folder, self.opened, "aligned", blocks)

    def load(self, folder: Path) -> None:
        """See Job."""
        with reading(folder):
            trained = SentenceTransformer(str(folder), device=self.device.type)
        self.sentences.load_state_dict(trained.state_dict())
