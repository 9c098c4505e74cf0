"""``longform bound``: the theorems' k, how often random projections fail, and the error of rank k, into a folder.

Every sample of the trials and every k of every layer is a file, written when it is complete; called again, only what
is missing is done, and pictures and report are made anew.
"""

import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from longform.data.progress import hidden
from longform.data.text import Document
from longform.errors import ConfigurationError, require
from longform.runs.facts import environment
from longform.runs.folder import open_run_folder
from longform.runs.output import sole_output
from longform.runs.subject import subject_identity
from longform_lab.bounds.attention_samples import (
    AttentionSample,
    aligned_sample,
    captured_samples,
    random_sample,
    spread,
    texts_of_length,
)
from longform_lab.bounds.compression_error import ErrorRow, compression_rows, decomposed
from longform_lab.bounds.monte_carlo import Cell, failure_cells
from longform_lab.bounds.report import report_bounds
from longform_lab.bounds.results import BoundResult, read_part, write_part, write_records
from longform_lab.bounds.settings import BoundSettings
from longform_lab.bounds.theorems import Guarantee, guarantees, theorem_1, theorem_2
from longform_lab.spectrum.capture import attention_modules
from longform_lab.spectrum.settings import OpenedModel

IDENTITY, PARTS = "bound.json", "parts"
TOGETHER = 2**30  # bytes of logits that are in memory at once


@dataclass(frozen=True)
class BoundSubject:
    """A model that is open and texts for it, which can be read from the beginning more than once; with their names.

    ``source``: the hub name or folder that the model was opened from.
    """

    model: str
    texts: str
    opened: OpenedModel
    documents: Iterable[Document | str]
    source: str

    def ids(self, length: int, count: int) -> Tensor:
        """Token ids (count, n)."""
        if length > self.opened.limit:
            raise ConfigurationError(
                f"length is {length:,}, but {self.model} takes {self.opened.limit:,} tokens: lower --length"
            )
        return texts_of_length(self.opened.tokenizer, self.documents, length=length, count=count)

    def layers(self, settings: BoundSettings) -> list[int]:
        """The layers looked at, 0 the first."""
        attention_modules(self.opened.model)  # refuses what has none
        return spread(self.opened.model.config.num_hidden_layers, settings.layer_count)

    def head_size(self) -> int:
        """d of the model's heads."""
        config = self.opened.model.config
        return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def all_guarantees(settings: BoundSettings, head_size: int) -> list[Guarantee]:
    """Every form of k for every n and ε."""
    return [
        found
        for length in settings.length
        for epsilon in settings.epsilon
        for found in guarantees(length, head_size, epsilon)
    ]


def run_bound(
    subject: BoundSubject | None, settings: BoundSettings, *, output: Path, progress: bool = False
) -> BoundResult:
    """Compute and measure into ``output``; without a ``subject`` on random maps alone, and without the error.

    Raises ConfigurationError where the folder holds something else (other settings, another model or corpus),
    DataError where there are too few texts of n tokens, MissingDependencyError without matplotlib.
    """
    require("matplotlib", extra="train")
    inputs = () if subject is None else (subject.source, subject.documents)
    with sole_output(output, inputs=inputs, folder=True) as folder:
        return _run(subject, settings, folder, progress)


def _run(subject: BoundSubject | None, settings: BoundSettings, output: Path, progress: bool) -> BoundResult:
    model, texts = (None, None) if subject is None else (subject.model, subject.texts)
    about = {"texts": texts, **asdict(settings), "model": None}
    if subject is not None:
        about |= subject_identity(subject.source, subject.documents)
    open_run_folder(output, IDENTITY, about, what="bounds")
    if subject is not None:
        _try(subject, settings)
    _check_memory(max(settings.length))
    device = torch.device("cpu") if subject is None else subject.opened.model.device
    facts = environment(device, torch.float32)
    head_size = settings.head_size if subject is None else subject.head_size()
    cells = [cell for length in settings.length for cell in _trials(subject, settings, length, output, progress)]
    errors = [] if subject is None else _errors(subject, settings, output, progress)
    result = BoundResult(model, texts, all_guarantees(settings, head_size), cells, errors)
    write_records(result, {"settings": asdict(settings), **facts}, output)
    report_bounds(result, settings, facts, output)
    return result


def _check_memory(length: int) -> None:
    """Raise ConfigurationError where the trials' maps do not fit into the machine: 4 maps, their logits and errors."""
    needed, there = 3 * 4 * 4 * length**2, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there:
        raise ConfigurationError(
            f"length={length:,}: the trials' maps take {needed / 2**30:,.0f} GiB, the machine has "
            f"{there / 2**30:,.0f} GiB: a smaller --length, or leave --output out, which prints k alone"
        )


