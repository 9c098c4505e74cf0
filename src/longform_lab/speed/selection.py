"""Selections of cells: all combinations of the lengths, sizes, dtypes ... that are named."""

from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any

import torch

from longform.errors import ConfigurationError
from longform.functional.conditions import native_bfloat16
from longform_lab.speed.shapes import Cell
from longform_text.facts import hardware
from longform_text.settings import check_least

LENGTHS = tuple(2**power for power in range(7, 17))
LONGEST = 1_048_576  # Longform alone
FULL = "full"
AUTO = "auto"


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The grid is all combinations; ``memory`` and ``cell_seconds`` are those of its Effort.

    ``competitors``: names, families (ours, full, peer, sparse), or "all".
    """

    lengths: tuple[int, ...]  # n, tokens of a text
    sizes: tuple[str, ...] = ("minilm",)  # "minilm" (6 layers x 384), "base" (12 x 768)
    dtypes: tuple[str, ...] = (AUTO,)  # "float32", "bfloat16"; "auto": bfloat16 where the device multiplies it
    modes: tuple[str, ...] = ("eager",)  # "eager", "compiled"
    passes: tuple[str, ...] = ("inference",)  # "inference", "train"
    batches: tuple[str, ...] = ("1",)  # texts in a pass; "full" fills ``batch_tokens``
    slots: tuple[int, ...] = (256,)  # k of pure Linformers; n / 2 where that is less
    competitors: tuple[str, ...] = ("ours-window", "ours-linear", "sdpa", "unfused", "lucidrains", "tatp22")
    batch_tokens: int = 16_384  # of a full batch
    memory: bool = True
    cell_seconds: float = 300.0


def with_choices(selection: Selection, **chosen: Any) -> Selection:
    """The selection with other values where something was chosen: not None, 0, "" or an empty list."""
    given = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in chosen.items()
        if value is False or value
    }
    return replace(selection, **given)


def cells_of(selection: Selection, *, device: str, threads: int) -> list[Cell]:
    """The cells, short texts first. Every cell once.

    Raises ConfigurationError for values that do not exist.
    """
    for field in fields(selection):
        if field.name != "memory" and not getattr(selection, field.name):
            raise ConfigurationError(f"{field.name} is empty: there is nothing to measure")
    check_least(selection, batch_tokens=1)
    fast = "bfloat16" if native_bfloat16(torch.device(device)) else "float32"
    found = [
        Cell(
            size=size, length=length, batch=texts_of(batch, length, selection.batch_tokens), slots=slots,
            dtype=fast if dtype == AUTO else dtype, mode=mode, work=work, device=device, threads=threads,
        )
        for size, work, dtype, mode, batch, length, slots in product(
            selection.sizes, selection.passes, selection.dtypes, selection.modes, selection.batches,
            sorted(selection.lengths), selection.slots,
        )
    ]  # fmt: skip
    return list(dict.fromkeys(replace(cell, slots=cell.shape.slots) for cell in found))


def texts_of(batch: str | int, length: int, batch_tokens: int) -> int:
    """Texts in a pass: a number, or as many as ``batch_tokens`` holds, at least one."""
    if str(batch) == FULL:
        return max(1, batch_tokens // length)
    try:
        return int(batch)
    except ValueError as error:
        raise ConfigurationError(f'batches="{batch}" must be numbers of texts, or "{FULL}"') from error


def chosen_threads(threads: int | None) -> int:
    """CPU threads: as many as asked for, or as the process has cores (OMP_NUM_THREADS where that is set)."""
    if threads is None:
        return torch.get_num_threads()
    cores = hardware()["cores"] or 1
    if not 1 <= threads <= cores:
        raise ConfigurationError(f"threads={threads} must be between 1 and the {cores} cores of this process")
    return threads
