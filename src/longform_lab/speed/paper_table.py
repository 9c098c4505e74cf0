"""The paper's Table 3 beside what was measured: ratios of time, and of the largest batches that fit.

Largest batch: what 16 GiB (the paper's card) leave beside the weights, divided by the memory that a pass takes for each
text above the loaded model (``texts_in_16_gib`` of a row); both are measured, the division is not rounded. Where the
baseline does not fit the machine there is no ratio.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from longform_lab.records import Record

WANTED = {"competitor": "ours-linear", "work": "inference", "mode": "eager"}
SLOTS = (128, 256, 512, 1_024, 2_048)
TIME = {
    512: (1.5, 1.3),
    1_024: (1.7, 1.6, 1.3),
    2_048: (2.6, 2.4, 2.1, 1.3),
    4_096: (3.4, 3.2, 2.8, 2.2, 1.3),
    8_192: (5.5, 5.0, 4.4, 3.5, 2.1),
    16_384: (8.6, 7.8, 7.0, 5.6, 3.3),
    32_768: (13, 12, 11, 8.8, 5.0),
    65_536: (20, 18, 16, 14, 7.9),
}
MEMORY = {
    512: (1.7, 1.5),
    1_024: (3.0, 2.9, 1.8),
    2_048: (6.1, 5.6, 3.6, 2.0),
    4_096: (14, 13, 8.3, 4.3, 2.3),
    8_192: (28, 26, 17, 8.5, 4.5),
    16_384: (56, 48, 32, 16, 8),
    32_768: (56, 48, 36, 18, 16),
    65_536: (60, 52, 40, 20, 18),
}


def published(values: Mapping[int, Sequence[float]], n: int, k: int) -> float | None:
    """The paper's ratio, of TIME or MEMORY; None for a cell that it has not."""
    return dict(zip(SLOTS, values.get(n, ()), strict=False)).get(k)


def paper_rows(records: Iterable[Record]) -> list[dict[str, Any]]:
    """A row for each cell of the paper that was measured, beside unfused attention: n, k, ratios here and there."""
    rows = []
    for record in records:
        settings, metrics = record.settings, record.metrics
        n, k = settings["length"], settings["slots"]
        ours = [metrics.get(f"{what}_unfused") for what in ("against", "texts_against")]
        other = {name: settings[name] for name in WANTED} != WANTED or published(TIME, n, k) is None
        if other or ours == [None, None]:
            continue
        rows.append(
            {
                "size": settings["size"],
                "dtype": settings["dtype"],
                "batch": settings["batch"],
                "n": n,
                "k": k,
                "time": ours[0],
                "paper_time": published(TIME, n, k),
                "memory": ours[1],
                "paper_memory": published(MEMORY, n, k),
            }
        )
    return sorted(rows, key=lambda row: (row["size"], row["dtype"], row["batch"], row["n"], row["k"]))
