"""Which cells are measured: presets, and anything else from the command line."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any

import torch

from longform.benchmarking.competitors import FAMILIES
from longform.benchmarking.shapes import Cell
from longform.errors import ConfigurationError

LENGTHS = tuple(2**power for power in range(7, 17))
LONGEST = 1_048_576  # Longform alone
FULL = "full"
FLOORS = ("all", "none")


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The grid is all combinations.

    Args:
        lengths: n, tokens of a text.
        sizes: "minilm" (6 layers x 384), "base" (12 x 768).
        dtypes: "float32", "bfloat16", "int8".
        modes: "eager", "compiled".
        passes: "inference", "train".
        batches: texts in a pass; "full" fills ``batch_tokens``.
        slots: k of pure Linformers; n / 2 where that is less.
        competitors: names, families (ours, order, full, peer, sparse), or "all".
        batch_tokens: tokens of a full batch.
        floors: whose floors are timed: "all", "none", or a family.
        memory: whether peak memory is measured, by a pass in another process.
        cell_seconds: for all passes of one competitor in one cell; fewer rounds are run, or none, to keep it.
    """

    lengths: tuple[int, ...]
    sizes: tuple[str, ...] = ("minilm",)
    dtypes: tuple[str, ...] = ("bfloat16",)
    modes: tuple[str, ...] = ("eager",)
    passes: tuple[str, ...] = ("inference",)
    batches: tuple[str, ...] = ("1",)
    slots: tuple[int, ...] = (256,)
    competitors: tuple[str, ...] = ("ours-window", "ours-linear", "sdpa", "unfused", "lucidrains", "tatp22")
    batch_tokens: int = 16_384
    floors: str = "all"
    memory: bool = True
    cell_seconds: float = 300.0


PEERS = ("lucidrains", "tatp22")
MAIN = ("ours-window", "ours-linear", "sdpa")
BARS = Selection(lengths=(512,), sizes=("base",), competitors=MAIN, floors="ours", memory=False)

# A preset is stages, one after another; what says most comes first.
PRESETS: dict[str, tuple[Selection, ...]] = {
    # make bench: minutes on two cores
    "small": (
        Selection(lengths=(128, 512, 4_096), competitors=(*MAIN, "unfused", *PEERS), cell_seconds=20.0),
        Selection(lengths=(2_048,), competitors=(*MAIN, "unfused", *PEERS, "sparse"), cell_seconds=20.0),
        Selection(lengths=(512, 2_048), passes=("train",), competitors=MAIN, floors="none", cell_seconds=20.0),
    ),
    # what the project promises; minutes on two cores in benchmarks.md
    "bars": (
        replace(BARS, lengths=(128, 256)),
        replace(BARS, lengths=(512, 2_048, 4_096), competitors=(*MAIN, *PEERS)),
        replace(BARS, lengths=(4_096,), sizes=("minilm",), passes=("train",), floors="none",
                competitors=(*MAIN, *PEERS)),
        replace(BARS, lengths=(8_192,), competitors=(*MAIN, *PEERS), floors="none", cell_seconds=120.0),
        replace(BARS, lengths=(65_536,), competitors=(*MAIN[:2], *PEERS), cell_seconds=130.0),
        replace(BARS, lengths=(32_768,), floors="none", cell_seconds=400.0),
    ),
    # the rest of "faster than other implementations at every length", in training
    "bars-train": (
        Selection(lengths=(512, 2_048, 8_192, 65_536), passes=("train",), competitors=(*MAIN[:2], *PEERS),
                  floors="none", memory=False, cell_seconds=150.0),
    ),
    # float32, bfloat16, int8; eager and compiled
    "dtypes": (
        Selection(lengths=(512, 4_096), dtypes=("float32", "bfloat16", "int8"), modes=("eager", "compiled"),
                  competitors=MAIN, floors="none", memory=False, cell_seconds=60.0),
    ),
    # peak memory against length
    "memory": (
        Selection(lengths=(1_024, 8_192, 16_384, 32_768), competitors=(*MAIN, "unfused", *PEERS), floors="none",
                  cell_seconds=100.0),
    ),
    # one document of a million tokens
    "million": (Selection(lengths=(LONGEST,), competitors=("ours-window",), cell_seconds=3_600.0),),
    # the paper's Table 3
    "paper": tuple(
        Selection(lengths=(length,), sizes=("base",), slots=(128, 256, 512, 1_024, 2_048), floors="none",
                  competitors=("ours-linear", "unfused"))
        for length in (512, 1_024, 2_048, 4_096, 8_192, 16_384, 32_768, 65_536)
    ),
    # everything
    "full": (
        Selection(
            lengths=(*LENGTHS, LONGEST), sizes=("minilm", "base"), dtypes=("float32", "bfloat16", "int8"),
            modes=("eager", "compiled"), passes=("inference", "train"), batches=("1", FULL), competitors=("all",),
        ),
    ),
}  # fmt: skip


def preset(name: str) -> tuple[Selection, ...]:
    """Stages by name. Raises ConfigurationError for one that does not exist."""
    if name not in PRESETS:
        raise ConfigurationError(f'no preset "{name}"; there are {", ".join(PRESETS)}')
    return PRESETS[name]


def with_choices(selection: Selection, **chosen: Any) -> Selection:
    """The selection with other values where something was chosen: not None, 0, "" or an empty list."""
    given = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in chosen.items() if value is False or value
    }  # fmt: skip
    return replace(selection, **given)


def chosen_stages(name: str, what: Mapping[str, Any], how: Mapping[str, Any]) -> list[Selection]:
    """The stages of a preset, all changed by ``how`` to measure.

    Where something is chosen in ``what`` to measure, it is the first stage alone, changed so.
    """
    stages = [with_choices(stage, **how) for stage in preset(name)]
    return [with_choices(stages[0], **what)] if any(what.values()) else stages


def cells_of(selection: Selection, *, device: str, threads: int) -> list[Cell]:
    """The cells, short texts first, so that the time of long ones can be predicted. Every cell once.

    Raises ConfigurationError for values that do not exist.
    """
    _require_something(selection)
    if selection.floors not in (*FLOORS, *FAMILIES):
        raise ConfigurationError(f'floors="{selection.floors}"; it is all, none or a family: {", ".join(FAMILIES)}')
    found = [
        Cell(
            size=size, length=length, batch=texts_of(batch, length, selection.batch_tokens), slots=slots, dtype=dtype,
            mode=mode, work=work, device=device, threads=threads,
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


def chosen_device(name: str) -> str:
    """ "cpu" or "cuda" from "auto", "cpu" or "cuda". Raises ConfigurationError where there is no such device."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name not in ("cpu", "cuda"):
        raise ConfigurationError(f'device="{name}"; it is one of auto, cpu, cuda')
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigurationError("device=cuda, but torch sees no CUDA device; use --device cpu")
    return name


def chosen_threads(threads: int | None) -> int:
    """CPU threads: as many as asked for, or as the process has cores (OMP_NUM_THREADS where that is set)."""
    if threads is None:
        return torch.get_num_threads()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not 1 <= threads <= cores:
        raise ConfigurationError(f"threads={threads} must be between 1 and the {cores} cores of this process")
    return threads


def _require_something(selection: Selection) -> None:
    for field in fields(selection):
        if field.name != "memory" and not getattr(selection, field.name):
            raise ConfigurationError(f"{field.name} is empty: there is nothing to measure")
