"""How rows of ``longform benchmark`` become tables: chosen records (as dicts) -> heads of columns, rows of cells."""

from collections.abc import Mapping
from typing import Any

from longform_lab.records import ROOT, Record
from longform_lab.speed.competitors import all_competitors
from longform_lab.speed.paper_table import paper_rows
from longform_lab.tables.table_kinds import MISSING, Cells, Row, Rows, pivot

STANDARD_SLOTS = 256
SHOWN = {128, 512, 2_048, 4_096, 8_192, 32_768}  # tokens; pictures and records have more
ENOUGH = 5  # rounds; of fewer a table says how many
PICTURES = ROOT / "docs" / "pictures"
SAID = {
    "speed-time.png": "Seconds of a pass against the tokens of a text, both logarithmic",
    "speed-memory.png": "MiB of a pass against the tokens of a text, both logarithmic",
}
COMMON = ("ours-window", "ours-linear", "ours-mean", "ours-convolution")


def is_standard(settings: Mapping[str, Any]) -> bool:
    """Whether k is what most tables show: 256, or n / 2 where that is less."""
    return settings["slots"] == min(STANDARD_SLOTS, settings["length"] // 2)


def standard(rows: Rows) -> Rows:
    """Rows of the k that most tables show."""
    return [row for row in rows if is_standard(row["settings"])]


def beside_variants(rows: Rows) -> Rows:
    """Rows of the standard k and of variants that users choose among."""
    return [row for row in standard(rows) if row["settings"]["competitor"] in COMMON]


def by_competitor(rows: Rows, *, metric: str, form: str) -> Cells:
    """A row a length, a column a competitor.

    Rounds stand behind a number that rests on fewer than five; a ratio has those of its shorter side.
    """
    found = {(row["settings"]["length"], row["settings"]["competitor"]): row["metrics"] for row in rows}
    reference = metric.removeprefix("against_")

    def cell(length: int, name: str) -> str:
        if (length, name) not in found:
            return "–"
        metrics = found[length, name]
        several = [side.get("repeats") or ENOUGH for side in (metrics, found.get((length, reference), {}))]
        few = f" ({min(several)})" if min(several) < ENOUGH else ""
        return format(metrics[metric], form) + few

    every = all_competitors()
    there = {competitor for _, competitor in found}
    shown = [name for name in every if name in there]
    lengths = sorted({length for length, name in found if name in shown} & SHOWN)
    return ["tokens", *(every[name].label for name in shown)], [
        [f"{n:,}", *(cell(n, name) for name in shown)] for n in lengths
    ]


def beside_the_paper(rows: Rows) -> Cells:
    """Table 3: a row for each n, a column for each k; time, then memory, with the paper's in brackets."""

    def cell(row: Row) -> str:
        pairs = [(row[what], row[f"paper_{what}"]) for what in ("time", "memory")]
        return ", ".join(f"{MISSING if ours is None else format(ours, '.2f')} ({paper:g})" for ours, paper in pairs)

    measured = paper_rows([Record(**row) for row in rows])
    ks = sorted({row["k"] for row in measured})
    lines = pivot(measured, down=lambda row: row["n"], across=lambda row: row["k"], cell=cell, columns=ks)
    return ["n", *(f"k = {k:,}" for k in ks)], [[f"{n:,}", *cells] for n, cells in lines]


def pictures(rows: Rows, *, folder: str) -> Cells:
    """Links to pictures that ``tables.draw`` drew; ``folder``: where they are, seen from the document."""
    return [], [[f"![{said}]({folder}/{name})"] for name, said in SAID.items() if (PICTURES / name).exists()]


def crossings(rows: Rows) -> Cells:
    """From what length on it pays: a row a size, kind of pass and variant.

    Beside the faster of fused and unfused full attention, where the second was measured too.
    """
    found: dict[tuple[str, str, str], dict[int, float]] = {}
    for row in rows:
        settings, metrics = row["settings"], row["metrics"]
        unfused = metrics.get("against_unfused")
        ratio = min(metrics["against_sdpa"], metrics["against_sdpa"] if unfused is None else unfused)
        key = (settings["size"], settings["work"], settings["competitor"])
        found.setdefault(key, {})[settings["length"]] = ratio
    body = []
    for (size, work, name), ratios in sorted(found.items()):
        slower = [n for n, ratio in ratios.items() if ratio < 1]
        faster = [n for n in ratios if n > max(slower, default=0)]
        body.append(
            [
                size,
                "inference" if work == "inference" else "training step",
                all_competitors()[name].label,
                f"{min(faster):,}" if faster else "none measured",
                f"{min(ratios):,}",
                f"{ratios[min(ratios)]:.2f}",
                f"{max(ratios):,}",
                f"{ratios[max(ratios)]:.1f}",
            ]
        )
    return [
        "size",
        "pass",
        "encoder",
        "not slower from (tokens)",
        "shortest measured",
        "times as fast there",
        "longest measured",
        "times as fast there",
    ], body
