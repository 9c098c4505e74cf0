"""The two tables of README.md: time at equal size and windows, and quality of the shipped encoder on four tasks."""

from collections.abc import Mapping
from typing import Any

from longform_lab.tables.table_kinds import MISSING, Cells, Rows, Table, pivot

SHIPPED = "minilm-16k"
TASKS = {
    "qmsum-val": "question → meeting (QMSum)",
    "scisummnet": "summary → paper (SciSummNet)",
    "scifact": "claim → short abstract (SciFact)",
}
ALIKE = f"original trained as {SHIPPED}"
READERS = {  # contender in the records, model of STS-B's, and what the table calls it
    "original, cut": ("original", "original, first 512 tokens"),
    "original, chunks averaged": ("", "original, chunks"),
    f"{ALIKE}, chunks averaged": (ALIKE, "original, fine-tuned, chunks"),
    SHIPPED: (SHIPPED, f"Longform, `{SHIPPED}`"),
    "BM25": ("", "BM25"),
    f"{ALIKE}, chunks averaged + BM25": ("", "original, fine-tuned, chunks, and BM25"),
    f"{SHIPPED} + BM25": ("", f"Longform, `{SHIPPED}`, and BM25"),
}
PASSES = {
    ("inference", "bfloat16"): "forward, bfloat16",
    ("inference", "float32"): "forward, float32",
    ("train", "bfloat16"): "training step, bfloat16",
    ("train", "float32"): "training step, float32",
}
ENCODERS = {
    "ours-window": "Longform",
    "longformer": "Longformer",
    "modernbert": "ModernBERT",
    "sdpa": "full attention",
}


def quality(rows: Rows) -> Cells:
    """A row for each way to read, a column for each task: nDCG@10 x 100, of STS-B Spearman x 100."""
    scores = {
        (row["settings"]["data"], row["settings"]["contender"]): row["metrics"]["ndcg_at_10"]
        for row in rows
        if row["name"] == "long_retrieval"
    }
    scores |= {
        ("sts", row["settings"]["model"]): row["metrics"]["sts_spearman"] for row in rows if row["name"] == "sts"
    }
    body = []
    for contender, (model, shown) in READERS.items():
        places = [*((data, contender) for data in TASKS), ("sts", model)]
        body.append([shown, *(f"{scores[place]:.1f}" if place in scores else MISSING for place in places)])
    return ["method", *TASKS.values(), "similar sentences (STS-B dev)"], body


def equal_windows(rows: Rows) -> Cells:
    """A row for each pass: processor seconds of each encoder, and these divided by Longform's."""
    seconds = {
        (row["settings"]["work"], row["settings"]["dtype"], row["settings"]["competitor"]): row["metrics"][
            "cpu_seconds"
        ]
        for row in rows
    }

    def cell(row: Mapping[str, Any]) -> str:
        ours = seconds[row["settings"]["work"], row["settings"]["dtype"], "ours-window"]
        return f"{row['metrics']['cpu_seconds']:.2f} s ({row['metrics']['cpu_seconds'] / ours:.1f})"

    lines = pivot(
        rows,
        down=lambda row: list(PASSES).index((row["settings"]["work"], row["settings"]["dtype"])),
        across=lambda row: row["settings"]["competitor"],
        cell=cell,
        columns=list(ENCODERS),
    )
    return ["pass", *ENCODERS.values()], [[list(PASSES.values())[place], *cells] for place, cells in lines]


README_TABLES = {
    "readme_quality": Table(
        make=quality, records=("sts", "long_retrieval"), row=("name", "settings"), order=("date",),
    ),
    "equal_windows": Table(
        make=equal_windows, records="equal_windows",
        row=("settings.work", "settings.dtype", "settings.competitor"), one_machine=True,
    ),
}  # fmt: skip
