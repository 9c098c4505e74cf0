"""Crops of mixed lengths, cut from documents, as the batches of each optimiser step; the same for the same seed.

A step's batch depends on the documents, the settings and its number alone, so an interrupted run finds its place by
counting.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from torch import Tensor

from longform.errors import ConfigurationError, DataError
from longform.pretrained.tokenizers import SpecialTokens, content_ids
from longform_text.data.batching import group_by_length, padded
from longform_text.data.text import Document, text_of
from longform_text.training.engine.settings import DistillationSettings

DOCUMENTS_AT_ONCE = 32  # tokenised together
SHUFFLED_STEPS = 32  # steps' worth of crops among which a batch is drawn
MISSES = 16  # crops drawn in vain, too long for what is left of a step, before the step is full
T = TypeVar("T")
SHORTEST = 8  # tokens of text; a document with less teaches nothing


class Crops(NamedTuple):
    """Crops that pass through the model together.

    ``input_ids`` long (B, n), ``attention_mask`` long (B, n) or None without padding, ``lengths`` tokens of each.
    """

    input_ids: Tensor
    attention_mask: Tensor | None
    lengths: list[int]

    @property
    def tokens(self) -> int:
        """Tokens without padding."""
        return sum(self.lengths)

    @property
    def weight(self) -> float:
        """How much of a step's loss it is."""
        return self.tokens


def stacks(crops: Sequence[Sequence[int]], pad_id: int, tokens_per_forward: int) -> list[Crops]:
    """Token ids in groups of similar lengths, padded on the right to at most ``tokens_per_forward`` tokens each."""
    made = []
    for places in group_by_length([len(crop) for crop in crops], tokens_per_forward):
        group = [crops[place] for place in places]
        ids, mask = padded(group, value=pad_id)
        made.append(Crops(ids, None if mask.all() else mask, [len(crop) for crop in group]))
    return made


def check_repeatable(documents: Iterable[str | Document]) -> None:
    """Raise DataError for an iterator that can be read only once."""
    if isinstance(documents, str) or iter(documents) is documents:
        raise DataError(
            "documents are read again for every pass and after an interruption: "
            "give a list, or an object whose __iter__ begins anew, not an iterator or one string"
        )


def at_most_a_fifth(wanted: int, documents: Iterable[Any]) -> int:
    """How many of the ``documents`` are kept for measuring: as many as ``wanted``, or a fifth of few, at least one."""
    count = sum(1 for _ in islice(documents, 5 * wanted))  # no more need be read
    return min(wanted, max(1, count // 5))


class CropSource:
    """Batches of a run. ``heldout``: how many documents at the beginning are kept apart."""

    def __init__(
        self,
        documents: Iterable[str | Document],
        tokenizer: Any,
        special: SpecialTokens,
        settings: DistillationSettings,
        *,
        heldout: int,
        rank: int = 0,
        processes: int = 1,
    ) -> None:
        check_repeatable(documents)
        assert settings.length is not None, "see settings.fitted"
        self.documents, self.tokenizer, self.special, self.settings = documents, tokenizer, special, settings
        self.heldout, self.rank, self.processes = heldout, rank, processes
        self.length, self.step_tokens = settings.length, max(settings.tokens_per_step, settings.length)
        self.tokens = 0  # trained on by all processes, up to the last step that was handed out
        if settings.min_length - special.total < SHORTEST:
            raise ConfigurationError(
                f"min_length={settings.min_length} must be at least {SHORTEST + special.total}: "
                f"{special.total} special tokens and {SHORTEST} of text"
            )

    def heldout_crops(self) -> list[list[int]]:
        """The documents kept apart, each from its beginning up to ``length`` tokens."""
        texts = [text_of(document) for document in islice(self._ordered(0), self.heldout)]
        return self.whole_crops(texts)

    def whole_crops(self, texts: Sequence[str]) -> list[list[int]]:
        """Each text from its beginning up to ``length`` tokens; texts with almost nothing in them are left out."""
        content = self.length - self.special.total
        return [
            self.special.around(ids[:content]) for ids in content_ids(self.tokenizer, texts) if len(ids) >= SHORTEST
        ]

    def steps(self, start: int = 0) -> Iterator[list[Crops]]:
        """From step ``start`` on, without end: the parts that make up the batch of each step of this process."""
        picks = random.Random(f"batches {self.settings.seed}")
        pool: list[list[int]] = []  # crops among which the next steps' are drawn
        crops = self._crops()
        in_pool = step = self.tokens = 0  # the first: tokens of the pool
        while True:
            while in_pool < SHUFFLED_STEPS * self.step_tokens * self.processes:
                crop = next(crops)
                pool.append(crop)
                in_pool += len(crop)
            batches = [self._draw(pool, picks) for _ in range(self.processes)]
            drawn = sum(len(crop) for batch in batches for crop in batch)
            in_pool -= drawn
            self.tokens += drawn
            if step >= start:
                yield stacks(batches[self.rank], self.tokenizer.pad_token_id or 0, self.settings.tokens_per_forward)
            step += 1

    def _draw(self, pool: list[list[int]], picks: random.Random) -> list[list[int]]:
        """Random crops, as many as fit into one step."""
        batch: list[list[int]] = []
        room, misses = self.step_tokens, 0
        while pool and misses < MISSES:
            place = picks.randrange(len(pool))
            if len(pool[place]) > room:
                misses += 1
                continue
            batch.append(taken(pool, place))
            room -= len(batch[-1])
        return batch

    def _ordered(self, epoch: int) -> Iterator[str | Document]:
        """The documents of one pass: a list is shuffled, a stream comes as it is; those kept apart come first."""
        if not isinstance(self.documents, Sequence):
            return iter(self.documents)
        order = list(range(len(self.documents)))
        random.Random(f"held out {self.settings.seed}").shuffle(order)
        rest = order[self.heldout :]
        random.Random(f"pass {epoch} {self.settings.seed}").shuffle(rest)
        return (self.documents[place] for place in [*order[: self.heldout], *rest])

    def _crops(self) -> Iterator[list[int]]:
        cuts = random.Random(f"crops {self.settings.seed}")
        epoch = 0
        while True:
            found = False
            texts = (text_of(document) for document in islice(self._ordered(epoch), self.heldout, None))
            while some := list(islice(texts, DOCUMENTS_AT_ONCE)):
                for content in content_ids(self.tokenizer, some):
                    for piece in self._cut(content, cuts):
                        found = True
                        yield self.special.around(piece)
            if not found:
                raise DataError(
                    f"no text to train on: beside {self.heldout} held-out documents none has {SHORTEST} tokens or more "
                    "(more documents, or a smaller heldout_documents)"
                )
            epoch += 1

    def _cut(self, content: list[int], cuts: random.Random) -> Iterator[list[int]]:
        """Consecutive pieces with lengths from the mix; what is too short for the mix, and not the whole, is left."""
        lengths = [length - self.special.total for length in _mix(self.length, self.settings.min_length)]
        start = 0
        while len(content) - start >= lengths[-1]:
            fitting = [length for length in lengths if length <= len(content) - start]
            length = cuts.choice(fitting)
            yield content[start : start + length]
            start += length
        if start == 0 and len(content) >= SHORTEST:
            yield content


def taken(pool: list[T], place: int) -> T:
    """The item at ``place``, out of the pool, where the last one takes its place."""
    pool[place], pool[-1] = pool[-1], pool[place]
    return pool.pop()


def _mix(length: int, min_length: int) -> list[int]:
    """length, length / 2, length / 4 ... down to min_length, which is at most the length."""
    return [length] if length // 2 < min_length else [length, *_mix(length // 2, min_length)]
