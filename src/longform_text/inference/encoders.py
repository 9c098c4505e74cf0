"""Text encoders with one interface: sentence-transformers folders, plain encoders and Longforms -> embeddings.

Axes: B texts in a batch, n tokens, D embedding size, N texts.
"""

from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from tokenizers.normalizers import Lowercase
from tokenizers.normalizers import Sequence as Normalizers
from torch import Tensor
from torch.nn.functional import normalize
from tqdm import tqdm
from transformers import AutoModel

from longform.choices import POOLINGS
from longform.conversion.local import local_source
from longform.errors import ConfigurationError
from longform.functional.pooling import pooled, pooled_width
from longform.pretrained.sentence_modules import PLAIN, SentenceModules, encoder_folder, sentence_modules
from longform_text.data.batching import Batch
from longform_text.data.records import clean_text
from longform_text.data.text import Document, Text, is_one
from longform_text.inference.chunks import ChunkVectors, encode_chunks
from longform_text.inference.loading import checked_limit, load_limited, position_limit, token_limit
from longform_text.inference.settings import DEFAULT_BATCH_TOKENS
from longform_text.inference.strategies import Outcome, TextModel

KINDS = (*POOLINGS, "max")
DISTANCES = {"euclidean": 2.0, "manhattan": 1.0}  # their exponents
QUERY, DOCUMENT = ("query",), ("document", "passage", "corpus")  # prompts, as sentence-transformers looks for them


