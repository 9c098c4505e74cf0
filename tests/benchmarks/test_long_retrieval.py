"""The sets of long retrieval, each cell measured once, its table, and the picture of quality against speed."""

from pathlib import Path
from typing import Any

import pandas as pd

from longform_lab.experiments import long_retrieval
from longform_lab.records import Record, read_records
from longform_lab.tables.frontier_picture import draw, points
from longform_lab.tables.long_retrieval_tables import beside_each_other

MEETINGS = {"m1": "the near far good text " * 4, "m2": "bad long it is bad " * 4, "m3": "short"}


def write_sets(folder: Path) -> None:
    for part, ids in (("train", ["m1"]), ("val", ["m2", "m3"])):
        pd.DataFrame({"id": ids, "text": [MEETINGS[name] for name in ids]}).to_parquet(
            folder / f"qmsum_{part}_meetings.parquet"
        )
        queries = {"query": ["near"] * len(ids), "answer": [MEETINGS[name][:9] for name in ids], "doc": ids}
        pd.DataFrame(queries).to_parquet(folder / f"qmsum_{part}_queries.parquet")
    pd.DataFrame({"query": ["near", "bad"], "docs": [[1], [1, 2]]}).to_parquet(folder / "scifact_train_claims.parquet")
    corpus = {"id": [1, 2], "title": ["near", "bad"], "text": ["good", "long"]}
    pd.DataFrame(corpus).to_parquet(folder / "scifact_corpus.parquet")


def test_summaries_are_queries_to_all_meetings(tmp_path: Path) -> None:
    write_sets(tmp_path)
    queries, documents = long_retrieval.SETS["qmsum-summaries"](tmp_path)
    assert queries["query"].tolist() == [text[:9] for text in MEETINGS.values()]
    assert queries["relevant"].tolist() == documents["id"].tolist() == list(MEETINGS)
    queries, documents = long_retrieval.SETS["scifact"](tmp_path)
    assert queries["relevant"].tolist() == [["1"], ["1", "2"]]
    assert documents["text"].tolist() == ["near\ngood", "bad\nlong"]


def test_a_cell_is_measured_once(longform_folder: Path, tmp_path: Path) -> None:
    write_sets(tmp_path)
    records = tmp_path / "records.jsonl"
    command = ["qmsum-val", "scifact", "--data", str(tmp_path), "--longform", str(longform_folder), "--no-baselines"]
    command += ["--records", str(records)]
    assert long_retrieval.main(command) == 0
    found = read_records([records])
    own = longform_folder.name
    assert [record.settings["contender"] for record in found] == [own, "BM25", f"{own} + BM25"] * 2
    assert all(len(record.metrics["per_query"][0]) == record.settings["queries"] == 2 for record in found)
    assert long_retrieval.main(command) == 0
    assert read_records([records]) == found
    command = [*command, "--score", "best-chunk", "--chunked", str(longform_folder)]
    for _ in range(2):
        assert long_retrieval.main(command) == 0
        passages = read_records([records])[len(found) :]
        assert {record.settings["data"] for record in passages} == {"qmsum-val, best passage", "scifact, best passage"}
        cut = f"{own}, chunks cut first"
        names = [record.settings["contender"] for record in passages]
        assert names == [cut, "BM25", f"{cut} + BM25", own, f"{own} + BM25"] * 2


def record(name: str, metrics: dict[str, Any], **settings: Any) -> Record:
    return Record(name=name, settings=settings, metrics=metrics)


def retrieval(contender: str, values: list[float]) -> Record:
    metrics = {"ndcg_at_10": sum(values) / len(values), "per_query": [values]}
    return record("long_retrieval", metrics, data="qmsum-val", contender=contender)


RETRIEVAL = [
    retrieval("original, chunks averaged", [50.0, 50.0]), retrieval("BM25", [60.0, 60.0]),
    retrieval("window 64", [51.0, 51.0]), retrieval("window 64 + BM25", [64.0, 64.0]),
]  # fmt: skip


def test_differences_are_paired_by_query() -> None:
    heads, body = beside_each_other([vars(each) for each in RETRIEVAL])
    assert body == [
        ["qmsum-val", "original, chunks averaged", "chunks of 512 tokens", "50.0", "50.0 to 50.0", "", "", "", ""],
        ["qmsum-val", "BM25", "all words", "60.0", "60.0 to 60.0", "+10.0 (+10.0 to +10.0)", "", "", ""],
        ["qmsum-val", "window 64", "first 32,768 tokens", "51.0", "51.0 to 51.0", "+1.0 (+1.0 to +1.0)",
         "64.0", "64.0 to 64.0", "+4.0 (+4.0 to +4.0)"],
    ]  # fmt: skip
    assert len(heads) == 9


def test_a_point_has_the_quality_of_its_model(tmp_path: Path) -> None:
    def read(reading: str, speed: float | None, threads: int = 1) -> Record:
        metrics = {"missing": None if speed else "not installed", "documents_per_second": speed}
        return record("documents", metrics, reading=reading, threads=threads)

    documents = [
        read("chunks, OpenVINO", 3.0), read("Longform, window 64, float32", 2.0),
        read("chunks, ONNX Runtime int8", None),
        read("Longform, pure mean, float32", 9.0), read("chunks, OpenVINO", 5.0, threads=2),
    ]  # fmt: skip
    every = [*RETRIEVAL, *documents]
    chunks = "original, chunks averaged"
    assert points(every) == {(chunks, "OpenVINO"): (3.0, 50.0), ("window 64", "Longform float32"): (2.0, 51.0)}
    every.append(retrieval("original aligned on meetings, chunks averaged", [70.0]))
    assert points(every)["original aligned on meetings, chunks averaged", "OpenVINO"] == (3.0, 70.0)
    assert draw(every, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000
    assert not draw(documents, tmp_path / "b.png")
