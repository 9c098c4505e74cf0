"""Crops of mixed lengths, cut from documents, as the batches of each optimiser step; the same for the same seed.

A step's batch depends on the documents, the settings and its number alone, so an interrupted run finds its place by
counting.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from torch import Tensor
from torch.utils.data import IterableDataset

from longform.errors import ConfigurationError, DataError
from longform.pretrained.tokenizers import SpecialTokens, content_ids, special_tokens
from longform_text.data.batching import padded
from longform_text.data.text import Document, text_of
from longform_text.training.distillation.settings import DistillationSettings

DOCUMENTS_AT_ONCE = 32  # tokenised together
SHUFFLED_STEPS = 32  # steps' worth of crops among which a batch is drawn
MISSES = 16  # crops drawn in vain, too long for what is left of a step, before the step is full
SHORTEST = 8  # tokens of text; a document with less teaches nothing
Documents = Iterable[str | Document]


class DataCollatorForCrops:
    """Crops as a batch: ``input_ids`` and ``attention_mask`` long (B, n), padded on the right."""

    def __init__(self, tokenizer: Any) -> None:
        self.padding = tokenizer.pad_token_id or 0

    def __call__(self, items: Sequence[Sequence[list[int]]]) -> dict[str, Tensor]:
        """The batch of some items of a CropDataset, the crops of a step each."""
        ids, mask = padded([crop for crops in items for crop in crops], value=self.padding)
        return {"input_ids": ids, "attention_mask": mask}


def at_most_a_fifth(wanted: int, documents: Iterable[Any]) -> int:
    """How many of the ``documents`` are kept for measuring: as many as ``wanted``, or a fifth of few, at least one."""
    count = sum(1 for _ in islice(documents, 5 * wanted))  # no more need be read
    return min(wanted, max(1, count // 5))


class CropDataset(IterableDataset):
    """The crops (lists of token ids) of each step of a distillation, without end, those of several processes in turn.

    ``heldout``: how many documents at the beginning are kept apart. Raises ConfigurationError for lengths without room
    for text.
    """

    def __init__(
        self, documents: Documents, tokenizer: Any, settings: DistillationSettings, *, heldout: int = 0
    ) -> None:
        assert settings.length is not None, "see settings.fitted"
        self.documents, self.tokenizer, self.settings = documents, tokenizer, settings
        self.special: SpecialTokens = special_tokens(tokenizer)
        self.heldout, self.length = heldout, settings.length
        self.step_tokens = max(settings.tokens_per_step, settings.length)
        if settings.min_length - self.special.total < SHORTEST:
            raise ConfigurationError(
                f"min_length={settings.min_length} must be at least {SHORTEST + self.special.total}: "
                f"{self.special.total} special tokens and {SHORTEST} of text"
            )

    def heldout_crops(self) -> list[list[int]]:
        """The documents kept apart, each from its beginning up to ``length`` tokens."""
        return self.whole_crops([text_of(document) for document in islice(self._ordered(0), self.heldout)])

    def whole_crops(self, texts: Sequence[str]) -> list[list[int]]:
        """Each text from its beginning up to ``length`` tokens; texts with almost nothing in them are left out."""
        content = self.length - self.special.total
        return [
            self.special.around(ids[:content]) for ids in content_ids(self.tokenizer, texts) if len(ids) >= SHORTEST
        ]

    def __iter__(self) -> Iterator[list[list[int]]]:
        """Random crops for each step, as many as fit."""
        picks = random.Random(f"batches {self.settings.seed}")
        pool: list[list[int]] = []  # crops among which the next steps' are drawn
        crops, in_pool = self._crops(), 0  # the latter: tokens of the pool
        while True:
            while in_pool < SHUFFLED_STEPS * self.step_tokens:
                pool.append(next(crops))
                in_pool += len(pool[-1])
            batch = self._draw(pool, picks)
            in_pool -= sum(map(len, batch))
            yield batch

    def _draw(self, pool: list[list[int]], picks: random.Random) -> list[list[int]]:
        """Random crops, as many as fit into one step."""
        batch: list[list[int]] = []
        room, misses = self.step_tokens, 0
        while pool and misses < MISSES:
            place = picks.randrange(len(pool))
            if len(pool[place]) > room:
                misses += 1
                continue
            pool[place], pool[-1] = pool[-1], pool[place]
            batch.append(pool.pop())
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
            length = cuts.choice([length for length in lengths if length <= len(content) - start])
            yield content[start : start + length]
            start += length
        if start == 0 and len(content) >= SHORTEST:
            yield content


def _mix(length: int, min_length: int) -> list[int]:
    """length, length / 2, length / 4 ... down to min_length, which is at most the length."""
    return [length] if length // 2 < min_length else [length, *_mix(length // 2, min_length)]
