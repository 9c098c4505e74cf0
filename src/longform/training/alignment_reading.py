"""Texts as batches of tokens for an alignment, and which vectors of a batch belong to which text or passage.

A text is read whole or in chunks whose vectors are averaged; a document that is searched by its passages gives a vector
for each of them, pooled from the whole reading or read alone.
Axes: T texts, U of their vectors (one each, or one a passage), V vectors of all batches, F features.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor

from longform.data.batching import TokenizedText, batches_of, tokenize
from longform.data.special_tokens import content_ids, special_tokens
from longform.inference.encoders import Encoder
from longform.inference.strategies import chunks
from longform.training.alignment_settings import AlignmentSettings

QUERY, DOCUMENT, PLAIN = "query", "document", "plain"  # what stands before a text: the prompt of its side
PARTS = "parts"  # of a batch: row and tokens from-to of each vector, where it is not one a row


class Piece(NamedTuple):
    """Tokens that pass through the encoder at once. ``units``: which vectors of its text it gives, by their number.

    ``share``: its part of that vector; ``parts``: the tokens from-to of each of several, None: all of one.
    """

    text: TokenizedText
    units: list[int]
    share: float = 1.0
    parts: list[tuple[int, int]] | None = None


class Reading(NamedTuple):
    """``batches``: keyword arguments of the encoder, the ``side``, and perhaps ``parts``. Of each of their vectors, in
    order (V): ``owner``, the one (of U) that it belongs to, and ``share``, its part of it. ``counts`` (T): vectors of
    each text. ``tokens``: of all texts, without padding.
    """

    batches: list[dict[str, Any]]
    owner: Tensor
    share: Tensor
    counts: list[int]
    tokens: int

    def vectors(self, given: Sequence[Tensor]) -> Tensor:
        """The vectors (U, F), float32, of all texts, in order, from those of each batch."""
        every = torch.cat(list(given)).float()
        owner, share = self.owner.to(every.device), self.share.to(every.device)
        return every.new_zeros(sum(self.counts), every.shape[1]).index_add(0, owner, every * share[:, None])


class Reader:
    """``sides``: the encoder with the prompt of each side; ``limit``: tokens that are read of a text, None: all."""

    def __init__(self, sides: dict[str, Encoder], settings: AlignmentSettings, limit: int | None) -> None:
        self.sides, self.settings, self.limit = sides, settings, limit
        self.special = special_tokens(sides[PLAIN].tokenizer)

    def read(self, texts: Sequence[tuple[str, str]]) -> Reading:
        """Texts with their sides."""
        every = [self._pieces(text, side) for side, text in texts]
        counts = list(map(_count, every))
        firsts = [sum(counts[:place]) for place in range(len(counts))]
        batches: list[dict[str, Any]] = []
        owner: list[int] = []
        share: list[float] = []
        for side in self.sides:
            of_side = [place for place, (its, _) in enumerate(texts) if its == side]
            flat = [(firsts[place], piece) for place in of_side for piece in every[place]]
            for batch, given in self._batches(side, flat):
                batches.append(batch)
                for first, piece in given:
                    owner += [first + unit for unit in piece.units]
                    share += [piece.share] * len(piece.units)
        tokens = sum(len(piece.text.input_ids) for piece in chain.from_iterable(every))
        return Reading(batches, torch.tensor(owner), torch.tensor(share), counts, tokens)

    def _batches(
        self, side: str, flat: Sequence[tuple[int, Piece]]
    ) -> Iterator[tuple[dict[str, Any], list[tuple[int, Piece]]]]:
        """Batches of the pieces of a side, and which pieces each has."""
        encoder = self.sides[side]
        for batch in batches_of([piece.text for _, piece in flat], encoder.tokenizer, self.settings.tokens_per_forward):
            given = [flat[index] for index in batch.indices]
            yield {**batch.model_inputs(encoder.model.device), "side": side, **_parts(given)}, given

    def passage_of(self, text: str, character: int) -> int:
        """The number of the passage of a document that a character stands in."""
        encoder, size = self.sides[DOCUMENT], self.settings.passage_tokens
        assert size is not None
        before, after = (len(ids) for ids in content_ids(encoder.tokenizer, [text[:character], text]))
        if self.limit is not None:
            after = min(after, self.limit - self.special.total - self._prompt(encoder))
        return min(before, max(after - 1, 0)) // size

    def _prompt(self, encoder: Encoder) -> int:
        """Tokens of the encoder's prompt."""
        return len(content_ids(encoder.tokenizer, [encoder.prompt])[0])

    def _pieces(self, text: str, side: str) -> list[Piece]:
        """Pieces of a text that the encoder reads."""
        encoder, whole = self.sides[side], self.settings.strategy == "whole"
        if side == DOCUMENT and self.settings.passage_tokens is not None:
            return list(self._passages(text, encoder, self.settings.passage_tokens, whole=whole))
        given = [encoder.prompt + text]
        if whole:
            return [Piece(each, [0]) for each in tokenize(given, encoder.tokenizer, max_length=self.limit)]
        ids = content_ids(encoder.tokenizer, given)[0]
        ids = ids if self.limit is None else ids[: self.limit - self.special.total]
        windows = chunks(ids, size=encoder.limit - self.special.total, overlap=0)
        return [Piece(self._around(window), [0], max(1, len(window)) / max(1, len(ids))) for window in windows]

    def _passages(self, text: str, encoder: Encoder, size: int, *, whole: bool) -> Iterator[Piece]:
        """Runs of ``size`` tokens: of the whole reading, special tokens and a prompt in those at its ends, or alone."""
        prompt, ids = content_ids(encoder.tokenizer, [encoder.prompt, text])
        ids = ids if self.limit is None else ids[: self.limit - self.special.total - len(prompt)]
        runs = chunks(ids, size=size, overlap=0)
        if not whole:
            yield from (Piece(self._around([*prompt, *run]), [number]) for number, run in enumerate(runs))
            return
        lead = len(self.special.prefix) + len(prompt)
        starts = [0, *(lead + number * size for number in range(1, len(runs)))]
        ends = [*starts[1:], lead + len(ids) + len(self.special.suffix)]
        parts = list(zip(starts, ends, strict=True))
        yield Piece(self._around([*prompt, *ids]), list(range(len(runs))), 1.0, parts)

    def _around(self, ids: list[int]) -> TokenizedText:
        return TokenizedText(self.special.around(ids))


def _count(pieces: Sequence[Piece]) -> int:
    """Vectors of a text."""
    return 1 + max(max(piece.units) for piece in pieces)


def _parts(given: Sequence[tuple[int, Piece]]) -> dict[str, Any]:
    """Rows and tokens of a batch's vectors under ``PARTS``; empty where each row is one vector."""
    parts = [(row, *part) for row, (_, piece) in enumerate(given) for part in piece.parts or []]
    return {PARTS: parts} if parts else {}
