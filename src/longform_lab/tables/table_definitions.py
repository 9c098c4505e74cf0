"""Definitions of the generated tables. A document has it between ``<!-- table:NAME -->`` and ``<!-- /table -->``."""

from statistics import fmean
from typing import Any

from longform_lab.accuracies import accuracies, best_of
from longform_lab.tables.classification_tables import CLASSIFICATION_TABLES
from longform_lab.tables.gpu_tables import GPU_TABLES
from longform_lab.tables.long_retrieval_tables import RETRIEVAL_TABLES
from longform_lab.tables.point_tables import POINT_TABLES
from longform_lab.tables.readme_tables import README_TABLES
from longform_lab.tables.reproduction_tables import REPRODUCTION_TABLES
from longform_lab.tables.spectrum_tables import SPECTRUM_TABLES
from longform_lab.tables.speed_tables import SPEED_TABLES
from longform_lab.tables.table_kinds import MISSING, Cells, Rows, Table, plain_tables

SHOWN = (
    "nn.TransformerEncoder", "default", "by place", "content and place", "latents", "paper's E",
    "linformer (lucidrains)",
)  # fmt: skip
SUMMED = ("inputs", "kills", "compared", "lost", "seconds")


def _campaign(records: Rows) -> Cells:
    """The heads of the columns, and a row for each file of tests."""
    parts: dict[str, list[Any]] = {}
    for record in records:
        parts.setdefault(record["settings"]["part"], []).append(record["metrics"])
    survived = "kills and other ends survived"
    heads = ["tests of", "tests", "inputs", survived, "outputs compared", "lost or wrong", "seconds"]
    rows = [
        [part, f"{len(tests):,}", *(f"{sum(test[name] for test in tests):,.0f}" for name in SUMMED)]
        for part, tests in parts.items()
    ]
    return heads, rows


def _from_nothing(rows: Rows) -> Cells:
    """A row for each attention and k, best first: losses divided by full attention's of the same seed."""
    seeds = sorted({row["settings"]["seed"] for row in rows})
    losses: dict[tuple[str, int], dict[int, float]] = {}
    for row in rows:
        settings = row["settings"]
        slots = 0 if settings["variant"].startswith("full") else settings["slots"]
        losses.setdefault((settings["variant"], slots), {})[settings["seed"]] = row["metrics"]["loss"]
    full = losses["full", 0]
    cells = []
    for (variant, slots), found in sorted(losses.items(), key=lambda item: min(item[1].values())):
        over = [f"{found[seed] / full[seed]:.3f}" if seed in found else "–" for seed in seeds]
        name = variant.replace("+conv5", "+conv").replace("+conv", ", convolution")
        name = name.replace("@network", ", E at the network's rate")
        cells.append([name, str(slots or "–"), *over])
    return ["keys and values", "k", *(f"seed {seed}" for seed in seeds)], cells


def _own_data(rows: Rows) -> Cells:
    """A row for each kind of attention of SHOWN, and a column for each data set: accuracy after few and after many
    steps, bold where it is within a point of the best of all kinds.
    """
    found = accuracies(rows)
    means = {key: fmean(each) for key, each in found.items()}
    best, cells = best_of(means), []
    names = list(dict.fromkeys(data for data, _, _ in found))
    for kind in SHOWN:
        pairs = [
            " / ".join(_marked(means.get((name, kind, when)), best[name, when]) for when in ("few", "many"))
            for name in names
        ]
        cells.append([kind, *pairs])
    return ["keys and values", *names], cells


def _marked(value: float | None, best: float) -> str:
    if value is None:
        return MISSING
    return f"**{value:.3f}**" if value > best - 0.01 else f"{value:.3f}"


TABLES: dict[str, Table] = {
    **plain_tables(),
    "own_data": Table(
        make=_own_data,
        records="own_data",
        where={"settings.data": lambda name: name != "signals"},  # the page says what they have
    ),
    "from_nothing": Table(
        make=_from_nothing,
        records="from_nothing",
        where={"settings.length": 512},
        row=("settings.variant", "settings.slots", "settings.seed"),
    ),
    "campaign": Table(
        make=_campaign,
        records="campaign",
        where={"settings.scale": "full"},
        having=("settings.test",),
        row=("settings.test",),
        order=("settings.part",),
    ),
    **CLASSIFICATION_TABLES,
    **GPU_TABLES,
    **POINT_TABLES,
    **RETRIEVAL_TABLES,
    **README_TABLES,
    **REPRODUCTION_TABLES,
    **SPECTRUM_TABLES,
    **SPEED_TABLES,
}
