"""Crops of mixed lengths, cut from documents, as the batches of each optimiser step; the same for the same seed.

A step's batch depends on the documents, the settings and its number alone, so an interrupted run finds its place by
counting. Into what parts it is cut depends on the device besides, and with them where text is hidden.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from longform.data.batching import padded
from longform.data.special_tokens import SpecialTokens, content_ids
from longform.data.text import Document, text_of
from longform.errors import ConfigurationError, DataError
from longform.training.engine.settings import DistillationSettings

DOCUMENTS_AT_ONCE = 32  # tokenised together
SHUFFLED_STEPS = 32  # steps' worth of crops among which a batch is drawn
MISSES = 16  # crops drawn in vain, too long for what is left of a step, before the step is full
PART_TOKENS = 1024  # from here on a part is worth a pass of its own, and a shorter crop is not padded to join it
T = TypeVar("T")
SHORTEST = 8  # tokens of text; a document with less teaches nothing


class Crops(NamedTuple):
    """Crops that pass through the model together.

    ``input_ids`` long (B, n), ``attention_mask`` long (B, n) or None without padding, ``lengths`` tokens of each,
    ``masked``: long (m), places in the flattened (B * n) tokens whose text is hidden behind the mask token, or None.
    """

    input_ids: Tensor
    attention_mask: Tensor | None
    lengths: list[int]
    masked: Tensor | None = None

    @property
    def tokens(self) -> int:
        """Tokens without padding."""
        return sum(self.lengths)

    @property
    def weight(self) -> float:
        """How much of a step's loss it is."""
        return self.tokens

    @property
    def mask(self) -> Tensor | None:
        """The attention mask as bool, None without padding."""
        return None if self.attention_mask is None else self.attention_mask.bool()


def stack(crops: Sequence[Sequence[int]], pad_id: int) -> Crops:
    """Pad token ids on the right to the longest."""
    ids, mask = padded(crops, value=pad_id)
    return Crops(ids, None if mask.all() else mask, [len(crop) for crop in crops])


def grouped(crops: Sequence[list[int]], tokens_per_forward: int, *, sparing: bool = True) -> Iterator[list[list[int]]]:
    """Crops in groups, longest first; at most ``tokens_per_forward`` padded tokens each.

    ``sparing``: of similar lengths; a crop joins a longer one when that pads it by less than a fifth, or by less than
    half while the group is small.
    """
    group: list[list[int]] = []
    for crop in sorted(crops, key=len, reverse=True):
        if group:
            longest, tokens = len(group[0]), sum(map(len, group))
            longer = longest / len(crop)
            full = (len(group) + 1) * longest > tokens_per_forward
            if full or (sparing and (longer > 2 or (longer > 1.2 and tokens >= PART_TOKENS))):
                yield group
                group = []
        group.append(crop)
    if group:
        yield group


def check_repeatable(documents: Iterable[str | Document]) -> None:
    """Raise DataError for an iterator that can be read only once."""
    if isinstance(documents, str) or iter(documents) is documents:
        raise DataError(
            "documents are read again for every pass and after an interruption: "
            "give a list, or an object whose __iter__ begins anew, not an iterator or one string"
        )


class CropSource:
    """Batches of a run. ``heldout``: how many documents at the beginning are kept apart.

    ``few_parts``: crops of different lengths are padded to one where that makes fewer parts of a step.
    """

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
        mask_id: int | None = None,
        few_parts: bool = False,
    ) -> None:
        check_repeatable(documents)
        assert settings.length is not None, "see settings.fitted"
        self.documents, self.tokenizer, self.special, self.settings = documents, tokenizer, special, settings
        self.heldout, self.rank, self.processes, self.mask_id = heldout, rank, processes, mask_id
        self.few_parts = few_parts
        self.length, self.step_tokens = settings.length, max(settings.tokens_per_step, settings.length)
        self.tokens = 0  # that all processes have trained on, up to the last step that was handed out
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
        pool: list[list[int]] = []
        crops = self._crops()
        waiting = step = self.tokens = 0
        while True:
            while waiting < SHUFFLED_STEPS * self.step_tokens * self.processes:
                crop = next(crops)
                pool.append(crop)
                waiting += len(crop)
            batches = [self._draw(pool, picks) for _ in range(self.processes)]
            drawn = sum(len(crop) for batch in batches for crop in batch)
            waiting -= drawn
            self.tokens += drawn
            if step >= start:
                yield self._parts(batches[self.rank], step)
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

    def _groups(self, batch: list[list[int]]) -> list[list[list[int]]]:
        limit = self.settings.tokens_per_forward
        groups = list(grouped(batch, limit))
        return min(groups, list(grouped(batch, limit, sparing=False)), key=len) if self.few_parts else groups

    def _parts(self, batch: list[list[int]], step: int) -> list[Crops]:
        pad_id = self.tokenizer.pad_token_id or 0
        parts = [stack(group, pad_id) for group in self._groups(batch)]
        if self.mask_id is None:
            return parts
        seed = random.Random(f"{self.settings.seed} {step} {self.rank}").getrandbits(63)
        generator = torch.Generator().manual_seed(seed)
        return [self._mask(part, generator) for part in parts]

    def _mask(self, part: Crops, generator: torch.Generator) -> Crops:
        """Hide some tokens of text, at least one, behind the mask token."""
        assert self.mask_id is not None
        before, after = len(self.special.prefix), len(self.special.suffix)
        places = torch.arange(part.input_ids.shape[1])
        ends = torch.tensor(part.lengths)[:, None] - after
        chance = torch.rand(part.input_ids.shape, generator=generator)
        chance = chance.masked_fill((places < before) | (places >= ends), 2.0)
        hidden = chance <= max(self.settings.mask_fraction, float(chance.min()))
        ids = part.input_ids.masked_fill(hidden, self.mask_id)
        return part._replace(input_ids=ids, masked=hidden.flatten().nonzero().squeeze(1))

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
            for content in self._contents(texts):
                for piece in self._cut(content, cuts):
                    found = True
                    yield self.special.around(piece)
            if not found:
                raise DataError(
                    f"no text to train on: beside {self.heldout} held-out documents none has {SHORTEST} tokens or more "
                    "(more documents, or a smaller heldout_documents)"
                )
            epoch += 1

    def _contents(self, texts: Iterator[str]) -> Iterator[list[int]]:
        """Token ids of each document, or of documents joined until they fill ``length`` tokens."""
        separator = [self.tokenizer.sep_token_id] if self.tokenizer.sep_token_id is not None else []
        joined: list[int] = []
        while some := list(islice(texts, DOCUMENTS_AT_ONCE)):
            for ids in content_ids(self.tokenizer, some):
                if not self.settings.pack:
                    yield ids
                    continue
                joined += [*separator, *ids] if joined else ids
                if len(joined) >= self.length:
                    yield joined
                    joined = []
        if joined:
            yield joined

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
