"""Texts as batches of tokens for an alignment, and which vectors of a batch belong to which text or passage.

A document that is searched by its passages gives a vector for each of them, pooled from the reading of the whole.
Axes: T texts, U of their vectors (one each, or one a passage), F features.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor

from longform.data.batching import TokenizedText, batches_of, tokenize
from longform.data.special_tokens import content_ids, special_tokens
from longform.inference.encoders import Encoder
from longform.training.alignment.settings import AlignmentSettings

QUERY, DOCUMENT, PLAIN = "query", "document", "plain"  # what stands before a text: the prompt of its side
PARTS = "parts"  # of a batch: row and tokens from-to of each vector, where it is not one a row


class TextTokens(NamedTuple):
    """Tokens of a text, and from-to of those that each of its vectors is made of; ``parts`` None: one vector of all."""

    text: TokenizedText
    parts: list[tuple[int, int]] | None = None


class Reading(NamedTuple):
    """``batches``: keyword arguments of the encoder, the ``side``, and perhaps ``parts``. ``order`` (U): where each
    vector stands among those of all batches. ``counts`` (T): vectors of each text. ``tokens``: of all texts, without
    padding.
    """

    batches: list[dict[str, Any]]
    order: Tensor
    counts: list[int]
    tokens: int

    def vectors(self, given: Sequence[Tensor]) -> Tensor:
        """The vectors (U, F), float32, of all texts, in order, from those of each batch."""
        every = torch.cat(list(given)).float()
        return every[self.order.to(every.device)]


class Reader:
    """``sides``: the encoder with the prompt of each side; ``limit``: tokens that are read of a text."""

    def __init__(self, sides: dict[str, Encoder], settings: AlignmentSettings, limit: int) -> None:
        self.sides, self.settings, self.limit = sides, settings, limit
        self.special = special_tokens(sides[PLAIN].tokenizer)

    def read(self, texts: Sequence[tuple[str, str]]) -> Reading:
        """Texts with their sides."""
        every = [self._tokens(text, side) for side, text in texts]
        counts = [1 if each.parts is None else len(each.parts) for each in every]
        firsts = [0, *accumulate(counts)]
        batches: list[dict[str, Any]] = []
        owners: list[int] = []
        for side in self.sides:
            of_side = [place for place, (its, _) in enumerate(texts) if its == side]
            for batch, indices in self._batches(side, [every[place] for place in of_side]):
                batches.append(batch)
                for place in (of_side[index] for index in indices):
                    owners += range(firsts[place], firsts[place + 1])
        return Reading(batches, torch.tensor(owners).argsort(), counts, sum(len(each.text.input_ids) for each in every))

    def _batches(self, side: str, texts: Sequence[TextTokens]) -> Iterator[tuple[dict[str, Any], list[int]]]:
        """Batches of one side, and which of its texts each has."""
        encoder, tokens = self.sides[side], [each.text for each in texts]
        for batch in batches_of(tokens, encoder.tokenizer, self.settings.tokens_per_forward):
            parts = [(row, *part) for row, index in enumerate(batch.indices) for part in texts[index].parts or []]
            inputs = {**batch.model_inputs(encoder.model.device), "side": side}
            yield inputs | {PARTS: parts} if parts else inputs, batch.indices

    def passage_of(self, text: str, character: int) -> int:
        """The number of the passage of a document that a character stands in."""
        encoder, size = self.sides[DOCUMENT], self.settings.passage_tokens
        assert size is not None
        before, after = (len(ids) for ids in content_ids(encoder.tokenizer, [text[:character], text]))
        prompt = len(content_ids(encoder.tokenizer, [encoder.prompt])[0])
        after = min(after, self.limit - self.special.total - prompt)
        return min(before, max(after - 1, 0)) // size

    def _tokens(self, text: str, side: str) -> TextTokens:
        """Tokens that the encoder reads of a text."""
        encoder = self.sides[side]
        if side == DOCUMENT and self.settings.passage_tokens is not None:
            return self._passages(text, encoder, self.settings.passage_tokens)
        (tokens,) = tokenize([encoder.prompt + text], encoder.tokenizer, max_length=self.limit)
        return TextTokens(tokens)

    def _passages(self, text: str, encoder: Encoder, size: int) -> TextTokens:
        """Runs of ``size`` tokens of the whole reading, special tokens and a prompt in those at its ends."""
        prompt, ids = content_ids(encoder.tokenizer, [encoder.prompt, text])
        ids = ids[: self.limit - self.special.total - len(prompt)]
        lead = len(self.special.prefix) + len(prompt)
        starts = [0, *range(lead + size, lead + len(ids), size)]
        ends = [*starts[1:], lead + len(ids) + len(self.special.suffix)]
        return TextTokens(TokenizedText(self.special.around([*prompt, *ids])), list(zip(starts, ends, strict=True)))
