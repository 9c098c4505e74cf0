"""The mean spectrum of an encoder's attention over a corpus, in memory that does not grow with the texts.

Axes: B texts of a batch, n tokens, L layers, h heads, N the longest text, m valid tokens of a text.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from longform.errors import ConfigurationError, DataError
from longform_lab.spectrum.capture import captured_maps
from longform_lab.spectrum.running_sums import RunningSums, SumsFile
from longform_lab.spectrum.settings import OpenedModel, SpectrumSettings
from longform_lab.spectrum.singular_values import singular_values, valid_part
from longform_text.data.batching import Batch, tokenize, tokenized_batches
from longform_text.data.progress import hidden
from longform_text.data.text import Document

COUNTS = ("texts", "tokens", "longest", "shortest", "passed_over", "cut")


@dataclass(frozen=True)
class Spectrum:
    """Means over ``texts``; ``tokens``, ``longest`` and ``shortest`` count valid tokens, special ones included.

    ``cumulative``: share of the sum kept by the first j singular values, float64 (L, h, N); a text of m < N tokens
    has 1 from its m-th on. ``deviation``: its standard deviation over texts (L, h, N). ``effective_rank`` (L, h).
    ``passed_over``: texts below ``min_tokens``; ``cut``: texts that were longer than ``max_length``.
    """

    cumulative: Tensor
    deviation: Tensor
    effective_rank: Tensor
    texts: int
    tokens: int
    longest: int
    shortest: int
    passed_over: int
    cut: int


@dataclass
class TextCounts:
    """Counts of texts; grow while they are read. ``kept``: the first texts' ids, for the comparison of heads."""

    wanted: int = 0
    texts: int = 0
    tokens: int = 0
    longest: int = 0
    shortest: int = 2**62
    passed_over: int = 0
    cut: int = 0
    kept: list[Tensor] = field(default_factory=list)

    def take(self, ids: Tensor, truncated: int) -> None:
        """Count one text's ids (m,)."""
        self.texts += 1
        self.tokens += len(ids)
        self.longest, self.shortest = max(self.longest, len(ids)), min(self.shortest, len(ids))
        self.cut += truncated > 0
        if len(self.kept) < self.wanted:
            self.kept.append(ids.clone())


def measure_spectrum(
    opened: OpenedModel,
    documents: Iterable[Document | str],
    settings: SpectrumSettings,
    *,
    progress: bool = False,
    name: str = "spectrum",
    kept: SumsFile | None = None,
) -> tuple[Spectrum, list[Tensor]]:
    """The spectrum of ``opened`` on ``documents``, and the token ids (m,) of the first ``head_texts`` texts.

    Maps are those of each text's valid tokens alone. ``kept``: where sums are saved meanwhile, and gone on with: texts
    that they hold are read again, but not measured. Raises ConfigurationError where the model takes fewer tokens
    than ``max_length`` or has no attention weights, DataError where there is no text or one has too few tokens.
    """
    if settings.max_length > opened.limit:
        raise ConfigurationError(
            f"{name}: max_length is {settings.max_length:,}, but the model takes {opened.limit:,} tokens: lower it"
        )
    counts = TextCounts(wanted=settings.head_texts)
    sums, done = (RunningSums(settings.max_length), 0) if kept is None else kept.load(settings.max_length)
    with tqdm(total=settings.texts, desc=name, unit="text", disable=hidden(progress)) as bar:
        batches = text_batches(opened.tokenizer, documents, settings, counts)
        for number, batch in enumerate(batches, start=1):
            if number > done:
                add_batch(opened.model, batch, sums)
                if kept is not None:
                    kept.keep(sums, number)
            bar.update(len(batch.indices))
    if not counts.texts:
        raise DataError(_nothing(counts, settings, name))
    return _means(sums, counts), counts.kept


def text_batches(
    tokenizer: Any, documents: Iterable[Document | str], settings: SpectrumSettings, counts: TextCounts
) -> Iterator[Batch]:
    """Batches of about one longest text each, without the texts that are passed over; ``counts`` grows."""
    own = tokenizer.num_special_tokens_to_add()
    wanted = islice(_long_enough(documents, tokenizer, settings.min_tokens, counts), settings.texts)
    for batch in tokenized_batches(
        wanted, tokenizer, max_length=settings.max_length, max_tokens_per_batch=settings.max_length
    ):
        for row, (place, tokens) in enumerate(zip(batch.indices, batch.tokens, strict=True)):
            if tokens - own < 2:
                raise DataError(
                    f"text {place:,} (the first is 0) has {max(0, tokens - own)} tokens of its own: there is no "
                    f"attention to look at. Take it out, or pass such texts over with min_tokens={own + 2} "
                    f"(--min-tokens {own + 2}), into another folder (--output)"
                )
            counts.take(batch.input_ids[row, :tokens], batch.truncated[row])
        yield batch


def _long_enough(
    documents: Iterable[Document | str], tokenizer: Any, least: int | None, counts: TextCounts
) -> Iterator[Document | str]:
    """The documents of ``least`` tokens or more, special ones included; the others are counted."""
    for document in documents:
        if least is not None and len(tokenize([document], tokenizer, max_length=None)[0].input_ids) < least:
            counts.passed_over += 1
        else:
            yield document


def add_batch(model: Any, batch: Batch, sums: RunningSums) -> None:
    """Add the spectra of one batch's texts."""
    device = model.device
    mask = batch.attention_mask.bool()
    every = captured_maps(model, batch.input_ids.to(device), batch.attention_mask.to(device))
    for layer, maps in enumerate(every):
        for row, valid in enumerate(mask):
            part = valid_part(maps[row], None if valid.all() else valid.to(device))
            sums.add(layer, singular_values(part))


def _means(sums: RunningSums, counts: TextCounts) -> Spectrum:
    mean = torch.stack(sums.curves) / counts.texts
    variance = (torch.stack(sums.squares) / counts.texts - mean**2).clamp(min=0.0)
    rank = torch.stack(sums.ranks) / counts.texts
    return Spectrum(mean, variance.sqrt(), rank, **{name: getattr(counts, name) for name in COUNTS})


def _nothing(counts: TextCounts, settings: SpectrumSettings, name: str) -> str:
    if counts.passed_over:
        return (
            f"{name}: all {counts.passed_over:,} texts are shorter than min_tokens={settings.min_tokens}: give longer "
            "texts, or look at shorter ones with longform spectrum and a lower --min-tokens"
        )
    return f"{name}: the corpus has no text"
