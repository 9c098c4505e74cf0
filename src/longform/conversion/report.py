"""The report of a conversion, what became of every tensor, and the folder that it is written to."""

import contextlib
import json
import math
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from longform.choices import facts_of
from longform.digests import foreign
from longform.errors import ConfigurationError, some
from longform.files import read_json, sole_output
from longform.functional.slots import base_slot_size, divisors
from longform.pretrained import model_card as model_card
from longform.pretrained.model_card import Block, Code, Heading, facts_table

COPIED, EXTENDED, CUT, TIED, BUFFER, DROPPED = "copied", "extended", "cut", "tied duplicate", "buffer", "dropped"
ACTIONS = (COPIED, EXTENDED, CUT, TIED, BUFFER, DROPPED)


@dataclass(frozen=True)
class TensorRecord:
    """One tensor of the source: its name, where it went (or None), what was done and why."""

    source: str
    target: str | None
    action: str
    shape: tuple[int, ...]
    note: str = ""


@dataclass(frozen=True)
class NewTensor:
    """One tensor of the Longform that no tensor of the source fills, and why."""

    name: str
    shape: tuple[int, ...]
    reason: str


@dataclass
class ConversionReport:
    """The account of a conversion. Lengths are in tokens; ``parameters`` counts each shared tensor once.

    ``adapter``: the name of the one that is part of the weights.
    """

    source: str
    family: str
    task: str
    model_class: str
    source_length: int
    max_length: int
    positions: str
    parameters: int
    dtype: str
    options: dict[str, Any]
    tensors: list[TensorRecord] = field(default_factory=list)
    new: list[NewTensor] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    adapter: str | None = None

    def __str__(self) -> str:
        return self.summary()

    def counts(self) -> dict[str, int]:
        """How many source tensors had each action, in the order of ACTIONS."""
        found = Counter(record.action for record in self.tensors)
        return {action: found[action] for action in ACTIONS}

    def summary(self) -> str:
        """A few lines for people."""
        counts = ", ".join(f"{count} {action}" for action, count in self.counts().items() if count)
        lines = [
            f"{self.model_class} ({self.task}) from {self.family}: {self.source}",
            f"  length      {self.max_length:,} tokens instead of {self.source_length:,} (positions: {self.positions})",
            f"  attention   {self._attention()}",
            f"  tensors     {counts} of {len(self.tensors)}",
            f"  parameters  {self.parameters:,} ({self.dtype})",
        ]
        dropped = ((record.note, record.source) for record in self.tensors if record.action == DROPPED)
        lines += [f"  dropped     {said}" for said in _by_reason(dropped)]
        lines += [f"  new         {said}" for said in _by_reason((tensor.reason, tensor.name) for tensor in self.new)]
        return "\n".join([*lines, *(f"  note        {note}" for note in self.notes)])

    def to_json(self, files: Mapping[str, str] | None = None) -> str:
        """The whole report as JSON text; ``files``: what was written with it (longform.digests.digests)."""
        found = asdict(self) | {"counts": self.counts()} | ({} if files is None else {"files": dict(files)})
        return json.dumps(found, indent=2, ensure_ascii=False) + "\n"

    def card(self, config: Mapping[str, Any], *, auto: str, loader: str | None) -> str:
        """The model card of the result, whose configuration is ``config``.

        ``auto``: the Auto class that loads it; ``loader``: the class of sentence-transformers that does, if any.
        """
        name = self.source if model_card.is_hub_name(self.source) else Path(self.source).name
        blocks: list[Block] = [
            f"`{name}`, converted with Longform: its weights, positions for {self.max_length:,} tokens instead of "
            f"{self.source_length:,}, and attention that takes time linear in the length of a text. "
            f"{self._beside_the_source()}",
            Heading("Architecture"),
            facts_table(model_card.architecture(config)),
            Heading("Use"),
            Code(model_card.loading(auto, loader), "python"),
            "The licence is that of the source: say it here before you publish. conversion_report.json has the account "
            "of every tensor.",
        ]
        library = "transformers" if loader is None else "sentence-transformers"
        return model_card.model_card(f"{name}, {self.max_length:,} tokens", blocks, base=self.source, library=library)

    def _beside_the_source(self) -> str:
        """Sentences: what is the source's own result, and what was changed or trained."""
        healing = (
            "Conversion trains nothing: `longform distill` lets the original teach the result, which long texts need."
        )
        if self.adapter is not None:
            own = f"The adapter `{self.adapter}`, which was trained for long texts, is part of the weights."
        else:
            exact = 0 if self.family == "Longform" else exact_tokens(self.options, self.max_length)
            own = f"Texts of up to {exact:,} tokens get the source's own hidden states. {healing}" if exact else healing
        return " ".join([own, *(f"{note[0].upper()}{note[1:]}." for note in self.notes if "vector" in note)])

    def _attention(self) -> str:
        given = self.options
        slots = f"projection {given['projection']}, projected_length {given['projected_length']}"
        if given["attention_window"] is None:
            return f"{slots}, sharing {given['projection_sharing']}"
        exact = f"{given['attention_window']} tokens on each side, selected_slots {given['selected_slots']}"
        return f"{exact}, {slots}, memory_budget {given['memory_budget']}"


