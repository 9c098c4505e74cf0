"""The tables of docs/benchmarks.md and docs/costs.md: rows of ``longform benchmark``."""

from functools import partial

from benchmarks.records import ROOT
from benchmarks.table_kinds import Column, ComputedTable, Rows, TableDefinition
from longform.benchmarking.competitors import all_competitors
from longform.benchmarking.records import Record
from longform.benchmarking.report import paper_table

STANDARD_SLOTS = 256
PICTURES = ROOT / "docs" / "pictures"
SAID = {
    "speed-time.png": "Seconds of a pass against the tokens of a text, both logarithmic",
    "speed-memory.png": "MiB of a pass against the tokens of a text, both logarithmic",
}
SHARES = {
    "products": "matrix products", "attention": "attention calls", "activation": "GELU", "normalisation": "norms",
    "elementwise": "sums, scaling, softmax", "copies": "copies", "other": "rest",
}  # fmt: skip
VARIANTS = ("ours-window", "ours-linear", "ours-mean", "ours-convolution")
SPEED = {"settings.dtype": "bfloat16", "settings.mode": "eager", "settings.batch": 1, "settings.device": "cpu"}


def by_competitor(rows: Rows, *, metric: str, form: str) -> tuple[list[str], list[list[str]]]:
    """A row a length, a column a competitor that has the metric anywhere."""
    cells = {
        (row["settings"]["length"], row["settings"]["competitor"]): row["metrics"][metric]
        for row in rows
        if row["metrics"].get(metric) is not None
        and row["settings"]["slots"] == min(STANDARD_SLOTS, row["settings"]["length"] // 2)
    }  # fmt: skip
    shown = [name for name in all_competitors() if any(name == competitor for _, competitor in cells)]
    lengths = sorted({length for length, _ in cells})
    header = ["tokens", *(all_competitors()[name].label for name in shown)]
    return header, [
        [f"{n:,}", *(format(cells[n, name], form) if (n, name) in cells else "–" for name in shown)] for n in lengths
    ]


def beside_the_paper(rows: Rows) -> tuple[list[str], list[list[str]]]:
    """The paper's Table 3 and ours: a row for each n and k of which a ratio was measured."""
    ratios = ("against_unfused", "texts_against_unfused")
    return paper_table([Record(**row) for row in rows if any(row["metrics"].get(name) is not None for name in ratios)])


def pictures(rows: Rows, *, folder: str) -> tuple[list[str], list[list[str]]]:
    """Those of ``benchmarks.speed_pictures`` that were drawn; ``folder``: where they are, seen from the document."""
    return [], [[f"![{said}]({folder}/{name})"] for name, said in SAID.items() if (PICTURES / name).exists()]


def where_time_goes(rows: Rows) -> tuple[list[str], list[list[str]]]:
    """A row a length and competitor that was profiled: shares of its time."""
    body = []
    for row in rows:
        metrics, settings = row["metrics"], row["settings"]
        if metrics.get("share_products") is not None:
            shares = [f"{metrics[f'share_{kind}']:.0%}" for kind in SHARES]
            label = all_competitors()[settings["competitor"]].label
            body.append([f"{settings['length']:,}", label, *shares, f"{metrics['against_floor']:.2f}"])
    return ["tokens", "encoder", *SHARES.values(), "time / floor"], body


def crossings(rows: Rows) -> tuple[list[str], list[list[str]]]:
    """From what length on it pays: a row a size, kind of pass and variant."""
    found: dict[tuple[str, str, str], dict[int, float]] = {}
    for row in rows:
        settings, ratio = row["settings"], row["metrics"].get("against_sdpa")
        standard = settings["slots"] == min(STANDARD_SLOTS, settings["length"] // 2)
        if ratio is not None and settings["competitor"] in VARIANTS and standard:
            key = (settings["size"], settings["work"], settings["competitor"])
            found.setdefault(key, {})[settings["length"]] = ratio
    body = []
    for (size, work, name), ratios in sorted(found.items()):
        slower = [n for n, ratio in ratios.items() if ratio < 1]
        faster = [n for n in ratios if n > max(slower, default=0)]
        body.append(
            [size, "inference" if work == "inference" else "training step", all_competitors()[name].label,
             f"{min(faster):,}" if faster else "none measured", f"{min(ratios):,}", f"{ratios[min(ratios)]:.2f}",
             f"{max(ratios):,}", f"{ratios[max(ratios)]:.1f}"]
        )  # fmt: skip
    return ["size", "pass", "encoder", "not slower from (tokens)", "shortest measured", "times as fast there",
            "longest measured with SDPA", "times as fast there"], body  # fmt: skip


def by_precision(rows: Rows) -> tuple[list[str], list[list[str]]]:
    """A row a size, length and variant, a column a dtype and mode: milliseconds of a pass."""
    found: dict[tuple[str, int, str], dict[str, float]] = {}
    for row in rows:
        settings, seconds = row["settings"], row["metrics"].get("seconds")
        standard = settings["slots"] == min(STANDARD_SLOTS, settings["length"] // 2)
        if seconds is not None and settings["competitor"] in VARIANTS and standard:
            column = settings["dtype"] + (", compiled" if settings["mode"] == "compiled" else "")
            found.setdefault((settings["size"], settings["length"], settings["competitor"]), {})[column] = seconds
    several = {key: cells for key, cells in sorted(found.items()) if len(cells) > 1}
    columns = [
        dtype + mode for mode in ("", ", compiled") for dtype in ("float32", "bfloat16", "int8")
        if any(dtype + mode in cells for cells in several.values())
    ]  # fmt: skip
    return ["size", "tokens", "encoder", *columns], [
        [size, f"{n:,}", all_competitors()[name].label,
         *(f"{1_000 * cells[column]:,.1f}" if column in cells else "–" for column in columns)]
        for (size, n, name), cells in several.items()
    ]  # fmt: skip


def speed(metric: str, form: str, *, size: str, work: str = "inference") -> ComputedTable:
    """One metric of the benchmark's rows: batch 1, bfloat16, k = 256 (n / 2 where that is less)."""
    return ComputedTable(
        make=partial(by_competitor, metric=metric, form=form), records="speed",
        where={**SPEED, "settings.size": size, "settings.work": work},
        row=("settings.length", "settings.competitor", "settings.slots"), order=("settings.length",),
    )  # fmt: skip


SPEED_TABLES: dict[str, TableDefinition | ComputedTable] = {
    "speed": speed("against_sdpa", ".2f", size="base"),
    "speed_minilm": speed("against_sdpa", ".2f", size="minilm"),
    "speed_training": speed("against_sdpa", ".2f", size="minilm", work="train"),
    "seconds": speed("seconds", ".4g", size="base"),
    "floor": speed("against_floor", ".2f", size="base"),
    "tokens_per_second": speed("tokens_per_second", ",.0f", size="base"),
    "pass_memory": speed("peak_mib", ",.0f", size="base"),
    "paper_table_3": ComputedTable(
        make=beside_the_paper, records="speed",
        where={**SPEED, "settings.size": "base", "settings.work": "inference", "settings.competitor": "ours-linear"},
        row=("settings.length", "settings.slots"), order=("settings.length", "settings.slots"),
    ),
    "speed_pictures": ComputedTable(make=partial(pictures, folder="pictures"), records="speed", where=SPEED),
    "speed_pictures_in_readme": ComputedTable(make=partial(pictures, folder="docs/pictures"), records="speed",
                                              where=SPEED),
    "where_time_goes": ComputedTable(
        make=where_time_goes, records="speed", where={**SPEED, "settings.size": "base", "settings.work": "inference"},
        row=("settings.length", "settings.competitor"), order=("settings.length", "settings.competitor"),
    ),
    "crossings": ComputedTable(
        make=crossings, records="speed", where=SPEED,
        row=("settings.size", "settings.work", "settings.length", "settings.competitor", "settings.slots"),
    ),
    "precision": ComputedTable(
        make=by_precision, records="speed",
        where={"settings.batch": 1, "settings.device": "cpu", "settings.work": "inference"},
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
