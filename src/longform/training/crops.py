"""Documents -> crops of mixed lengths -> the batches of each optimiser step; the same for the same seed.

A step's batch depends on the documents, the settings and its number alone, so an interrupted run finds its place by
counting.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from longform.data.text import Document
from longform.errors import ConfigurationError, DataError
from longform.training.settings import DistillationSettings
from longform.training.teacher import SpecialTokens

DOCUMENTS_AT_ONCE = 32  # tokenised together
SHUFFLED_STEPS = 32  # steps' worth of crops among which a batch is drawn
SIZES_PER_OCTAVE = 4  # batches mix lengths that differ by less than 2 ** (1 / 4), so at most 16 % is padding
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


def stack(crops: Sequence[Sequence[int]], pad_id: int) -> Crops:
    """Pad token ids on the right to the longest."""
    lengths = [len(crop) for crop in crops]
    ids = torch.full((len(crops), max(lengths)), pad_id)
    for row, crop in enumerate(crops):
        ids[row, : len(crop)] = torch.tensor(crop)
    padded = min(lengths) < ids.shape[1]
    mask = (torch.arange(ids.shape[1]) < torch.tensor(lengths)[:, None]).long() if padded else None
    return Crops(ids, mask, lengths)


def text_of(document: str | Document) -> str:
    """The text of a document, or the string itself."""
    return document if isinstance(document, str) else document.text


def check_repeatable(documents: Iterable[str | Document]) -> None:
    """Raise DataError for an iterator that can be read only once."""
    if isinstance(documents, str) or iter(documents) is documents:
        raise DataError(
            "documents are read again for every pass and after an interruption: "
            "give a list, or an object whose __iter__ begins anew, not an iterator or one string"
        )


class CropSource:
    """All batches of a run. ``heldout``: how many documents at the beginning are kept apart."""

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
    ) -> None:
        check_repeatable(documents)
        self.documents, self.tokenizer, self.special, self.settings = documents, tokenizer, special, settings
        self.heldout, self.rank, self.processes, self.mask_id = heldout, rank, processes, mask_id
        self.sizes = _sizes(settings.length, settings.min_length)
        self.step_tokens = max(settings.tokens_per_step, settings.length)
        self.tokens = 0  # that all processes have trained on, up to the last step that was handed out
        if settings.min_length - special.count < SHORTEST:
            raise ConfigurationError(
                f"min_length={settings.min_length} must be at least {SHORTEST + special.count}: "
                f"{special.count} special tokens and {SHORTEST} of text"
            )

    def heldout_crops(self) -> list[list[int]]:
        """The documents kept apart, each from its beginning up to ``length`` tokens."""
        texts = [text_of(document) for document in islice(self._ordered(0), self.heldout)]
        return self.whole_crops(texts)

    def whole_crops(self, texts: Sequence[str]) -> list[list[int]]:
        """Each text from its beginning up to ``length`` tokens; texts with almost nothing in them are left out."""
        content = self.settings.length - self.special.count
        return [self._finish(ids[:content]) for ids in self._tokenized(texts) if len(ids) >= SHORTEST]

    def steps(self, start: int = 0) -> Iterator[list[Crops]]:
        """From step ``start`` on, without end: the parts that make up the batch of each step of this process."""
        picks = random.Random(f"batches {self.settings.seed}")
        pool: dict[int, list[list[int]]] = {}
        crops = self._crops()
        waiting = step = turn = self.tokens = 0
        while True:
            while waiting < SHUFFLED_STEPS * self.step_tokens * self.processes:
                crop = next(crops)
                pool.setdefault(self._size_class(len(crop)), []).append(crop)
                waiting += len(crop)
            batch = self._draw(pool, picks)
            waiting -= sum(map(len, batch))
            self.tokens += sum(map(len, batch))
            if turn % self.processes == self.rank:
                if step >= start:
                    yield self._parts(batch, step)
                step += 1
            turn += 1

    def _draw(self, pool: dict[int, list[list[int]]], picks: random.Random) -> list[list[int]]:
        """Crops of one size, the size drawn by how many tokens wait in it."""
        waiting = sorted(size for size, crops in pool.items() if crops)
        full = [size for size in waiting if len(pool[size]) >= self._rows(size)]
        sizes = full or waiting
        size = picks.choices(sizes, weights=[size * len(pool[size]) for size in sizes])[0]
        crops = pool[size]
        batch = []
        for _ in range(min(len(crops), self._rows(size))):
            place = picks.randrange(len(crops))
            crops[place], crops[-1] = crops[-1], crops[place]
            batch.append(crops.pop())
        return batch

    def _rows(self, size: int) -> int:
        return max(1, self.step_tokens // size)

    def _parts(self, batch: list[list[int]], step: int) -> list[Crops]:
        rows = max(1, self.settings.tokens_per_forward // max(map(len, batch)))
        pad_id = self.tokenizer.pad_token_id or 0
        parts = [stack(batch[row : row + rows], pad_id) for row in range(0, len(batch), rows)]
        if self.mask_id is None:
            return parts
        generator = torch.Generator().manual_seed(hash_seed(self.settings.seed, step, self.rank))
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

    def _size_class(self, length: int) -> int:
        return next(size for size in self.sizes if size >= length)

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
                    yield self._finish(piece)
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
            for ids in self._tokenized(some):
                if not self.settings.pack:
                    yield ids
                    continue
                joined += [*separator, *ids] if joined else ids
                if len(joined) >= self.settings.length:
                    yield joined
                    joined = []
        if joined:
            yield joined

    def _tokenized(self, texts: Sequence[str]) -> list[list[int]]:
        if not texts:
            return []
        return self.tokenizer(list(texts), add_special_tokens=False, return_attention_mask=False, verbose=False)[
            "input_ids"
        ]

    def _cut(self, content: list[int], cuts: random.Random) -> Iterator[list[int]]:
        """Consecutive pieces with lengths from the mix; what is too short for the mix, and not the whole, is left."""
        lengths = [length - self.special.count for length in _mix(self.settings.length, self.settings.min_length)]
        start = 0
        while len(content) - start >= lengths[-1]:
            fitting = [length for length in lengths if length <= len(content) - start]
            length = cuts.choices(fitting, weights=[1 / length for length in fitting])[0]
            yield content[start : start + length]
            start += length
        if start == 0 and len(content) >= SHORTEST:
            yield content

    def _finish(self, content: Sequence[int]) -> list[int]:
        return [*self.special.prefix, *content, *self.special.suffix]


def hash_seed(*numbers: int) -> int:
    """One seed from several numbers."""
    return random.Random(" ".join(map(str, numbers))).getrandbits(63)


def _mix(length: int, min_length: int) -> list[int]:
    """length, length / 2, length / 4 ... down to min_length."""
    lengths = [length]
    while lengths[-1] // 2 >= min_length:
        lengths.append(lengths[-1] // 2)
    return lengths


def _sizes(length: int, min_length: int) -> list[int]:
    """Rising upper bounds of the lengths that share a batch; each length of the mix is one."""
    sizes = {round(length / 2 ** (part / SIZES_PER_OCTAVE)) for part in range(SIZES_PER_OCTAVE * length.bit_length())}
    return sorted(sizes | set(_mix(length, min_length)))