def exact_tokens(options: Mapping[str, Any], max_length: int) -> int:
    """The longest text, in tokens, that a conversion with these ``options`` changes nothing for; 0: there is none.

    A text that a window reaches across on either side is attended to in full, and so is one whose other slots are all
    selected. So is one without more tokens than there are slots, where these are means or maxima: each is a token then,
    of full weight while the budget has room for all.
    """
    window, budget, selected = (options[name] for name in ("attention_window", "memory_budget", "selected_slots"))
    reached, slots = 0 if window is None else 2 * window, int(np.ravel(options["projected_length"]).min())
    base = base_slot_size(max_length=max_length, slots=slots)
    if facts_of(options["projection"]).keeps_tokens:
        reached = max(reached, int(min(slots, math.inf if budget is None else budget)))
        sizes = divisors(base)
    else:
        sizes = (base,)
    while selected and reached < max_length:
        size = next((size for size in sizes if size * slots > reached), base)
        if (-(-(reached + 1) // window) - 2) * (window // size) > selected:  # far slots of the last block
            break
        reached += 1
    return reached


def _by_reason(tensors: Iterable[tuple[str, str]]) -> list[str]:
    """A line for each reason of (reason, name) pairs: some of the names, and the reason."""
    grouped: dict[str, list[str]] = {}
    for reason, name in tensors:
        grouped.setdefault(reason, []).append(name)
    return [
        f"{', '.join(names) if len(names) <= 4 else f'{names[0]}, ... {names[-1]} ({len(names)} tensors)'}: {reason}"
        for reason, names in grouped.items()
    ]


OWN_FILE = "conversion_report.json"


@contextlib.contextmanager
def conversion_folder(folder: Path, source: Any, *, overwrite: bool) -> Generator[Path]:
    """``folder`` while it alone is written, its link followed.

    Raises ConfigurationError as ``sole_output`` does, and where the folder holds anything, unless it is to
    ``overwrite`` an earlier conversion and has nothing else.
    """
    with sole_output(folder, inputs=(source,), folder=True) as place:
        if place.is_dir() and any(place.iterdir()):
            if not overwrite:
                raise ConfigurationError(f'"{folder}" is not empty: give another folder, or overwrite=True (--restart)')
            _check_is_conversion(place)
        yield place


def _check_is_conversion(folder: Path) -> None:
    """Raise ConfigurationError unless the folder is as a conversion left it."""
    report = folder / OWN_FILE
    if not report.is_file():
        raise ConfigurationError(
            f'"{folder}" is not empty and not the result of a conversion (it has no {OWN_FILE}), so it is not '
            "overwritten: give another folder"
        )
    written = read_json(report, way_out="give another folder").get("files", {})
    if others := foreign(folder, written, but=(OWN_FILE,)):
        raise ConfigurationError(
            f'"{folder}" is not overwritten, since not all in it is as the conversion left it ({some(others)}): move '
            "that away, or give another folder"
        )
