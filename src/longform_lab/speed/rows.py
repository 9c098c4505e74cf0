"""One row of the benchmark: time and memory of one architecture at one length, batch and dtype (a cell)."""

import statistics
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from longform.runs.facts import commit, hardware, versions
from longform_lab.records import Record
from longform_lab.speed.competitor import Competitor
from longform_lab.speed.guards import Probe
from longform_lab.speed.measuring import paired_ratio, spread
from longform_lab.speed.shapes import Cell

NAME = "speed"
MIB = 2**20
CARD = 16 * 2**30  # bytes of the paper's card
UNFUSED = "unfused"
REFERENCES = ("sdpa", UNFUSED, "ours-linear", "ours-window")
UNITS = {
    "seconds": "s",
    "fastest": "s",
    "slowest": "s",
    "floor_seconds": "s",
    "tokens_per_second": "tokens/s",
    "peak_mib": "MiB",
    "process_mib": "MiB",
    "weights_mib": "MiB",
    "operations": "FLOP",
    "bytes": "B",
}
SAID = (
    ("seconds", 1_000, "{:,.1f} ms"),
    ("spread", 1, "spread {:.1%}"),
    ("against_sdpa", 1, "{:.2f} x as fast as SDPA"),
    ("against_floor", 1, "{:.2f} x the floor"),
    ("tokens_per_second", 1, "{:,.0f} tokens/s"),
    ("peak_mib", 1, "{:,.0f} MiB"),
)
ELEMENT = {"float32": 4, "bfloat16": 2, "int8": 1}


def with_ratios(event: dict[str, Any], together: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """A "time" event with how many times faster than each reference of its process it was, and its time / floor.

    Each is the median over rounds, so that what slows a whole round slows both sides of a ratio.
    """
    ratios = {
        f"against_{name}": paired_ratio(together[name]["seconds"], event["seconds"])
        for name in REFERENCES
        if name in together
    }
    return {**event, **ratios, "against_floor": paired_ratio(event["seconds"], event["floor"])}


def make_row(
    cell: Cell,
    competitor: Competitor,
    event: Mapping[str, Any] | None,
    probe: Probe | None,
    unfused: Probe | None,
    missing: str | None,
    cell_seconds: float,
    date: str,
) -> Record:
    """The record of a competitor in a cell; ``missing``: why it has no time, ``cell_seconds``: how long it was allowed.

    ``date``: the same for all rows of a run of a cell, which tells them from those of other runs.

    Metrics: ``seconds`` is the median of ``repeats`` rounds, ``spread`` the distance of their quartiles over it.
    ``against_X``: how many times faster than X; ``against_floor``: time / floor. ``peak_mib``: memory of a pass above
    the loaded model; ``process_mib``: the process's most. ``texts_in_16_gib``: the largest batch that memory for
    weights and passes holds, computed from these; ``texts_against_unfused``: over that of unfused attention
    (``unfused``). ``error``: relative, of the output that was checked. ``operations``, ``bytes``: what the pass cannot
    avoid, where that is known. ``window``, ``window_slots``, ``sinks``: of a windowed model, whose k is not the
    setting "slots".
    """
    metrics = {"missing": missing or None, "cell_seconds": cell_seconds, **_memory(probe, unfused, cell.batch)}
    metrics |= competitor.details(cell.shape)
    if competitor.floor is not None:
        plan = competitor.plan(cell)
        metrics |= {"operations": plan.operations(cell.work), "bytes": plan.bytes(cell.work, ELEMENT[cell.dtype])}
    metrics |= _times(event, cell) if event is not None else {}
    packages = {} if missing else {name: version(name) for name in competitor.packages}
    return Record(
        name=NAME,
        settings=cell.settings(competitor.name),
        metrics=metrics,
        versions=versions() | packages,
        units={name: unit for name, unit in UNITS.items() if name in metrics},
        hardware=event["hardware"] if event is not None else hardware(),
        commit=event["commit"] if event is not None else commit(),
        date=date,
    )


def _memory(probe: Probe | None, unfused: Probe | None, batch: int) -> dict[str, Any]:
    growth = None if probe is None else probe.growth
    texts = None if probe is None else probe.texts_within(CARD, batch)
    others = None if unfused is None else unfused.texts_within(CARD, batch)
    return {
        "peak_mib": None if growth is None else growth / MIB,
        "process_mib": None if probe is None else probe.process / MIB,
        "weights_mib": None if probe is None else probe.weights / MIB,
        "texts_in_16_gib": texts,
        "texts_against_unfused": texts / others if texts and others else None,
    }


def _times(event: Mapping[str, Any], cell: Cell) -> dict[str, Any]:
    seconds, floor = event["seconds"], event["floor"]
    median = statistics.median(seconds)
    return {
        "seconds": median,
        "fastest": min(seconds),
        "slowest": max(seconds),
        "spread": spread(seconds),
        "repeats": len(seconds),
        "tokens_per_second": cell.tokens / median,
        "error": event["error"],
        "floor_seconds": statistics.median(floor) if floor else None,
        **{f"against_{name}": event.get(f"against_{name}") for name in (*REFERENCES, "floor")},
    }


def say(record: Record) -> str:
    """A row in one line."""
    metrics, name = record.metrics, record.settings["competitor"]
    if metrics["missing"]:
        return f"{name}: {metrics['missing']}"
    values = ((metrics.get(key), scale, form) for key, scale, form in SAID)
    parts = [form.format(scale * value) for value, scale, form in values if isinstance(value, int | float)]
    return f"{name}: {', '.join(parts)}"
