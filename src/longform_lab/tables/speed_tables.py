"""The tables of docs/lab/speed.md and docs/lab/costs.md: rows of ``longform benchmark``."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from longform_lab.speed.competitors import all_competitors
from longform_lab.tables.speed_shapes import (
    beside_the_paper,
    beside_variants,
    by_competitor,
    crossings,
    pictures,
    standard,
)
from longform_lab.tables.table_kinds import Table

ONE_TEXT = {"settings.dtype": "bfloat16", "settings.mode": "eager", "settings.batch": 1}
UNITS = "hardware.cpu_features"  # what is measured on CPUs with AMX has tables of its own


def with_amx(units: Sequence[str]) -> bool:
    """Whether a CPU of these features has AMX."""
    return "amx_bf16" in units


def without_amx(units: Sequence[str]) -> bool:
    """Whether it has none."""
    return not with_amx(units)


ON_CPU = {"settings.device": "cpu", UNITS: without_amx}
SPEED = {**ONE_TEXT, **ON_CPU}
EVERY = tuple(all_competitors())
ORDERS = tuple(name for name, each in all_competitors().items() if each.family == "ours")
SHOWN = ("ours-window", "ours-linear", *(name for name in EVERY if name not in ORDERS))  # others are in the records
CELL = ("settings.length", "settings.competitor", "settings.slots")
# Seconds of one length compare with each other where all were measured in turns: beside these, if such a row exists.
BESIDE = ("metrics.against_sdpa", "metrics.against_ours-window")


def speed(
    metric: str,
    form: str,
    *,
    size: str = "base",
    work: str = "inference",
    amx: bool = False,
) -> Table:
    """One metric of the benchmark's rows: batch 1, bfloat16, k = 256 (n / 2 where that is less).

    ``amx``: those of CPUs with AMX, else of CPUs without it.
    A length's numbers come from the run that has most of them; what it lacks, from
    the latest record that has the metric, one measured beside full attention first.
    """
    return Table(
        make=partial(by_competitor, metric=metric, form=form),
        records="speed",
        where={
            **SPEED,
            "settings.size": size,
            "settings.work": work,
            "settings.competitor": SHOWN,
            UNITS: with_amx if amx else without_amx,
        },
        having=(f"metrics.{metric}",),
        row=CELL,
        prefer=BESIDE,
        one_run=("settings.length",),
        select=standard,
        order=("settings.length",),
    )


def shown_pictures(folder: str) -> Table:
    """Links to what ``longform_lab.tables.draw`` drew, and where it was measured."""
    return Table(
        make=partial(pictures, folder=folder),
        records="speed",
        where={**SPEED, "settings.work": "inference", "settings.competitor": SHOWN},
        having_any=("metrics.seconds", "metrics.peak_mib"),
        row=("settings.size", *CELL),
        prefer=BESIDE,
        one_machine=True,
    )


def beside_paper(where: dict[str, Any]) -> Table:
    """The paper's Table 3 and ours, measured on such machines."""
    return Table(
        make=beside_the_paper,
        records="speed",
        where={**where, "settings.size": "base", "settings.work": "inference", "settings.competitor": "ours-linear"},
        having_any=("metrics.against_unfused", "metrics.texts_against_unfused"),
        row=("settings.length", "settings.slots"),
        prefer=("metrics.texts_against_unfused",),
        order=("settings.length", "settings.slots"),
    )


def from_what_length(where: dict[str, Any]) -> Table:
    """From what length on it pays, on such machines."""
    return Table(
        make=crossings,
        records="speed",
        where=where,
        having=("metrics.against_sdpa",),
        select=beside_variants,
        row=("settings.size", "settings.work", *CELL),
        prefer=("metrics.against_unfused",),
    )


SPEED_TABLES: dict[str, Table] = {
    "speed": speed("against_sdpa", ".2f"),
    "speed_minilm": speed("against_sdpa", ".2f", size="minilm"),
    "speed_amx": speed("against_sdpa", ".2f", amx=True),
    "paper_table_3": beside_paper(SPEED),
    "speed_pictures": shown_pictures("../pictures"),
    "crossings": from_what_length(SPEED),
}  # fmt: skip
