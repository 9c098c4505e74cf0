"""The table of long retrieval, and the picture of quality against speed."""

from typing import Any

from longform_lab.records import Record
from longform_lab.tables.long_retrieval_tables import beside_each_other, passages


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
        ["qmsum-val", "original, chunks averaged", "50.0", "", "", ""],
        ["qmsum-val", "BM25", "60.0", "+10.0 (+10.0 to +10.0)", "", ""],
        ["qmsum-val", "window 64", "51.0", "+1.0 (+1.0 to +1.0)", "64.0", "+4.0 (+4.0 to +4.0)"],
    ]  # fmt: skip
    assert len(heads) == 6


def test_passages_are_compared_with_the_best_of_chunks_read_alone() -> None:
    values = {"BM25": 40.0, "alone": 50.0, "alone + 0.5 mean": 52.0, "alone, title": 60.0, "whole": 53.0,
              "whole + BM25": 55.0, "whole, title": 58.0}  # fmt: skip
    rows = [
        vars(record("passages", {"per_query": [[value, value]]}, data="a", contender=name, steps=7))
        for name, value in values.items()
    ]
    assert passages(rows)[1] == [
        ["a", "7", "BM25", "40.0", "-12.0 (-12.0 to -12.0)", ""],
        ["a", "7", "alone", "50.0", "-2.0 (-2.0 to -2.0)", ""],
        ["a", "7", "alone + 0.5 mean", "52.0", "", ""],
        ["a", "7", "alone, title", "60.0", "", ""],
        ["a", "7", "whole", "53.0", "+1.0 (+1.0 to +1.0)", "55.0"],
        ["a", "7", "whole, title", "58.0", "-2.0 (-2.0 to -2.0)", ""],
    ]
