"""Sets of questions and documents on which the shipped encoder and its rivals are compared, from parquet files."""

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd

KEPT_OUT = 200  # scisummnet's last papers, which no training reads
Tables = tuple[pd.DataFrame, pd.DataFrame]  # queries (query, relevant) and documents (id, text)


def meetings(data: Path) -> Tables:
    """QMSum's questions of its validation part, and the meetings."""
    asked = pd.read_parquet(data / "qmsum_val_queries.parquet")
    documents = pd.read_parquet(data / "qmsum_val_meetings.parquet")
    return pd.DataFrame({"query": asked["query"], "relevant": asked["doc"]}), documents


def papers(data: Path) -> Tables:
    """SciSummNet: a summary to its paper, which is without its abstract."""
    table = pd.read_parquet(data / "scisummnet_train.parquet").tail(KEPT_OUT)
    queries = pd.DataFrame({"query": table["summary"], "relevant": table["id"]})
    return queries, pd.DataFrame({"id": table["id"], "text": table["paper_without_abstract"]})


def abstracts(data: Path) -> Tables:
    """SciFact: a claim to the abstracts, with their titles, that speak of it."""
    claims, corpus = (pd.read_parquet(data / f"scifact_{name}.parquet") for name in ("train_claims", "corpus"))
    relevant = claims["docs"].map(lambda ids: [str(each) for each in ids])
    documents = pd.DataFrame({"id": corpus["id"].map(str), "text": corpus["title"] + "\n" + corpus["text"]})
    return pd.DataFrame({"query": claims["query"], "relevant": relevant}), documents


SETS: dict[str, Callable[[Path], Tables]] = {"qmsum-val": meetings, "scisummnet": papers, "scifact": abstracts}


def steps_of(model: Path) -> int:
    """How many steps the folder was trained for, as its records say; 0 without any."""
    records = model / "records.jsonl"
    rows = map(json.loads, records.read_text().splitlines()) if records.is_file() else ()
    return next((row["step"] for row in rows if row["event"] == "end"), 0)
