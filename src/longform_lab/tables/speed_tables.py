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
    crossings,
    in_batches,
    of_several_precisions,
    pictures,
    standard,
    where_time_goes,
)
from longform_lab.tables.table_kinds import Column, ComputedTable, TableDefinition

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
) -> ComputedTable:
    """One metric of the benchmark's rows: batch 1, bfloat16, k = 256 (n / 2 where that is less).

    ``amx``: those of CPUs with AMX, else of CPUs without it.
    ``layout``: of ``by_competitor``. ``together``: a length's numbers come from the run that has most of them; what it
    lacks, or without it all, from the latest record that has the metric, one measured beside full attention first.
    """
    machine = {UNITS: with_amx if amx else without_amx} if device == "cpu" else {}
    return ComputedTable(
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


def shown_pictures(folder: str) -> ComputedTable:
    """Links to what ``longform_lab.tables.speed_pictures`` drew, and where it was measured."""
    return ComputedTable(
        make=partial(pictures, folder=folder),
        records="speed",
        where={**SPEED, "settings.work": "inference", "settings.competitor": SHOWN},
        having_any=("metrics.seconds", "metrics.peak_mib"),
        row=("settings.size", *CELL),
        prefer=BESIDE,
        one_machine=True,
    )


def beside_paper(where: dict[str, Any]) -> ComputedTable:
    """The paper's Table 3 and ours, measured on such machines."""
    return ComputedTable(
        make=beside_the_paper,
        records="speed",
        where={**where, "settings.size": "base", "settings.work": "inference", "settings.competitor": "ours-linear"},
        having_any=("metrics.against_unfused", "metrics.texts_against_unfused"),
        row=("settings.length", "settings.slots"),
        prefer=("metrics.texts_against_unfused",),
        order=("settings.length", "settings.slots"),
    )


def from_what_length(where: dict[str, Any]) -> ComputedTable:
    """From what length on it pays, on such machines."""
    return ComputedTable(
        make=crossings,
        records="speed",
        where=where,
        having=("metrics.against_sdpa",),
        select=beside_variants,
        row=("settings.size", "settings.work", *CELL),
        prefer=("metrics.against_unfused",),
    )


SPEED_TABLES: dict[str, TableDefinition | ComputedTable] = {
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
    "million": TableDefinition(
        columns=(
            Column(header="tokens", value="settings.length", form=",d"),
            Column(header="size", value="settings.size"),
            Column(header="window", value="metrics.window", form=",d"),
            Column(header="slots", value="metrics.window_slots", form=",d"),
            Column(header="seconds", value="metrics.seconds", form=",.0f"),
            Column(header="tokens a second", value="metrics.tokens_per_second", form=",.0f"),
            Column(header="peak memory of the pass, MiB", value="metrics.peak_mib", form=",.0f"),
            Column(header="of the process, MiB", value="metrics.process_mib", form=",.0f"),
            Column(header="rounds", value="metrics.repeats", form="d"),
        ),
        records="speed",
        where={**SPEED, "settings.length": LONGEST, "settings.work": "inference", "settings.competitor": "ours-window"},
        having=("metrics.seconds",),
        row=("settings.length", "settings.size"),
    ),
    "batches": ComputedTable(
        make=in_batches, records="speed",
        where={**SPEED, "settings.batch": FULL_BATCHES, "settings.work": "inference"},
        having=("metrics.seconds",), order=("settings.size", "settings.length", "settings.batch"),
    ),
    "paper_table_3": beside_paper(SPEED),
    "paper_table_3_amx": beside_paper({**SPEED, UNITS: with_amx}),
    "speed_pictures": shown_pictures("../pictures"),
    "where_time_goes": ComputedTable(
        make=where_time_goes, records="speed",
        where={**SPEED, "settings.size": "base", "settings.work": "inference", "settings.competitor": SHOWN},
        having=("metrics.share_products", "metrics.against_floor"), row=CELL, prefer=BESIDE,
        select=standard, order=("settings.length", "settings.competitor"),
    ),
    "crossings": from_what_length(SPEED),
    "crossings_amx": from_what_length({**SPEED, UNITS: with_amx}),
    "precision": ComputedTable(
        make=by_precision, records="speed", having=("metrics.seconds",), select=of_several_precisions,
        where={"settings.batch": 1, **ON_CPU, "settings.work": "inference"},
    ),
    "packing": TableDefinition(
        columns=(
            Column(header="size", value="settings.size"),
            Column(header="dtype", value="settings.dtype"),
            Column(header="tokens", value="settings.tokens", form=",d"),
            Column(header="plain (ms)", value="metrics.plain_ms", form=".1f"),
            Column(header="packed (ms)", value="metrics.packed_ms", form=".1f"),
            Column(header="plain / packed", value="metrics.ratio", form=".2f"),
            Column(header="lowest", value="metrics.lowest_ratio", form=".2f"),
            Column(header="highest", value="metrics.highest_ratio", form=".2f"),
        ),
        row=("settings.size", "settings.dtype", "settings.tokens"),
    ),
    "kept_memory": TableDefinition(
        columns=(
            Column(header="encoder", value="settings.encoder"),
            Column(header="tokens", value="settings.tokens", form=",d"),
            Column(header="page faults of a step", value="metrics.plain_faults", form=",.0f"),
            Column(header="when kept", value="metrics.kept_faults", form=",.0f"),
            Column(header="seconds of a step", value="metrics.plain_seconds", form=".3f"),
            Column(header="when kept", value="metrics.kept_seconds", form=".3f"),
            Column(header="times as fast", value="metrics.ratio", form=".2f"),
            Column(header="lowest", value="metrics.lowest_ratio", form=".2f"),
            Column(header="highest", value="metrics.highest_ratio", form=".2f"),
            Column(header="peak, MiB", value="metrics.plain_peak_mib", form=",.0f"),
            Column(header="when kept", value="metrics.kept_peak_mib", form=",.0f"),
        ),
        row=("settings.encoder", "settings.tokens"),
    ),
    "checkouts": TableDefinition(
        columns=(
            Column(header="model, dtype, attention, tokens, work", value="settings.cell"),
            Column(header="before", value="settings.before"),
            Column(header="seconds before", value="metrics.before_seconds", form=".4f"),
            Column(header="after", value="metrics.after_seconds", form=".4f"),
            Column(header="times as fast", value="metrics.ratio", form=".3f"),
            Column(header="median of turns", value="metrics.median_ratio", form=".3f"),
            Column(header="peak before, MiB", value="metrics.before_peak_mib", form=",.0f"),
            Column(header="after", value="metrics.after_peak_mib", form=",.0f"),
        ),
        row=("settings.cell", "settings.before"),
    ),
    "int8": TableDefinition(
        columns=(
            Column(header="texts", value="settings.texts", form="d"),
            Column(header="tokens of each, at most", value="settings.max_length", form=",d"),
            Column(header="window", value="settings.window", form="d"),
            Column(header="cosine to float32, mean", value="metrics.cosine", form=".5f"),
            Column(header="lowest", value="metrics.lowest_cosine", form=".5f"),
        ),
    ),
}  # fmt: skip
