"""Three ways to run a model on a text of any length: cut it, take it whole, or average over chunks.

Axes: B texts in a batch, n tokens, F features of the result (an embedding, logits).
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from longform.data.batching import Batch, TokenizedText, collate, group_by_length, tokenized_batches, windows
from longform.data.text import Document
from longform.errors import ConfigurationError, DataError

STRATEGIES = ("cut", "whole", "chunk-average")
DEFAULT_BATCH_TOKENS = 8192  # padding included
Text = str | tuple[str, str] | Document
T = TypeVar("T")


class Outcome(NamedTuple):
    """What a model made of one text: ``values`` float32 (F,); ``tokens`` it saw; ``truncated`` ones it did not."""

    index: int
    values: np.ndarray
    tokens: int
    truncated: int


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
) -> Iterator[Outcome]:
    """One Outcome a text, in order, streamed; ``forward`` maps a Batch to (B, F).

    "cut" and "whole" give the model the first ``limit`` tokens; they differ in what ``limit`` means to the caller.
    "chunk-average" gives it every window of ``limit`` tokens (special ones included; neighbours share ``overlap``),
    and averages the results, each weighted by its number of tokens. ``window`` texts at a time are sorted by length.
    """
    if strategy not in STRATEGIES:
        raise ConfigurationError(f'strategy is "{strategy}"; it is one of {", ".join(STRATEGIES)}')
    if strategy == "chunk-average":
        yield from _chunk_average(
            forward, texts, tokenizer, limit, overlap, max_tokens_per_batch=max_tokens_per_batch, window=window
        )
        return
    batches = tokenized_batches(
        texts, tokenizer, max_length=limit, max_tokens_per_batch=max_tokens_per_batch, on_long=on_long, window=window
    )
    yield from in_order(outcome for batch in batches for outcome in _outcomes(forward, batch))


class Collected(NamedTuple):
    """Outcomes of a list of texts: ``values`` float32 (N, F), tokens that were seen, texts that were cut."""

    values: np.ndarray
    tokens: int
    truncated: int


def collect(outcomes: Iterable[Outcome], *, total: int, features: int, name: str, progress: bool) -> Collected:
    """All ``outcomes``, with a progress bar called ``name``; of no text, values of shape (0, ``features``)."""
    every = list(tqdm(outcomes, total=total, desc=name, unit="text", disable=not progress))
    values = np.stack([outcome.values for outcome in every]) if every else np.empty((0, features), np.float32)
    return Collected(values, sum(each.tokens for each in every), sum(each.truncated > 0 for each in every))


def in_order(outcomes: Iterable[Outcome]) -> Iterator[Outcome]:
    """The outcomes sorted by index, each given out as soon as all before it are there."""
    waiting: dict[int, Outcome] = {}
    following = 0
    for outcome in outcomes:
        waiting[outcome.index] = outcome
        while following in waiting:
            yield waiting.pop(following)
            following += 1


def _outcomes(forward: Callable[[Batch], Tensor], batch: Batch) -> Iterator[Outcome]:
    values = _values(forward, batch)
    return map(Outcome, batch.indices, values, batch.tokens, batch.truncated)


def _values(forward: Callable[[Batch], Tensor], batch: Batch) -> np.ndarray:
    with torch.inference_mode():
        return forward(batch).float().cpu().numpy()


def special_frame(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Ids that the tokenizer puts before and after a single text."""
    bare, framed = (tokenizer("a", add_special_tokens=flag)["input_ids"] for flag in (False, True))
    start = next(at for at in range(len(framed)) if framed[at : at + len(bare)] == bare)
    return framed[:start], framed[start + len(bare) :]


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
    *,
    max_tokens_per_batch: int,
    window: int,
) -> Iterator[Outcome]:
    before, after = special_frame(tokenizer)
    size = limit - len(before) - len(after)
    if not 0 <= overlap < size:
        raise ConfigurationError(f"overlap is {overlap}; with {limit} tokens a chunk it is from 0 to {size - 1}")
    first = 0
    for part in windows(texts, window=window, max_tokens_per_batch=max_tokens_per_batch):
        contents = tokenizer(list(map(_single, part)), add_special_tokens=False, verbose=False)["input_ids"]
        pieces = [chunks(ids, size=size, overlap=overlap) for ids in contents]
        flat = [TokenizedText([*before, *piece, *after], None, 0) for several in pieces for piece in several]
        values = _piece_values(forward, flat, tokenizer, max_tokens_per_batch)
        stop = 0
        for place, several in enumerate(pieces):
            start, stop = stop, stop + len(several)
            weights = [max(1, len(piece)) for piece in several]
            mean = np.average(np.stack(values[start:stop]), axis=0, weights=weights).astype(np.float32)
            yield Outcome(first + place, mean, sum(len(text.input_ids) for text in flat[start:stop]), 0)
        first += len(part)


def _piece_values(
    forward: Callable[[Batch], Tensor], pieces: list[TokenizedText], tokenizer: Any, max_tokens_per_batch: int
) -> list[np.ndarray]:
    """What ``forward`` makes of each piece, float32 (F,), in order."""
    values: dict[int, np.ndarray] = {}
    for places in group_by_length([len(piece.input_ids) for piece in pieces], max_tokens_per_batch):
        batch = collate(places, [pieces[place] for place in places], tokenizer)
        values.update(zip(places, _values(forward, batch), strict=True))
    return [values[place] for place in range(len(pieces))]


def _single(text: Text) -> str:
    if isinstance(text, str):
        return text
    if isinstance(text, Document) and text.pair is None:
        return text.text
    raise DataError('pairs of texts cannot be averaged over chunks; choose the strategy "cut" or "whole"')