def _try(subject: BoundSubject, settings: BoundSettings) -> None:
    """Raise what a model without logits and too few texts raise, before the trials and not after them."""
    for length in settings.length:
        subject.ids(length, settings.trial_texts)
    ids = subject.ids(max(settings.length), settings.fit_texts + settings.held_out_texts)
    list(captured_samples(subject.opened.model, ids[:1], layers=subject.layers(settings)[:1], head_count=1))


def _trials(
    subject: BoundSubject | None, settings: BoundSettings, length: int, output: Path, progress: bool
) -> list[Cell]:
    """The Monte-Carlo cells at one n."""
    head_size = settings.head_size if subject is None else subject.head_size()
    slots = {*settings.trial_slots}
    for epsilon in settings.epsilon:
        slots |= {theorem_1(length, epsilon).k, theorem_2(length, head_size, epsilon).k}
    layers = [] if subject is None else subject.layers(settings)
    names = ["random", "aligned", *(f"layer {layer + 1}" for layer in layers)]
    paths = {name: output / PARTS / f"trials-{length}-{name.replace(' ', '-')}.jsonl" for name in names}
    missing = [name for name, path in paths.items() if not path.exists()]
    unseen = hidden(progress and bool(missing))
    with tqdm(total=len(missing) * len(slots), desc=f"trials at n = {length}", unit="k", disable=unseen) as bar:
        for sample in _samples(subject, settings, length, head_size, missing):
            cells = failure_cells(
                sample,
                slots=sorted(slots),
                epsilons=settings.epsilon,
                trials=settings.trials,
                generator=_generator(settings, f"{sample.name} {length}"),
                advance=bar.update,
            )
            write_part(paths[sample.name], cells)
    return [cell for path in paths.values() for cell in read_part(path, Cell)]


def _samples(
    subject: BoundSubject | None, settings: BoundSettings, length: int, head_size: int, missing: list[str]
) -> Iterator[AttentionSample]:
    for name, made in (("random", random_sample), ("aligned", aligned_sample)):
        if name in missing:
            generator = _generator(settings, name)
            yield made(length=length, head_size=head_size, generator=generator)
    wanted = [] if subject is None else [x for x in subject.layers(settings) if f"layer {x + 1}" in missing]
    if subject is not None and wanted:
        ids = subject.ids(length, settings.trial_texts)
        yield from captured_samples(subject.opened.model, ids, layers=wanted, head_count=settings.head_count)


def _errors(subject: BoundSubject, settings: BoundSettings, output: Path, progress: bool) -> list[ErrorRow]:
    """The error against k, a part a layer and k, at the largest n."""
    length, layers = max(settings.length), subject.layers(settings)
    paths = {
        (layer, k): output / PARTS / f"error-layer-{layer + 1}-k-{k}.jsonl"
        for layer in layers
        for k in sorted(settings.projected_length)
    }
    missing = [place for place, path in paths.items() if not path.exists()]
    count = settings.fit_texts + settings.held_out_texts
    if missing:
        ids = subject.ids(length, count)
        heads = subject.opened.model.config.num_attention_heads
        size = 4 * count * min(heads, settings.head_count) * length**2
        behind = sorted({layer for layer, _ in missing})
        at_once = max(1, TOGETHER // size)
        with tqdm(total=len(missing), desc="error against k", unit="k", disable=hidden(progress)) as bar:
            for start in range(0, len(behind), at_once):
                for sample in captured_samples(
                    subject.opened.model, ids, layers=behind[start : start + at_once], head_count=settings.head_count
                ):
                    _layer_errors(sample, settings, paths, bar)
    return [row for path in paths.values() for row in read_part(path, ErrorRow)]


def _layer_errors(
    sample: AttentionSample, settings: BoundSettings, paths: Mapping[tuple[int, int], Path], bar: Any
) -> None:
    apart = slice(settings.held_out_texts), slice(settings.held_out_texts, None)
    held_out, fit = (sample._replace(logits=sample.logits[at], values=sample.values[at]) for at in apart)
    parts = decomposed(held_out)
    for (layer, k), path in paths.items():
        if layer == sample.layer and not path.exists():
            write_part(path, compression_rows(fit, held_out, parts, k, settings))
            bar.update()


def _generator(settings: BoundSettings, name: str) -> torch.Generator:
    return torch.Generator().manual_seed(settings.seed + zlib.crc32(name.encode()))
