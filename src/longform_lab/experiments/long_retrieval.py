"""Long retrieval beside what people would do: BM25, the original cut and in chunks, Longforms, each fused with BM25.

    python -m longform_lab.experiments.long_retrieval qmsum-val qmsum-summaries --data FOLDER --longform runs/healed

The sets: QMSum's questions of its validation part to 35 meetings; in LongEmbed's form the summaries of train and
validation as queries to all 197 meetings; scisummnet's summaries to the last 200 papers; SciFact's claims to abstracts.
``--converted`` adds Longforms as they are converted, under the names of ``longform benchmark --preset documents``;
``--score best-chunk`` ranks a document by its best passage of 256 tokens (the sets' names in the records say so).
Every contender reads all that it has positions for; ``--chunked-length`` for those that were aligned on shorter chunks.
Each (set, contender) appends a record to benchmarks/records/long_retrieval.jsonl, and is not measured again.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from longform.conversion.convert import convert
from longform.data.bundled import bundled_encoder_folder
from longform.evaluation.comparison import Contender, RunSettings
from longform.evaluation.retrieval_comparison import compare_retrieval
from longform.inference.weights import quiet_transformers
from longform_lab.records import RECORDS, Record, append_record, read_records
from longform_lab.speed.readings import CONVERSIONS

KEPT_OUT = 200  # scisummnet's last papers, which no training reads
LENGTH = 32_768  # tokens of a Longform that is converted here
SHORT_CHUNKS = "original, short chunks averaged"
ORIGINAL = {  # how the original reads, and tokens that are fewer than it takes
    "original, cut": ("cut", None),
    "original, chunks averaged": ("chunk-average", None),
    SHORT_CHUNKS: ("chunk-average", 256),
}
BEST_CHUNK, PASSAGES = "best-chunk", ", best passage"  # what the name of a set gets
CHUNKED = {"document": "chunks averaged", BEST_CHUNK: "chunks cut first"}
Tables = tuple[pd.DataFrame, pd.DataFrame]  # queries (query, relevant) and documents (id, text)


def meetings(data: Path, parts: Sequence[str], query: str) -> Tables:
    """QMSum: ``query``, "query" or "answer", to the meetings of some parts."""
    asked = pd.concat(pd.read_parquet(data / f"qmsum_{part}_queries.parquet") for part in parts)
    documents = pd.concat(pd.read_parquet(data / f"qmsum_{part}_meetings.parquet") for part in parts)
    return pd.DataFrame({"query": asked[query], "relevant": asked["doc"]}), documents


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


SETS: dict[str, Callable[[Path], Tables]] = {
    "qmsum-val": lambda data: meetings(data, ["val"], "query"),
    "qmsum-summaries": lambda data: meetings(data, ["train", "val"], "answer"),
    "scisummnet": papers,
    "scifact": abstracts,
}


def contenders(options: argparse.Namespace, folder: Path) -> dict[str, Callable[[], Contender]]:
    """Who is measured, by name; what is converted is in ``folder``."""
    found: dict[str, Callable[[], Contender]] = {}

    def converted(name: str) -> Contender:
        place = folder / name.replace(" ", "-")
        if not place.exists():
            with quiet_transformers():
                convert(options.original, max_length=LENGTH, **CONVERSIONS[name]).save_pretrained(place)
        return Contender(name, str(place), "whole", LENGTH)

    for name, how in ORIGINAL.items() if options.baselines else ():
        if name != SHORT_CHUNKS or options.score != BEST_CHUNK:
            name = name.replace(CHUNKED["document"], CHUNKED[options.score])
            found[name] = lambda name=name, how=how: Contender(name, options.original, *how)
    for name in options.converted:
        found[name] = lambda name=name: converted(name)
    for place in options.chunked:
        name = f"{Path(place).name}, {CHUNKED[options.score]}"
        found[name] = lambda name=name, place=place: Contender(name, place, "chunk-average", options.chunked_length)
    for place in options.longform:
        found[Path(place).name] = lambda place=place: Contender(Path(place).name, place, "whole", None)
    return found


def measure(name: str, contender: Contender, data: Tables, options: argparse.Namespace) -> None:
    """A record of the contender, one of BM25, and one of both fused; those that are there are not written again."""
    how = RunSettings(dtype="auto", batch_tokens=options.batch_tokens)
    rows = compare_retrieval([contender], *data, how, bm25=True, score=options.score)
    there = measured(options.records)
    for row in rows:
        settings = {
            "data": name,
            "contender": row["name"],
            "queries": len(data[0]),
            "documents": len(data[1]),
            "reads": row["reads"],
        }
        if (name, row["name"]) in there:
            continue
        metrics = {
            "ndcg_at_10": row["ndcg@10"],
            "recall_at_10": row["recall@10"],
            "seconds": row["seconds"],
            "per_query": [np.round(row["per_query"], 2).tolist()],
        }
        append_record(options.records, Record(name="long_retrieval", settings=settings, metrics=metrics))
        print(settings, f"nDCG@10 {row['ndcg@10']:.1f}", flush=True)


def measured(path: Path) -> set[tuple[str, str]]:
    """The sets and contenders that have a record."""
    return {(record.settings["data"], record.settings["contender"]) for record in read_records([path])}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what lacks a record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="+", choices=SETS)
    parser.add_argument("--data", type=Path, required=True, help="folder of the parquet files")
    parser.add_argument("--longform", nargs="*", default=[], help="folders of Longforms; their names are the records'")
    parser.add_argument("--chunked", nargs="*", default=[], help="folders of other encoders, run over chunks")
    parser.add_argument(
        "--chunked-length", type=int, default=None, help="tokens of their chunks, special ones included"
    )
    parser.add_argument("--converted", nargs="*", choices=CONVERSIONS, default=[], help="converted from the original")
    parser.add_argument("--no-baselines", dest="baselines", action="store_false", help="without the original")
    parser.add_argument("--original", default=None, help="folder or hub name; all-MiniLM-L6-v2 of its package")
    parser.add_argument("--score", choices=CHUNKED, default="document", help="by what a document is ranked")
    parser.add_argument("--batch-tokens", type=int, default=8192)
    parser.add_argument("--records", type=Path, default=RECORDS / "long_retrieval.jsonl")
    options = parser.parse_args(arguments)
    options.original = options.original or str(bundled_encoder_folder())
    options.records.touch()
    with tempfile.TemporaryDirectory(prefix="longform-") as folder:
        for name in options.sets:
            data = SETS[name](options.data)
            name += PASSAGES if options.score == BEST_CHUNK else ""
            for contender, made in contenders(options, Path(folder)).items():
                if (name, contender) not in measured(options.records):
                    measure(name, made(), data, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
