"""The two tables of README.md: quality on five tasks, and time beside full attention."""

from collections.abc import Sequence
from statistics import fmean

from longform_lab.tables.classification_tables import EARLIER_RATE
from longform_lab.tables.speed_shapes import standard
from longform_lab.tables.speed_tables import BESIDE, CELL, SPEED
from longform_lab.tables.table_kinds import ComputedTable, Rows

MISSING = "–"
LONGEST = 4_096  # tokens of the Longforms that were tested on pairs of sentences
SEARCHES = {
    "qmsum": ("find the meeting for a question (QMSum)", "meetings"),
    "scisummnet": ("find the paper for a summary (SciSummNet)", "papers"),
}
CLASSES = {"contracts": ("classify contracts", "cls_lead"), "licences": ("classify licences", "lead")}
READERS = ("original, cut at 512", "original, chunks averaged", "Longform, whole text")
HEADS = [
    "task",
    "measure",
    "original, first 512 tokens",
    "original, mean over chunks of 512",
    "Longform, only converted",
    "Longform, healed",
]
LENGTHS = (512, 2_048, 8_192, 32_768)
ENCODERS = {
    "sdpa": "full attention",
    "ours-window": "Longform, window",
    "ours-linear": "Longform, learned E, no window",
}


def quality(rows: Rows) -> tuple[list[str], list[list[str]]]:
    """A row a task, a column a way to read it; what was not measured is a dash."""
    return HEADS, [_sentences(rows), *_searches(rows), *_classes(rows)]


def _sentences(rows: Rows) -> list[str]:
    """The latest of each kind at ``LONGEST`` tokens: rows come in the order in which they were measured."""
    found = {
        row["name"]: row["metrics"]
        for row in rows
        if "sts_teacher" in row["metrics"] and row["settings"].get("max_length") == LONGEST
    }
    original = found["zero_shot"]["sts_teacher"]
    scores = [f"{100 * found[name]['sts_spearman']:.1f}" for name in ("zero_shot", "healing")]
    return ["how alike two sentences are (STS-B dev)", "Spearman × 100", f"{100 * original:.1f}", MISSING, *scores]


def _searches(rows: Rows) -> list[list[str]]:
    """The healed Longform is the one that was healed on texts of the same kind."""
    body = []
    for data, (task, kind) in SEARCHES.items():
        asked = [row for row in rows if row["name"] == "retrieval" and row["settings"]["data"] == data]
        found = {row["settings"]["model"]: row["metrics"]["ndcg_at_10"] for row in asked}
        readers = (*READERS, f"Longform, 16,384 tokens, healed on {kind}")
        body.append([task, "nDCG@10 × 100", *(f"{found[name]:.1f}" if name in found else MISSING for name in readers)])
    return body


def _classes(rows: Rows) -> list[list[str]]:
    """Means over the splits on which both models were fine-tuned, at the demo's rate."""
    body = []
    for data, (task, pooling) in CLASSES.items():
        wanted = {"data": data, "pooling": pooling, "learning_rate": EARLIER_RATE}
        there = [row for row in rows if row["name"] == "classification" and "split" in row["settings"]]
        chosen = [row for row in there if wanted.items() <= {"learning_rate": EARLIER_RATE, **row["settings"]}.items()]
        splits = {
            name: {row["settings"]["split"]: row for row in chosen if row["settings"]["model"] == name}
            for name in ("original", "Longform")
        }
        common = sorted(splits["original"].keys() & splits["Longform"].keys())
        scores = [f"{_mean([splits[name][each] for each in common]):.1f}" for name in ("original", "Longform")]
        body.append(
            [f"{task}, fine-tuned, {len(common)} splits", "accuracy, %", scores[0], MISSING, MISSING, scores[1]]
        )
    return body


def _mean(rows: Rows) -> float:
    return fmean(100 * row["metrics"]["accuracy"] for row in rows)


def beside_full_attention(rows: Rows) -> tuple[list[str], list[list[str]]]:
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
    "readme_quality": ComputedTable(
        make=quality, records=("zero_shot", "healing", "retrieval", "classification"), row=("name", "settings"),
        order=("date",),
    ),
    "readme_speed": ComputedTable(
        make=beside_full_attention, records="speed",
        where={**SPEED, "settings.size": "base", "settings.work": "inference", "settings.competitor": tuple(ENCODERS),
               "settings.length": LENGTHS},
        having=("metrics.seconds", "metrics.against_sdpa"), row=CELL, prefer=BESIDE, one_run=("settings.length",),
        select=standard, order=("settings.length",),
    ),
}  # fmt: skip
