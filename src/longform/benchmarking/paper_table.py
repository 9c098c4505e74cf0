"""The paper's Table 3 beside what was measured: time, and memory as the ratio of the largest batches that fit.

Largest batch: what a 16 GiB card (the paper's) leaves beside the weights, divided by the peak memory of a pass of one
text above the loaded model; both are measured (``peak_mib``, ``weights_mib``), the division is not rounded. A baseline
that does not fit the machine has no cell.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from longform.benchmarking.records import Record

CARD_MIB = 16 * 1024
OURS, BASELINE = "ours-linear", "unfused"
SLOTS = (128, 256, 512, 1_024, 2_048)
TIME = {
    512: (1.5, 1.3), 1_024: (1.7, 1.6, 1.3), 2_048: (2.6, 2.4, 2.1, 1.3), 4_096: (3.4, 3.2, 2.8, 2.2, 1.3),
    8_192: (5.5, 5.0, 4.4, 3.5, 2.1), 16_384: (8.6, 7.8, 7.0, 5.6, 3.3), 32_768: (13, 12, 11, 8.8, 5.0),
    65_536: (20, 18, 16, 14, 7.9),
}  # fmt: skip
MEMORY = {
    512: (1.7, 1.5), 1_024: (3.0, 2.9, 1.8), 2_048: (6.1, 5.6, 3.6, 2.0), 4_096: (14, 13, 8.3, 4.3, 2.3),
    8_192: (28, 26, 17, 8.5, 4.5), 16_384: (56, 48, 32, 16, 8), 32_768: (56, 48, 36, 18, 16),
    65_536: (60, 52, 40, 20, 18),
}  # fmt: skip


def paper_rows(records: Iterable[Record]) -> list[dict[str, Any]]:
    """A row for each cell of the paper that was measured: n, k, ratios here and there, and whether they are met."""
    inference = [
        record for record in records
        if record.settings.get("work") == "inference" and record.settings.get("mode") == "eager"
    ]  # fmt: skip
    baseline = {_common(record): record.metrics for record in inference if record.settings["competitor"] == BASELINE}
    rows = []
    for record in inference:
        settings, metrics = record.settings, record.metrics
        n, k = settings["length"], settings["slots"]
        place = SLOTS.index(k) if k in SLOTS else len(SLOTS)
        if settings["competitor"] != OURS or place >= len(TIME.get(n, ())):
            continue
        memory = batch_ratio(metrics, baseline.get(_common(record), {}))
        rows.append(
            {
                "size": settings["size"], "dtype": settings["dtype"], "batch": settings["batch"], "n": n, "k": k,
                "time": metrics.get("against_unfused"), "paper_time": TIME[n][place], "memory": memory,
                "paper_memory": MEMORY[n][place],
            }
        )  # fmt: skip
    return sorted(rows, key=lambda row: (row["size"], row["dtype"], row["batch"], row["n"], row["k"]))


def _common(record: Record) -> tuple[Any, ...]:
    return tuple(record.settings[name] for name in ("size", "dtype", "batch", "length", "slots", "device", "threads"))


def batch_ratio(ours: Mapping[str, Any], baseline: Mapping[str, Any]) -> float | None:
    """Largest batch of ours over that of the baseline, from their metrics; None where one was not measured."""
    found = [_largest_batch(metrics) for metrics in (ours, baseline)]
    return found[0] / found[1] if found[0] and found[1] else None


def _largest_batch(metrics: Mapping[str, Any]) -> float | None:
    peak, weights = metrics.get("peak_mib"), metrics.get("weights_mib")
    return (CARD_MIB - weights) / peak if peak and weights is not None else None


def met(row: Mapping[str, Any], what: str) -> str:
    """ "yes", "no" or "–" for "time" or "memory" of a row."""
    value = row[what]
    return "–" if value is None else "yes" if value >= row[f"paper_{what}"] else "no"
