"""Tables of long retrieval, and of poolings: intervals, and differences paired by query."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from longform_lab.evaluation.comparison import bootstrap
from longform_lab.tables.table_kinds import MISSING, Cells, Row, Rows, Table

CHUNKS, BM25 = "original, chunks averaged", "BM25"
CUT_FIRST = "original, chunks cut first"  # where a document is as good as its best passage
FUSED = f" + {BM25}"
PLAIN = ("all alike", "mean")  # tokens and repeated ones
WHOLE = 2048  # tokens of the documents of passages, where nothing is said
WAYS = ("alone", "whole")  # how passages are read
PAIRS = {  # contenders that a cell shows, by the head of the column
    "BM25 / with the title": (BM25, f"{BM25}, title in front"),
    "alone / whole": WAYS,
    "+ mean": ("alone + 1.0 mean", "whole + 1.0 mean"),
    "+ opening": ("alone + opening", "whole + opening"),
    "title in front": ("alone, title", "whole, title"),
    "+ vector of the title": ("alone + vector of the title", "whole + vector of the title"),
}
CONTEXT_PAIRS = {
    "BM25": (BM25,),
    "alone / whole": WAYS,
    "+ mean": ("alone + mean", "whole + mean"),
    "+ opening": PAIRS["+ opening"],
    "title in front": ("alone, title in front",),
    "+ vector of the title": PAIRS["+ vector of the title"],
}
# Trained contenders that bring no more than one of the same kind that is shown.
LESS = ("pure mean", "pure mean, --sublinear-tf", "minilm-mean-512", "minilm-weighted-256", "minilm-idf")
BETTER = ("whole better by", "best of whole better by")
HEADS = ["data", "model", "nDCG@10", "better than chunks by", "with BM25"]


def beside_each_other(rows: Rows) -> Cells:
    """A line a contender of each set, alone and fused with BM25."""
    sets: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        sets.setdefault(row["settings"]["data"], {})[row["settings"]["contender"]] = row
    body = []
    for data, found in sets.items():
        values = {name: np.array(row["metrics"]["per_query"][0]) for name, row in found.items()}
        chunks = CHUNKS if CHUNKS in found else CUT_FIRST
        for name in found:
            if name.endswith(FUSED):
                continue
            alone = [score(values[name]), difference(values[name], values.get(chunks) if name != chunks else None)]
            fused = values.get(name + FUSED)
            body.append([data, name, *alone, "" if fused is None else score(fused)])
    return HEADS, body


def passages(rows: Rows) -> Cells:
    """A line a set and training: nDCG@10 of BM25, and of chunks read alone / of the whole reading for all that is added
    to them; and how much better the whole reading is, with nothing added and the best of each without a title.
    """
    sets: dict[tuple[str, int], dict[str, np.ndarray]] = {}
    for row in rows:
        settings = row["settings"]
        length = settings.get("length") or WHOLE
        data = settings["data"] if length == WHOLE else f"{settings['data']}, first {length:,} tokens"
        contenders = sets.setdefault((data, settings["steps"]), {})
        contenders[settings["contender"]] = np.array(row["metrics"]["per_query"][0])
    body = [
        [data, f"{steps:,}" if steps else "untrained", *_alone_and_whole(scores, PAIRS)]
        for (data, steps), scores in sorted(sets.items())
    ]
    return ["data", "steps", *PAIRS, *BETTER], body


def longest_trained(rows: Rows) -> Rows:
    """Rows of the most steps that their data were read with in both ways."""

    def data(row: Row) -> tuple[str, int]:
        return row["settings"]["data"], row["settings"].get("length") or WHOLE

    whole = [row for row in rows if row["settings"]["contender"] == WAYS[1]]
    most = {data(row): row["settings"]["steps"] for row in sorted(whole, key=lambda row: row["settings"]["steps"])}
    return [row for row in rows if row["settings"]["steps"] == most.get(data(row))]


def _alone_and_whole(scores: Mapping[str, np.ndarray], pairs: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Cells of ``pairs``, then how much better the whole reading is."""
    cells = [
        " / ".join(score(scores[name]) if name in scores else MISSING for name in names) for names in pairs.values()
    ]
    return [*cells, *(difference(whole, alone) for alone, whole in (_nothing_added(scores), _best_untitled(scores)))]


def _nothing_added(scores: Mapping[str, np.ndarray]) -> list[np.ndarray | None]:
    return [scores.get(way) for way in WAYS]


def _best_untitled(scores: Mapping[str, np.ndarray]) -> list[np.ndarray | None]:
    """Best contenders of both ways to read, without titles and BM25."""
    fair = {name: each for name, each in scores.items() if "title" not in name and BM25 not in name}
    return [
        max((each for name, each in fair.items() if name.startswith(way)), key=np.mean, default=None) for way in WAYS
    ]


def contexts(rows: Rows) -> Cells:
    """A line a task, after training; cells are those of passages."""
    tasks: dict[str, dict[str, np.ndarray]] = {}
    for row in rows:
        settings = row["settings"]
        tasks.setdefault(settings["data"], {})[settings["contender"]] = np.array(row["metrics"]["per_query"][0])
    body = [[data, *_alone_and_whole(scores, CONTEXT_PAIRS)] for data, scores in tasks.items()]
    return ["task", *CONTEXT_PAIRS, *BETTER], body


def score(values: np.ndarray) -> str:
    """The mean."""
    return f"{values.mean():.1f}"


def difference(values: np.ndarray | None, others: np.ndarray | None) -> str:
    """The mean difference, and its interval; empty where one is missing."""
    if values is None or others is None:
        return ""
    return bootstrap(values - others).signed


def poolings(rows: Rows) -> Cells:
    """nDCG@10 of each model, and its difference from the plain mean, paired by query."""
    values: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    models: list[str] = []
    for row in rows:
        settings: Mapping[str, str] = row["settings"]
        name = f"{settings['model']}, {settings['data']}"
        models += [] if name in models else [name]
        each = np.array(row["metrics"]["per_query"][0])
        values.setdefault((settings["tokens"], settings["repeated"]), {})[name] = each
    body = []
    for way, found in values.items():
        cells = []
        for name in models:
            more = "" if way == PLAIN else f", {bootstrap(found[name] - values[PLAIN][name]).signed}"
            cells.append(f"{found[name].mean():.1f}{more}")
        body.append([*way, *cells])
    return ["tokens", "repeated", *models], body


RETRIEVAL_TABLES = {
    "long_retrieval": Table(
        make=beside_each_other,
        records="long_retrieval",
        # -32k: the same weights, or older ones
        where={
            "settings.contender": lambda name: "-32k" not in name and name.removesuffix(FUSED) not in LESS,
            "settings.data": lambda name: name != "qmsum-summaries",  # read with weights shipped before
        },
        row=("settings.data", "settings.contender"),
        order=("settings.data",),
    ),
    "passages": Table(
        make=passages,
        records="passages",
        select=longest_trained,
        row=("settings.data", "settings.length", "settings.contender", "settings.steps"),
    ),
    "context": Table(
        make=contexts,
        records="context",
        where={"settings.training": "100 steps, 64 exact", "settings.length": WHOLE},
        row=("settings.data", "settings.contender"),
        order=("settings.data",),
    ),
    "pooling": Table(
        make=poolings,
        records="pooling",
        where={
            "settings.repeated": ("mean", "sqrt"),
            "settings.model": lambda name: name != "aligned without meetings",  # an earlier minilm-16k
        },
        row=("settings.data", "settings.model", "settings.tokens", "settings.repeated"),
        order=("settings.data",),
    ),
}
