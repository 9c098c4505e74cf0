"""Models run on texts of any length: on the beginning that the model takes, or on all chunks, whose mean is the result.

Axes: B texts in a batch, n tokens, F features of the result (an embedding, logits).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from longform.choices import STRATEGIES
from longform.errors import ConfigurationError, DataError
from longform.pretrained.tokenizers import content_ids, special_tokens
from longform_text.data.batching import Batch, TokenizedText, batches_of, tokenized_batches, windows
from longform_text.data.text import Document, Text, is_one, usable_texts
from longform_text.inference.settings import DEFAULT_BATCH_TOKENS

CUT = "cut"  # runs as "whole" does; named so where a comparison gives a model less than the whole text


class Outcome(NamedTuple):
    """Result of a model for one text: ``values`` float32 (F,); ``tokens`` it saw; ``truncated`` ones it did not."""

    index: int
    values: np.ndarray
    tokens: int
    truncated: int


Computed = Callable[[int], None]


def _nothing(count: int) -> None:
    """Ignore the number of texts that are ready, where nobody waits for it."""


def run_texts(
    forward: Callable[[Batch], Tensor],
    texts: Iterable[Text],
    tokenizer: Any,
    *,
    limit: int,
    strategy: str = "cut",
    overlap: int = 0,
    max_tokens_per_batch: int = DEFAULT_BATCH_TOKENS,
    on_long: str = "truncate",
    window: int = 512,
    computed: Computed = _nothing,
) -> Iterator[Outcome]:
    """One Outcome a text, in order, streamed; ``forward`` maps a Batch to (B, F).

    "cut" and "whole" give the model the first ``limit`` tokens.
    "chunk-average" gives it every window of ``limit`` tokens (special ones included; neighbours share ``overlap``),
    and averages the results, each weighted by its number of tokens. ``window`` texts at a time are sorted by length.
    ``computed`` is called with the number of texts that are done, which are given out in order and so later.
    """
    check_strategy(strategy)
    grouping: Any = {"max_tokens_per_batch": max_tokens_per_batch, "window": window}
    if strategy == "chunk-average":
        return _chunk_average(forward, texts, tokenizer, limit, overlap, computed, **grouping)
    batches = tokenized_batches(texts, tokenizer, max_length=limit, on_long=on_long, **grouping)
    return _in_order(forward, batches, computed)


def check_strategy(strategy: str) -> None:
    """Raise ConfigurationError for a strategy that there is not."""
    if strategy not in (CUT, *STRATEGIES):
        raise ConfigurationError(f'strategy is "{strategy}"; it is one of {", ".join((CUT, *STRATEGIES))}')


def _in_order(
    forward: Callable[[Batch], Tensor], batches: Iterable[Batch], computed: Computed = _nothing
) -> Iterator[Outcome]:
    """An Outcome for each text of ``batches``, given out as soon as all before it are there."""
    waiting: dict[int, Outcome] = {}
    following = 0
    for batch in batches:
        with torch.inference_mode():
            values = forward(batch).float().cpu().numpy()
        computed(len(batch.indices))
        waiting |= zip(batch.indices, map(Outcome, batch.indices, values, batch.tokens, batch.truncated), strict=True)
        while following in waiting:
            yield waiting.pop(following)
            following += 1


def chunks(ids: list[int], *, size: int, overlap: int) -> list[list[int]]:
    """Windows of at most ``size`` ids that cover ``ids``, neighbours sharing ``overlap``; at least one window."""
    last_start = max(len(ids) - overlap, 1)
    return [ids[start : start + size] for start in range(0, last_start, size - overlap)]


def _chunk_average(
    forward: Callable[[Batch], Tensor],
    texts: Iterable[Text],
    tokenizer: Any,
    limit: int,
    overlap: int,
    computed: Computed,
    *,
    max_tokens_per_batch: int,
    window: int,
) -> Iterator[Outcome]:
    special = special_tokens(tokenizer)
    size = limit - special.total
    if not 0 <= overlap < size:
        raise ConfigurationError(f"overlap is {overlap}; with {limit} tokens a chunk it is from 0 to {size - 1}")
    first = 0
    for part in windows(texts, window=window, max_tokens_per_batch=max_tokens_per_batch):
        pieces = [chunks(ids, size=size, overlap=overlap) for ids in content_ids(tokenizer, list(map(_single, part)))]
        flat = [TokenizedText(special.around(piece)) for several in pieces for piece in several]
        found = _in_order(forward, batches_of(flat, tokenizer, max_tokens_per_batch))
        for number, several in enumerate(pieces, start=first):
            own = list(islice(found, len(several)))
            weights = [max(1, len(piece)) for piece in several]
            mean = np.average([each.values for each in own], axis=0, weights=weights).astype(np.float32)
            text = part[number - first]
            computed(1)
            unread = int(isinstance(text, Document) and text.unread > 0)
            yield Outcome(number, mean, sum(each.tokens for each in own), unread)
        first += len(part)


def _single(text: Text) -> str:
    if isinstance(text, str):
        return text
    if isinstance(text, Document) and text.pair is None:
        return text.text
    raise DataError('pairs of texts cannot be averaged over chunks; choose the strategy "whole"')


class Collected(NamedTuple):
    """Outcomes of a list of texts: ``values`` float32 (N, F), tokens that were seen, texts that were cut."""

    values: np.ndarray
    tokens: int
    truncated: int


@dataclass(repr=False, eq=False)
class TextModel(ABC):
    """A model that gives F numbers for a text, and its tokenizer. ``limit``: tokens that it takes at most."""

    model: Any
    tokenizer: Any
    limit: int
    verb: ClassVar[str]  # what running it is called, beside the progress bar

    def __new__(cls, model: Any = None, *values: Any, **options: Any) -> Self:
        """Refuse a name, which ``from_pretrained`` takes, with a ConfigurationError."""
        model = options.get("model_name_or_path", model)
        if isinstance(model, str | Path):
            raise ConfigurationError(
                f'{cls.__name__}("{model}"): what a folder or hub name holds is loaded by '
                f'{cls.__name__}.from_pretrained("{model}")'
            )
        return super().__new__(cls)

    def __repr__(self) -> str:
        name, limit = self.model.name_or_path, f"{self.limit:,}"
        return f'{type(self).__name__}("{name}": {self.features} values for up to {limit} tokens, {self.model.device})'

    @property
    def device(self) -> torch.device:
        """The model's."""
        return self.model.device

    @property
    @abstractmethod
    def features(self) -> int:
        """F."""

    @abstractmethod
    def forward(self, batch: Batch) -> Tensor:
        """The texts' numbers (B, F)."""

    def outcomes(
        self, texts: Any, *, text_field: str = "text", pair_field: str | None = None, **options: Any
    ) -> Iterator[Outcome]:
        """Outcomes in order, streamed; ``options`` are those of ``run_texts`` (chunks: values are averaged).

        ``texts``: whatever holds texts (``data.given``), the fields are those of rows and tables. Raises
        DataError for what is no text (``usable_texts``).
        """
        return self.run(usable_texts(texts, text_field=text_field, pair_field=pair_field), **options)

    def run(self, texts: Iterable[Text], **options: Any) -> Iterator[Outcome]:
        """``outcomes`` of texts that are clean already, as ``usable_texts`` and ``read_documents`` give them."""
        options.setdefault("limit", self.limit)
        return run_texts(self.forward, texts, self.tokenizer, **options)

    def values(self, texts: Any, **options: Any) -> np.ndarray:
        """Values (N, F) of all texts, (F,) of one text that is not in a list; ``options`` as in ``collect``."""
        found = self.collect(texts, **options).values
        return found[0] if is_one(texts) else found

    def collect(
        self, texts: Any, *, progress: bool = False, batch_size: int | None = None, **options: Any
    ) -> Collected:
        """Values (N, F) of all texts, and how many tokens were seen and texts cut; ``options``: of ``outcomes``.

        No more texts are in memory at a time than are sorted by length together, or than ``batch_size``.
        """
        if batch_size is not None:
            options["window"] = batch_size
        total = 1 if is_one(texts) else len(texts) if isinstance(texts, Sized) else None
        every = list(
            tqdm(self.outcomes(texts, **options), total=total, desc=self.verb, unit="text", disable=not progress)
        )
        values = np.stack([outcome.values for outcome in every]) if every else np.empty((0, self.features), np.float32)
        return Collected(values, sum(each.tokens for each in every), sum(each.truncated > 0 for each in every))
