"""How rows of ``longform benchmark`` become tables: chosen records (as dicts) -> heads of columns, rows of cells."""

from collections.abc import Mapping
from typing import Any

from longform_lab.records import ROOT, Record
from longform_lab.speed.competitors import all_competitors
from longform_lab.speed.report import paper_table
from longform_lab.tables.table_kinds import Rows

STANDARD_SLOTS = 256
ENOUGH = 5  # rounds; of fewer a table says how many
PICTURES = ROOT / "docs" / "pictures"
SAID = {
    "speed-time.png": "Seconds of a pass against the tokens of a text, both logarithmic",
    "speed-memory.png": "MiB of a pass against the tokens of a text, both logarithmic",
}
SHARES = {
    "products": "matrix products",
    "attention": "attention calls",
    "activation": "GELU",
    "normalisation": "norms",
    "elementwise": "sums, scaling, softmax",
    "copies": "copies",
    "other": "rest",
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


def of_several_precisions(rows: Rows) -> Rows:
    """Rows that were measured with more than one dtype or mode."""

    def cell(row: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(row["settings"][name] for name in ("size", "length", "competitor"))

    shown = beside_variants(rows)
    kinds: dict[tuple[Any, ...], set[tuple[str, str]]] = {}
    for row in shown:
        kinds.setdefault(cell(row), set()).add((row["settings"]["dtype"], row["settings"]["mode"]))
    return [row for row in shown if len(kinds[cell(row)]) > 1]


def by_competitor(
    rows: Rows, *, metric: str, form: str, inverse: bool = False, rounds: bool = True
) -> tuple[list[str], list[list[str]]]:
    """A row a length, a column a competitor; ``inverse``: one over the metric.

    ``rounds``: where a number rests on fewer than five, they stand behind it; a ratio has those of its shorter side.
    """
    found = {(row["settings"]["length"], row["settings"]["competitor"]): row["metrics"] for row in rows}
    reference = metric.removeprefix("against_")

    def cell(length: int, name: str) -> str:
        if (length, name) not in found:
            return "–"
        metrics = found[length, name]
        several = [side.get("repeats") or ENOUGH for side in (metrics, found.get((length, reference), {}))]
        few = f" ({min(several)})" if rounds and min(several) < ENOUGH else ""
        return format(1 / metrics[metric] if inverse else metrics[metric], form) + few

    every = all_competitors()
    there = {competitor for _, competitor in found} - ({reference} if inverse else set())
    shown = [name for name in every if name in there]
    lengths = sorted({length for length, name in found if name in shown})
    return ["tokens", *(every[name].label for name in shown)], [
        [f"{n:,}", *(cell(n, name) for name in shown)] for n in lengths
    ]


def beside_the_paper(rows: Rows) -> tuple[list[str], list[list[str]]]:
    """The paper's Table 3 and ours: a row for each n and k."""
    found = paper_table([Record(**row) for row in rows])
    return found.heads, found.rows


def pictures(rows: Rows, *, folder: str) -> tuple[list[str], list[list[str]]]:
    """Links to pictures that ``speed_pictures`` drew; ``folder``: where they are, seen from the document."""
    return [], [[f"![{said}]({folder}/{name})"] for name, said in SAID.items() if (PICTURES / name).exists()]


def where_time_goes(rows: Rows) -> tuple[list[str], list[list[str]]]:
    """A row a length and competitor that was profiled: shares of its time."""
    body = []
    for row in rows:
        metrics, settings = row["metrics"], row["settings"]
        shares = [f"{metrics[f'share_{kind}']:.0%}" for kind in SHARES]
        label = all_competitors()[settings["competitor"]].label
        body.append([f"{settings['length']:,}", label, *shares, f"{metrics['against_floor']:.2f}"])
    return ["tokens", "encoder", *SHARES.values(), "time / floor"], body


def crossings(rows: Rows) -> tuple[list[str], list[list[str]]]:
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
        "longest measured beside it",
        "times as fast there",
    ], body


def by_precision(rows: Rows) -> tuple[list[str], list[list[str]]]:
    """A row a size, length and variant, a column a dtype and mode: milliseconds of a pass."""
    found: dict[tuple[str, int, str], dict[str, float]] = {}
    for row in rows:
        settings, seconds = row["settings"], row["metrics"]["seconds"]
        column = settings["dtype"] + (", compiled" if settings["mode"] == "compiled" else "")
        found.setdefault((settings["size"], settings["length"], settings["competitor"]), {})[column] = seconds
    columns = [
        dtype + mode
        for mode in ("", ", compiled")
        for dtype in ("float32", "bfloat16", "int8")
        if any(dtype + mode in cells for cells in found.values())
    ]
    return ["size", "tokens", "encoder", *columns], [
        [
            size,
            f"{n:,}",
            all_competitors()[name].label,
            *(f"{1_000 * cells[column]:,.1f}" if column in cells else "–" for column in columns),
        ]
        for (size, n, name), cells in sorted(found.items())
    ]


def in_batches(rows: Rows) -> tuple[list[str], list[list[str]]]:
    """A row a size, length, batch and competitor."""
    body = []
    for row in rows:
        settings, metrics = row["settings"], row["metrics"]
        ratio, peak = metrics.get("against_sdpa"), metrics.get("peak_mib")
        body.append(
            [
                settings["size"],
                f"{settings['length']:,}",
                str(settings["batch"]),
                all_competitors()[settings["competitor"]].label,
                f"{metrics['seconds']:.4g}",
                f"{metrics['tokens_per_second']:,.0f}",
                "–" if ratio is None else f"{ratio:.2f}",
                "–" if peak is None else f"{peak:,.0f}",
            ]
        )
    return [
        "size",
        "tokens of a text",
        "texts",
        "encoder",
        "seconds",
        "tokens a second",
        "times as fast as SDPA",
        "peak MiB",
    ], body
