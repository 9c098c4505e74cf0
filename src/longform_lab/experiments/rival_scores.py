"""Scores of the original that ``rival`` trains, in the sets and the form of ``records/long_retrieval.jsonl``.

    python -m longform_lab.experiments.rival_scores qmsum-val sts --data ../shared/data --model runs/rival/aligned

A document is one vector of all its tokens, read in chunks of 512, or with ``--passages`` its best chunk of 256, each
read alone. BM25 is fused with it by reciprocal ranks. ``--untrained`` names the records for the original whose repeated
words are weighted and that learned nothing (``runs/rival/original``). "sts" is STS-B dev.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from longform.evaluation.retrieval import Ranker, cosine_ranker, ranking_scores
from longform.evaluation.retrieval_data import RetrievalData, read_retrieval
from longform.inference.encoders import Encoder
from longform_lab.evaluation.comparison import Contender, RunSettings, compare_similarity
from longform_lab.evaluation.retrieval_comparison import bm25_ranker, compare_retrieval, fused_ranker
from longform_lab.experiments.rival import CHUNK, in_chunks
from longform_lab.records import RECORDS, Record, append_records

TRAINED, UNTRAINED = "original trained as minilm-16k", "original, repeated words weighted"
KEPT_OUT = 200  # scisummnet's last papers, which no training reads
DEPTH, PASSAGE = 10, 256
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


def by_one_vector(model: Path, name: str, data: Tables, dtype: str) -> list[dict[str, Any]]:
    """Rows as of ``compare_retrieval``: the encoder over chunks, and fused with BM25."""
    encoder = Encoder.from_pretrained(model, dtype=dtype)
    reader = in_chunks(encoder, encoder.model)
    found: RetrievalData = read_retrieval(*data)
    began = time.perf_counter()
    documents = reader.collect(found.documents, progress=True).values
    dense = cosine_ranker(reader.collect(found.questions, progress=True).values, documents)
    words = bm25_ranker(found.questions, [document.text for document in found.documents])
    seconds = time.perf_counter() - began
    rankers: dict[str, Ranker] = {name: dense, f"{name} + BM25": fused_ranker(dense, words)}
    rows = []
    for contender, ranker in rankers.items():
        scores = ranking_scores(ranker, found.relevant, documents=len(found.documents), depth=DEPTH)
        each = [100 * value for value in scores.each]
        recall = 100 * scores.recall[DEPTH]
        row = {"name": contender, "reads": f"chunks of {CHUNK} tokens, weighted together", "per_query": each}
        rows.append(row | {"ndcg@10": 100 * scores.ndcg, "recall@10": recall, "seconds": seconds})
    return rows


def by_passages(model: Path, name: str, data: Tables, dtype: str) -> list[dict[str, Any]]:
    """Rows of the encoder over chunks that are read alone, and fused with BM25."""
    contender = Contender(name, str(model), "chunk-average")
    how: Any = {"score": "best-chunk", "chunk_tokens": PASSAGE, "bm25": True, "depth": DEPTH}
    rows = compare_retrieval([contender], *data, RunSettings(dtype=dtype), **how)
    return [row for row in rows if row["name"].startswith(name)]


def steps_of(model: Path) -> int:
    """How many steps the folder was trained for, as its records say; 0 without any."""
    records = model / "records.jsonl"
    rows = map(json.loads, records.read_text().splitlines()) if records.is_file() else ()
    return next((row["step"] for row in rows if row["event"] == "end"), 0)


def main() -> None:
    """Measure, append records, and print the scores."""
    parser = argparse.ArgumentParser(description="Measure the original over chunks, trained or not.")
    parser.add_argument("sets", nargs="+", choices=[*SETS, "sts"])
    parser.add_argument("--data", type=Path, required=True, help="folder of the parquet files")
    parser.add_argument("--model", type=Path, required=True, help="folder of the encoder")
    parser.add_argument("--untrained", action="store_true", help="what the records call it")
    parser.add_argument("--passages", action="store_true", help="by the best passage")
    parser.add_argument("--dtype", default="auto")
    asked = parser.parse_args()
    base = UNTRAINED if asked.untrained else TRAINED
    name = f"{base}, {'chunks cut first' if asked.passages else 'chunks averaged'}"
    steps = steps_of(asked.model)
    for chosen in asked.sets:
        if chosen == "sts":
            contender = Contender(base, str(asked.model), "whole")
            (row,) = compare_similarity([contender], str(asked.data / "stsb_dev.parquet"), RunSettings(dtype="float32"))
            record = Record(
                name="sts", settings={"model": base, "steps": steps}, metrics={"sts_spearman": row["spearman"]}
            )
            append_records(RECORDS / "sts.jsonl", [record])
            print(record.metrics)
            continue
        data = SETS[chosen](asked.data)
        rows = (by_passages if asked.passages else by_one_vector)(asked.model, name, data, asked.dtype)
        sizes = {"queries": len(data[0]), "documents": len(data[1])}
        records = [
            Record(
                name="long_retrieval",
                settings={
                    "data": chosen + (", best passage" if asked.passages else ""),
                    "contender": row["name"],
                    **sizes,
                    "reads": row["reads"],
                    "steps": steps,
                },
                metrics={
                    "ndcg_at_10": row["ndcg@10"],
                    "recall_at_10": row["recall@10"],
                    "seconds": row["seconds"],
                    "per_query": [np.round(row["per_query"], 2).tolist()],
                },
            )
            for row in rows
        ]
        append_records(RECORDS / "long_retrieval.jsonl", records)
        for record in records:
            print(record.settings, f"nDCG@10 {record.metrics['ndcg_at_10']:.1f}", flush=True)


if __name__ == "__main__":
    main()
