"""The tables of docs/lab/speed.md and docs/lab/costs.md: rows of ``longform benchmark``."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from longform_lab.speed.competitors import all_competitors
from longform_lab.speed.selection import LONGEST
from longform_lab.tables.speed_shapes import (
    beside_the_paper,
    beside_variants,
    by_competitor,
    by_precision,
    by_threads,
    crossings,
    label_of,
    of_several_precisions,
    pictures,
    standard,
)
from longform_lab.tables.table_kinds import Column, Table, by_columns

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
ORDERS = tuple(name for name, each in all_competitors().items() if each.family in ("ours", "order"))
PEERS = tuple(name for name, each in all_competitors().items() if each.family == "peer")
SHOWN = ("ours-window", "ours-linear", *(name for name in EVERY if name not in ORDERS))  # others have their own table
CELL = ("settings.length", "settings.competitor", "settings.slots")
# Seconds of one length compare with each other where all were measured in turns: beside these, if such a row exists.
BESIDE = ("metrics.against_sdpa", "metrics.against_ours-window")
FULL_BATCHES = tuple(2**power for power in range(1, 15))


def speed(
    metric: str,
    form: str,
    *,
    size: str = "base",
    work: str = "inference",
    device: str = "cpu",
    amx: bool = False,
    competitors: tuple[str, ...] = SHOWN,
    together: bool = True,
    **layout: bool,
) -> Table:
    """One metric of the benchmark's rows: batch 1, bfloat16, k = 256 (n / 2 where that is less).

    ``amx``: those of CPUs with AMX, else of CPUs without it.
    ``layout``: of ``by_competitor``. ``together``: a length's numbers come from the run that has most of them; what it
    lacks, or without it all, from the latest record that has the metric, one measured beside full attention first.
    """
    machine = {UNITS: with_amx if amx else without_amx} if device == "cpu" else {}
    return Table(
        make=partial(by_competitor, metric=metric, form=form, **layout),
        records="speed",
        where={
            **ONE_TEXT,
            "settings.device": device,
            "settings.size": size,
            "settings.work": work,
            "settings.competitor": competitors,
            **machine,
        },
        having=(f"metrics.{metric}",),
        row=CELL,
        prefer=BESIDE,
        one_run=("settings.length",) if together else (),
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


MILLION = (
    Column("tokens", "settings.length", ",d"),
    Column("size", "settings.size"),
    Column("window", "metrics.window", ",d"),
    Column("slots", "metrics.window_slots", ",d"),
    Column("seconds", "metrics.seconds", ",.0f"),
    Column("tokens a second", "metrics.tokens_per_second", ",.0f"),
    Column("peak memory of the pass, MiB", "metrics.peak_mib", ",.0f"),
    Column("of the process, MiB", "metrics.process_mib", ",.0f"),
    Column("rounds", "metrics.repeats", "d"),
)
BATCHES = (
    Column("size", "settings.size"),
    Column("tokens of a text", "settings.length", ",d"),
    Column("texts", "settings.batch", "d"),
    Column("encoder", label_of),
    Column("seconds", "metrics.seconds", ".4g"),
    Column("tokens a second", "metrics.tokens_per_second", ",.0f"),
    Column("times as fast as SDPA", "metrics.against_sdpa", ".2f"),
    Column("peak MiB", "metrics.peak_mib", ",.0f"),
)
SHARES = (
    Column("tokens", "settings.length", ",d"),
    Column("encoder", label_of),
    Column("matrix products", "metrics.share_products", ".0%"),
    Column("attention calls", "metrics.share_attention", ".0%"),
    Column("GELU", "metrics.share_activation", ".0%"),
    Column("norms", "metrics.share_normalisation", ".0%"),
    Column("sums, scaling, softmax", "metrics.share_elementwise", ".0%"),
    Column("copies", "metrics.share_copies", ".0%"),
    Column("rest", "metrics.share_other", ".0%"),
    Column("time / floor", "metrics.against_floor", ".2f"),
)
SPEED_TABLES: dict[str, Table] = {
    "speed": speed("against_sdpa", ".2f"),
    "speed_minilm": speed("against_sdpa", ".2f", size="minilm"),
    "speed_training": speed("against_sdpa", ".2f", size="minilm", work="train"),
    "speed_cuda": speed("against_sdpa", ".2f", device="cuda"),
    "peers": speed("against_ours-linear", ".2f", competitors=("ours-linear", *PEERS), inverse=True),
    "peers_training": speed("against_ours-linear", ".2f", size="minilm", work="train",
                            competitors=("ours-linear", *PEERS), inverse=True),
    "variants": speed("against_ours-linear", ".2f", inverse=True,
                      competitors=tuple(name for name in ORDERS if name != "ours-window")),
    "seconds": speed("seconds", ".4g"),
    "seconds_cuda": speed("seconds", ".4g", device="cuda"),
    "floor": speed("against_floor", ".2f", together=False),
    "floor_training": speed("against_floor", ".2f", size="minilm", work="train", together=False),
    "floor_cuda": speed("against_floor", ".2f", device="cuda", together=False),
    "spread": speed("spread", ".0%", rounds=False),
    "tokens_per_second": speed("tokens_per_second", ",.0f"),
    "speed_amx": speed("against_sdpa", ".2f", amx=True),
    "speed_training_amx": speed("against_sdpa", ".2f", size="minilm", work="train", amx=True),
    "peers_amx": speed("against_ours-linear", ".2f", competitors=("ours-linear", *PEERS), inverse=True, amx=True),
    "peers_training_amx": speed("against_ours-linear", ".2f", size="minilm", work="train",
                                competitors=("ours-linear", *PEERS), inverse=True, amx=True),
    "seconds_amx": speed("seconds", ".4g", amx=True),
    "floor_amx": speed("against_floor", ".2f", together=False, amx=True),
    "pass_memory": speed("peak_mib", ",.0f", size="minilm", rounds=False),
    "million": Table(
        make=partial(by_columns, columns=MILLION), records="speed", having=("metrics.seconds",),
        where={**SPEED, "settings.length": LONGEST, "settings.work": "inference", "settings.competitor": "ours-window"},
        row=("settings.length", "settings.size"),
    ),
    "batches": Table(
        make=partial(by_columns, columns=BATCHES), records="speed",
        where={**SPEED, "settings.batch": FULL_BATCHES, "settings.work": "inference"},
        having=("metrics.seconds",), order=("settings.size", "settings.length", "settings.batch"),
    ),
    "paper_table_3": beside_paper(SPEED),
    "paper_table_3_amx": beside_paper({**SPEED, UNITS: with_amx}),
    "speed_pictures": shown_pictures("../pictures"),
    "where_time_goes": Table(
        make=partial(by_columns, columns=SHARES), records="speed",
        where={**SPEED, "settings.size": "base", "settings.work": "inference", "settings.competitor": SHOWN},
        having=("metrics.share_products", "metrics.against_floor"), row=CELL, prefer=BESIDE,
        select=standard, order=("settings.length", "settings.competitor"),
    ),
    "crossings": from_what_length(SPEED),
    "crossings_amx": from_what_length({**SPEED, UNITS: with_amx}),
    "documents": Table(make=by_threads, records="documents", row=("settings.reading", "settings.threads")),
    "precision": Table(
        make=by_precision, records="speed", having=("metrics.seconds",), select=of_several_precisions,
        where={"settings.batch": 1, **ON_CPU, "settings.work": "inference"},
    ),
}  # fmt: skip