@dataclass(repr=False, eq=False)
class Encoder(TextModel):
    """A text encoder for use: a model, its tokenizer, and what makes one vector of a text's hidden states.

    ``pooling``: one of KINDS; None: ``folder``'s modules, which are sentence-transformers' own, make the vector.
    ``normalise``: to length 1. ``dimensions``: the first ones alone are kept, None: all; ``renormalise``: these have
    length 1. ``prompt`` comes before each text (of a pair, before the first).
    """

    pooling: str | None
    normalise: bool
    folder: SentenceModules = PLAIN
    prompt: str = ""
    dimensions: int | None = None
    renormalise: bool = False
    verb = "embed"

    @classmethod
    def from_pretrained(
        cls,
        source: str | Path,
        *,
        pooling: str | None = None,
        normalise: bool | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        truncate_dim: int | None = None,
        max_length: int | None = None,
        dtype: str = "float32",
        device: str = "auto",
        compile: bool = False,
        backend: str = "torch",
        graphs: bool = True,
    ) -> Self:
        """An encoder of a folder, a hub name, or a name of ``longform.conversion.shipped`` ("minilm-16k").

        What is None is as a sentence-transformers folder says: its modules pool and normalise, its default prompt comes
        before each text, its maximal length is kept. Another folder pools by the mean, without a prompt.
        ``prompt_name``: one of the folder's prompts; ``prompt``: any. ``truncate_dim``: dimensions that are kept.
        ``max_length``, in tokens, may shorten the model's limit, not extend it. ``dtype``: "float32", "bfloat16", or
        "auto" for bfloat16 where it is fast. ``device``: "auto", "cpu", "cuda", ... ``compile``: by torch.compile.
        ``backend``: "torch", or what runs a graph of ``longform export``: "onnx", "onnx-int8", "openvino", ...
        ``graphs``: passes of a Longform on CUDA are captured and replayed (``longform.capture``).

        Raises CheckpointError, ConfigurationError.
        """
        source = local_source(source)
        folder = sentence_modules(source)
        options: Any = {
            "max_length": max_length,
            "dtype": dtype,
            "device": device,
            "compile": compile,
            "backend": backend,
            "graphs": graphs,
        }
        model, tokenizer, limit = load_limited(AutoModel, encoder_folder(source), **options)
        if max_length is None and folder.max_length is not None:
            limit = min(folder.max_length, position_limit(model.config))
        if folder.lower_case:
            _lower_case(tokenizer)
        if pooling is None and not folder.modules:
            pooling = folder.pooling or "mean"
        said = folder.prompt_for(prompt_name, prompt, source)
        return cls(
            model,
            tokenizer,
            limit,
            pooling,
            folder.normalise if normalise is None else normalise,
            folder.to(model.device),
            said,
            truncate_dim or folder.truncate_dim,
            renormalise=bool(normalise),
        )

    def __post_init__(self) -> None:
        self.prompt = clean_text(self.prompt)[0]
        if self.pooling is not None and self.pooling not in KINDS:
            raise ConfigurationError(f'pooling is "{self.pooling}"; it is one of {", ".join(KINDS)}')
        if self.dimensions is not None and not 1 <= self.dimensions <= self.whole:
            raise ConfigurationError(f"truncate_dim is {self.dimensions}; a vector has {self.whole} dimensions")

    @property
    def features(self) -> int:
        """D."""
        return self.dimensions or self.whole

    def get_embedding_dimension(self) -> int:
        """D, as sentence-transformers calls it."""
        return self.features

    @property
    def max_seq_length(self) -> int:
        """``limit``, as sentence-transformers calls it; it may be set."""
        return self.limit

    @max_seq_length.setter
    def max_seq_length(self, tokens: int) -> None:
        most = token_limit(self.model, self.tokenizer)
        self.limit = checked_limit(most, tokens, name=self.model.name_or_path)

    @property
    def whole(self) -> int:
        """D before any are left out; with "cls_mean" or "cls_lead" twice the hidden size."""
        if self.pooling is None:
            return self.folder.dimensions
        return pooled_width(self.pooling, self.model.config.hidden_size)

    def forward(self, batch: Batch) -> Tensor:
        """Vectors (B, D) of hidden states, not normalised."""
        inputs = batch.model_inputs(self.model.device)
        found = self.model(**inputs)
        return self.pool(found.last_hidden_state, inputs, found.get("hidden_states"))

    def pool(
        self,
        states: Tensor,
        inputs: dict[str, Tensor],
        layers: tuple[Tensor, ...] | None = None,
        *,
        prompted: bool = True,
    ) -> Tensor:
        """Vectors (B, D) of last hidden states (B, n, hidden), not normalised.

        ``layers``: the states of all layers; ``prompted``: whether the prompt's tokens are among them.
        """
        hidden, mask = states.float(), inputs["attention_mask"].bool()  # a mean in bfloat16 would have three digits
        if self.pooling is None:
            length = self._prompt_length() if prompted else None
            return self.folder.vectors(hidden, inputs, layers, prompt_length=length)
        if self.pooling in POOLINGS:
            return pooled(hidden, mask, kind=self.pooling)
        peaks = hidden.masked_fill(~mask[..., None], -torch.inf).amax(dim=1)
        return torch.where(mask.any(dim=1, keepdim=True), peaks, 0.0)

    def run(self, texts: Iterable[Text], **options: Any) -> Iterator[Outcome]:
        """Embeddings in order, streamed; ``options`` are those of ``run_texts``."""
        for outcome in super().run(map(self._prompted, texts) if self.prompt else texts, **options):
            yield outcome._replace(values=self.finished(outcome.values))

    def finished(self, vectors: np.ndarray) -> np.ndarray:
        """Vectors (..., D) normalised and shortened as asked for."""
        if self.normalise:
            vectors = _unit(vectors)
        shortened = vectors[..., : self.dimensions]
        return _unit(shortened) if self.renormalise else shortened

    def for_queries(self) -> Self:
        """This encoder with the folder's prompt for queries, where it has one."""
        return self._for(QUERY)

    def for_documents(self) -> Self:
        """This encoder with the folder's prompt for documents, where it has one."""
        return self._for(DOCUMENT)

    def _for(self, names: Iterable[str]) -> Self:
        found = next((self.folder.prompts[name] for name in names if name in self.folder.prompts), None)
        return self if found is None else replace(self, prompt=found)

    def _prompted(self, text: Text) -> Text:
        if isinstance(text, Document):
            return text._replace(text=self.prompt + text.text)
        return self.prompt + text if isinstance(text, str) else (self.prompt + text[0], text[1])

    def _prompt_length(self) -> int | None:
        """Tokens of the prompt, special ones in front included, for a pooling that leaves them out."""
        if not self.prompt:
            return None
        ids = self.tokenizer(self.prompt)["input_ids"]
        return len(ids) - (ids[-1] in self.tokenizer.all_special_ids)

    def encode(
        self,
        texts: Any = None,
        *,
        text_field: str = "text",
        prompt_name: str | None = None,
        prompt: str | None = None,
        truncate_dim: int | None = None,
        normalise: bool | None = None,
        strategy: str = "whole",
        overlap: int = 0,
        on_long: str = "truncate",
        max_tokens_per_batch: int = DEFAULT_BATCH_TOKENS,
        progress: bool = False,
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
        normalize_embeddings: bool | None = None,
        convert_to_tensor: bool = False,
        convert_to_numpy: bool = True,
    ) -> Any:
        """Embeddings float32 (N, D) of ``texts``, in order, an array; (D,) of one string.

        ``texts``: a string, or strings in a list, an iterator, a column (Series, ``datasets``) or a table, whose column
        ``text_field`` holds them. They are sorted by length and batched some hundred at a time, and forgotten then.
        ``prompt_name`` or ``prompt`` before each, ``truncate_dim`` and ``normalise`` instead of what was loaded.
        ``strategy``: "whole" (up to the model's limit) or "chunk-average" (the mean over chunks that share ``overlap``
        tokens). ``on_long``, of longer texts: "truncate" or "error". ``max_tokens_per_batch``: padding included.

        The last five are those of sentence-transformers: ``batch_size``, texts at a time, besides the limit in tokens;
        ``show_progress_bar`` as ``progress``; ``normalize_embeddings``, true where vectors are to have length 1 and the
        folder's own modules do not see to it; ``convert_to_tensor``: a tensor on the model's device; neither that nor
        ``convert_to_numpy``: a list of tensors.

        Raises DataError for what is no text, with its place, ConfigurationError for options that cannot
        be.
        """
        normalise = normalize_embeddings or normalise
        encoder = self.changed(prompt_name=prompt_name, prompt=prompt, truncate_dim=truncate_dim, normalise=normalise)
        found = encoder.values(
            texts,
            text_field=text_field,
            strategy=strategy,
            overlap=overlap,
            on_long=on_long,
            max_tokens_per_batch=max_tokens_per_batch,
            progress=show_progress_bar or progress,
            batch_size=batch_size,
        )
        if convert_to_numpy and not convert_to_tensor:
            return found
        tensor = torch.from_numpy(found).to(self.model.device)
        return tensor if convert_to_tensor or tensor.ndim == 1 else list(tensor)

    def encode_query(self, texts: Any, **options: Any) -> Any:
        """``encode`` with the folder's prompt for queries, where it has one and ``options`` name no other."""
        return self.for_queries().encode(texts, **options)

    def encode_document(self, texts: Any, **options: Any) -> Any:
        """``encode`` with the folder's prompt for documents, where it has one and ``options`` name no other."""
        return self.for_documents().encode(texts, **options)

    def similarity(self, one: Any, other: Any) -> Tensor:
        """How alike vectors (N, D), or (D,), and (M, D) are, (N, M): by the cosine, or as the folder says.

        It may say "dot", or "euclidean" or "manhattan", where it is the distance times -1.
        """
        kind, x, y = self.folder.similarity, _rows(one), _rows(other)
        if kind in DISTANCES:
            return -torch.cdist(x, y, p=DISTANCES[kind])
        return x @ y.T if kind == "dot" else normalize(x, dim=-1) @ normalize(y, dim=-1).T

    def encode_chunks(
        self,
        texts: Any,
        *,
        text_field: str = "text",
        chunk_tokens: int = 256,
        overlap: int = 0,
        boundaries: Any = "tokens",
        document_weight: float = 0.0,
        title_field: str | None = None,
        max_tokens_per_batch: int = DEFAULT_BATCH_TOKENS,
        progress: bool = False,
    ) -> ChunkVectors | Iterator[ChunkVectors]:
        """The chunks of ``texts`` (as in ``encode``), each text read as a whole; of several texts streamed, in order.

        ``vectors`` float32 (m, D) and ``spans`` (m, 2), characters from-to; a chunk of at most ``chunk_tokens`` tokens
        shares ``overlap`` with the one before and begins where ``boundaries`` allows: "tokens", "sentences",
        "paragraphs", or for each text the characters from-to of its chunks, lists or an array (m, 2), of one string
        also by themselves. ``document_weight``: weight, beside a chunk's own vector, of the mean of all chunks of its
        text. ``title_field``: field of rows, of a table or of Documents that is read in front of the text. Raises as
        ``encode`` does, and InputError for spans that are not in order, too few or many.
        """
        found = encode_chunks(
            self,
            texts,
            text_field=text_field,
            chunk_tokens=chunk_tokens,
            overlap=overlap,
            boundaries=boundaries,
            document_weight=document_weight,
            title_field=title_field,
            max_tokens_per_batch=max_tokens_per_batch,
        )
        if is_one(texts):
            return next(found)
        total = len(texts) if isinstance(texts, Sized) else None
        return iter(tqdm(found, total=total, desc=self.verb, unit="text", disable=not progress))

    def changed(
        self,
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        truncate_dim: int | None = None,
        normalise: bool | None = None,
    ) -> Self:
        """This encoder with what is given in place of its own. Raises ConfigurationError for what the folder lacks."""
        new: dict[str, Any] = {}
        if prompt_name is not None or prompt is not None:
            new["prompt"] = self.folder.prompt_for(prompt_name, prompt, self.model.name_or_path)
        if truncate_dim is not None:
            new["dimensions"] = truncate_dim
        if normalise is not None:
            new |= {"normalise": normalise, "renormalise": normalise}
        return replace(self, **new)


def _rows(vectors: Any) -> Tensor:
    found = torch.stack([*map(torch.as_tensor, vectors)]) if isinstance(vectors, list) else torch.as_tensor(vectors)
    return torch.atleast_2d(found.float())


def _unit(vectors: np.ndarray) -> np.ndarray:
    return normalize(torch.from_numpy(vectors), dim=-1).numpy()


def _lower_case(tokenizer: Any) -> None:
    if tokenizer.is_fast:
        rules = tokenizer.backend_tokenizer
        rules.normalizer = Normalizers([Lowercase(), *filter(None, [rules.normalizer])])
    else:
        tokenizer.do_lower_case = True
