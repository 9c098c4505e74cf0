"""The table of long classification: what people would do, and Longform, over splits, with intervals of differences."""

from collections.abc import Mapping, Sequence
from math import sqrt
from statistics import fmean, stdev
from typing import Any

from scipy.stats import t as students_t

from longform_lab.tables.table_kinds import Cells, Rows, Table

CHUNKS = "chunks"  # of the two ways to average, the one that is better in validation, split by split
RIVALS = ("cut", CHUNKS)
HEADS = [
    "data",
    "contender",
    "splits",
    "test texts",
    "of them long",
    "accuracy, %",
    "on long texts, %",
    *(f"long texts, better than {name} by" for name in RIVALS),
]
Runs = Mapping[int, Mapping[str, Any]]  # of one contender on one set, by split


def over_splits(rows: Rows) -> Cells:
    """A line for each contender on each set; differences are paired by split, with their 95 % interval."""
    body, gains = [], dict[str, dict[str, list[float]]]()
    found = by_contender(rows)
    for data, contenders in found.items():
        for name, runs in contenders.items():
            last = list(runs.values())[-1]
            texts = [f"{last['settings']['test_documents']:,}", f"{last['metrics']['long_texts']:,}"]
            values = [
                with_interval([100 * run["metrics"][part] for run in runs.values()], sign="")
                for part in ("accuracy", "long_accuracy")
            ]
            differences = {rival: paired(runs, contenders.get(rival, {})) for rival in RIVALS if rival != name}
            for rival, difference in filter(all, differences.items()):
                gains.setdefault(name, {}).setdefault(rival, []).append(fmean(difference))
            shown = [with_interval(differences.get(rival, [])) for rival in RIVALS]
            body.append([data, name, str(len(runs)), *texts, *values, *shown])
    return HEADS, [*body, *_means(gains, len(found))]


def _means(gains: dict[str, dict[str, list[float]]], sets: int) -> list[list[str]]:
    """A line for each contender that was measured on all of several sets."""
    body = []
    for name, of in gains.items():
        if sets > 1 and all(len(values) == sets for values in of.values()):
            means = [f"{fmean(of[rival]):+.1f}" if rival in of else "" for rival in RIVALS]
            body.append(["mean of the sets", name, "", "", "", "", "", *means])
    return body


def by_contender(rows: Rows) -> dict[str, dict[str, dict[int, Mapping[str, Any]]]]:
    """The runs of each set and contender by split; of the two ways to read chunks one, chosen in validation."""
    found: dict[str, dict[str, dict[int, Mapping[str, Any]]]] = {}
    for row in rows:
        settings = row["settings"]
        name = CHUNKS if settings["contender"].startswith(f"{CHUNKS} of") else settings["contender"]
        runs = found.setdefault(settings["data"], {}).setdefault(name, {})
        before = runs.get(settings["split"])
        if before is None or row["metrics"]["validation"] > before["metrics"]["validation"]:
            runs[settings["split"]] = row
    return found


def paired(runs: Runs, others: Runs) -> list[float]:
    """Percentage points by which ``runs`` are better on long texts than ``others``, on the splits that both have."""
    return [
        100 * (runs[split]["metrics"]["long_accuracy"] - others[split]["metrics"]["long_accuracy"])
        for split in sorted(runs.keys() & others.keys())
    ]


def with_interval(values: Sequence[float], sign: str = "+") -> str:
    """The mean ± half of its 95 % interval (Student's t)."""
    if not values:
        return ""
    if len(values) == 1:
        return f"{values[0]:{sign}.1f}"
    half = float(students_t.ppf(0.975, len(values) - 1)) * stdev(values) / sqrt(len(values))
    return f"{fmean(values):{sign}.1f} ± {half:.1f}"


LONG_DOCUMENTS_TABLES = {
    "long_documents": Table(
        make=over_splits,
        records="long_documents",
        where={"settings.most_texts": lambda value: value is None},
        row=("settings.data", "settings.contender", "settings.split"),
        order=("settings.data",),
    )
}
