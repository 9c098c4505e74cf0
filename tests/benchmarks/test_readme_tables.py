"""The tables of README.md, from records of their own."""

from typing import Any

from longform_lab.records import Record
from longform_lab.tables import write as tables

HARDWARE = {"cpu": "a CPU", "cpu_features": ["avx2", "avx512_bf16"], "cores": 2, "threads": 2, "gpu": None}
VERSIONS = {"torch": "2.13.0", "transformers": "5.23.0"}


def record(name: str, settings: dict[str, Any], date: str = "2026-01-01", **metrics: Any) -> Record:
    return Record(
        name=name, settings=settings, metrics=metrics, hardware=HARDWARE, versions=VERSIONS, commit="abc", date=date
    )


def found(data: str, contender: str, score: float, date: str = "2026-01-01") -> Record:
    return record("long_retrieval", {"data": data, "contender": contender}, date, ndcg_at_10=score)


def test_quality_puts_each_reading_into_its_column() -> None:
    records = [
        record("sts", {"model": "original"}, sts_spearman=90.0),
        record("sts", {"model": "minilm-16k"}, sts_spearman=85.0),
        record("sts", {"model": "minilm-passages"}, sts_spearman=1.0),
        record("sts", {"model": "original trained as minilm-16k"}, sts_spearman=87.0),
        found("qmsum-val", "original, cut", 30.0),
        found("qmsum-val", "original, chunks averaged", 35.0),
        found("qmsum-val", "minilm-16k", 1.0),
        found("qmsum-val", "minilm-16k", 40.0, "2026-01-02"),
        found("qmsum-val", "minilm-16k + BM25", 50.0),
        found("qmsum-val", "original trained as minilm-16k, chunks averaged", 41.0),
        found("qmsum-val", "original trained as minilm-16k, chunks averaged + BM25", 51.0),
        found("scifact", "BM25", 45.0),
    ]
    rows = tables.render_table("readme_quality", records).splitlines()[2:6]
    assert rows == [
        "| how alike two sentences are (STS-B dev) | Spearman × 100 | 90.0 | – | 87.0 | 85.0 | – | – | – |",
        "| find the meeting for a question (QMSum) | nDCG@10 × 100 | 30.0 | 35.0 | 41.0 | 40.0 | 51.0 | 50.0 | – |",
        "| find the paper for a summary (SciSummNet; others of its papers were trained on) | nDCG@10 × 100 "
        "| – | – | – | – | – | – | – |",
        "| find the abstract for a claim (SciFact, short texts) | nDCG@10 × 100 | – | – | – | – | – | – | 45.0 |",
    ]


def test_speed_shows_the_lengths_at_which_all_three_encoders_were_measured() -> None:
    def passed(competitor: str, length: int, seconds: float, ratio: float) -> Record:
        settings = {
            "competitor": competitor, "length": length, "slots": 256, "size": "base", "work": "inference", "batch": 1,
            "dtype": "bfloat16", "mode": "eager", "device": "cpu",
        }  # fmt: skip
        return record("speed", settings, seconds=seconds, against_sdpa=ratio)

    records = [
        passed(name, 2_048, seconds, ratio)
        for name, seconds, ratio in (("sdpa", 8.0, 1.0), ("ours-window", 4.0, 2.0), ("ours-linear", 2.0, 4.0))
    ]
    records += [passed("sdpa", 8_192, 9.0, 1.0), passed("ours-window", 1_024, 1.0, 1.0)]
    body = tables.render_table("readme_speed", records).splitlines()[2:4]
    assert body == ["| 2,048 | 8.00 s | 4.00 s | 2.00 s | 2.0 | 4.0 |", ""]
