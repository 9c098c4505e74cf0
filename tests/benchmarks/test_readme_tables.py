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


def classified(model: str, split: int, accuracy: float) -> list[Record]:
    return [
        record("classification", {"data": data, "pooling": pooling, "model": model, "split": split}, accuracy=accuracy)
        for data, pooling in (("contracts", "cls_lead"), ("licences", "lead"))
    ]


def found(model: str, score: float) -> Record:
    return record("retrieval", {"data": "qmsum", "model": model}, ndcg_at_10=score)


def test_quality_puts_each_reading_into_its_column() -> None:
    records = [
        record("zero_shot", {"max_length": 512}, cosine=0.9),
        record("zero_shot", {"max_length": 4096}, sts_teacher=0.9, sts_spearman=0.85),
        record("healing", {"max_length": 4096, "tokens": 1}, "2026-01-01", sts_teacher=0.9, sts_spearman=0.1),
        record("healing", {"max_length": 4096, "tokens": 2}, "2026-01-02", sts_teacher=0.9, sts_spearman=0.89),
        record("healing", {"max_length": 16384, "tokens": 3}, "2026-01-03", sts_teacher=0.9, sts_spearman=0.2),
        found("original, cut at 512", 30.0),
        found("Longform, whole text", 35.0),
        found("Longform, 16,384 tokens, healed on meetings", 40.0),
        found("Longform, 16,384 tokens, healed on papers", 99.0),
        *classified("original", 1, 0.5), *classified("original", 2, 0.7), *classified("Longform", 1, 0.9),
    ]  # fmt: skip
    rows = tables.render_table("readme_quality", records).splitlines()[2:7]
    assert rows == [
        "| how alike two sentences are (STS-B dev) | Spearman × 100 | 90.0 | – | 85.0 | 89.0 |",
        "| find the meeting for a question (QMSum) | nDCG@10 × 100 | 30.0 | – | 35.0 | 40.0 |",
        "| find the paper for a summary (SciSummNet) | nDCG@10 × 100 | – | – | – | – |",
        "| classify contracts, fine-tuned, 1 splits | accuracy, % | 50.0 | – | – | 90.0 |",
        "| classify licences, fine-tuned, 1 splits | accuracy, % | 50.0 | – | – | 90.0 |",
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
