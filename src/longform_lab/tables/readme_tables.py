"""The two tables of README.md: quality of the shipped encoder on four tasks, and time beside full attention."""

from collections.abc import Sequence

from longform_lab.tables.speed_shapes import standard
from longform_lab.tables.speed_tables import BESIDE, CELL, SPEED
from longform_lab.tables.table_kinds import Cells, Rows, Table

MISSING = "–"
SHIPPED = "minilm-16k"
SEARCHES = {
    "qmsum-val": "find the meeting for a question (QMSum)",
    "scisummnet": "find the paper for a summary (SciSummNet; others of its papers were trained on)",
    "scifact": "find the abstract for a claim (SciFact, short texts)",
}
ALIKE = f"original trained as {SHIPPED}"
READERS = (
    "original, cut",
    "original, chunks averaged",
    f"{ALIKE}, chunks averaged",
    SHIPPED,
    f"{ALIKE}, chunks averaged + BM25",
    f"{SHIPPED} + BM25",
    "BM25",
)
HEADS = [
    "task",
    "measure",
    "original, first 512 tokens",
    "original, chunks of 512",
    "original trained alike, chunks of 512",
    f"Longform, `{SHIPPED}`",
    "original trained alike and BM25",
    "Longform and BM25",
    "BM25",
]
LENGTHS = (512, 2_048, 8_192, 32_768)
ENCODERS = {
    "sdpa": "full attention",
    "ours-window": "Longform, window",
    "ours-linear": "Longform, learned E, no window",
}


def quality(rows: Rows) -> Cells:
    """A row a task, a column a way to read it; what was not measured is a dash."""
    alike = {row["settings"]["model"]: row["metrics"]["sts_spearman"] for row in rows if row["name"] == "sts"}
    scores = [f"{alike[name]:.1f}" if name in alike else MISSING for name in ("original", ALIKE, SHIPPED)]
    first = ["how alike two sentences are (STS-B dev)", "Spearman × 100", scores[0], MISSING, *scores[1:]]
    body = [[*first, MISSING, MISSING, MISSING]]
    for data, task in SEARCHES.items():
        found = {
            row["settings"]["contender"]: row["metrics"]["ndcg_at_10"]
            for row in rows
            if row["name"] == "long_retrieval" and row["settings"]["data"] == data
        }
        shown = (f"{found[name]:.1f}" if name in found else MISSING for name in READERS)
        body.append([task, "nDCG@10 × 100", *shown])
    return HEADS, body


def beside_full_attention(rows: Rows) -> Cells:
    """A row a length: seconds of each encoder, and how many times faster than full attention."""
    found = {(row["settings"]["length"], row["settings"]["competitor"]): row["metrics"] for row in rows}
    body = [
        [f"{n:,}", *(f"{found[n, name]['seconds']:.2f} s" for name in ENCODERS), *_ratios(found, n)]
        for n in LENGTHS
        if all((n, name) in found for name in ENCODERS)
    ]
    return ["tokens", *ENCODERS.values(), "times as fast with window", "times as fast with learned E"], body


def _ratios(found: dict[tuple[int, str], dict[str, float]], length: int) -> Sequence[str]:
    return [f"{found[length, name]['against_sdpa']:.1f}" for name in list(ENCODERS)[1:]]


README_TABLES = {
    "readme_quality": Table(
        make=quality, records=("sts", "long_retrieval"), row=("name", "settings"), order=("date",),
    ),
    "readme_speed": Table(
        make=beside_full_attention, records="speed",
        where={**SPEED, "settings.size": "base", "settings.work": "inference", "settings.competitor": tuple(ENCODERS),
               "settings.length": LENGTHS},
        having=("metrics.seconds", "metrics.against_sdpa"), row=CELL, prefer=BESIDE, one_run=("settings.length",),
        select=standard, order=("settings.length",),
    ),
}  # fmt: skip
