from typing import Any

from longform_lab.records import Record
from longform_lab.tables.write import render_table

HARDWARE = {"cpu": "a CPU", "cpu_features": ["avx2"], "cores": 1, "threads": 1, "gpu": None}
VERSIONS = {"torch": "2.13.0", "transformers": "5.23.0"}


def record(model: str, split: int | None, accuracy: float, commit: str = "abc", pooling: str = "lead") -> Record:
    settings: dict[str, Any] = {
        "data": "laws", "pooling": pooling, "model": model, "max_length": 4096 if model == "Longform" else 512,
        "train_documents": 40, "test_documents": 60,
    }  # fmt: skip
    return Record(
        name="classification", settings=settings if split is None else {**settings, "split": split},
        metrics={"accuracy": accuracy, "macro_f1": accuracy / 2}, hardware=HARDWARE, versions=VERSIONS, commit=commit,
        date=f"2026-11-{20 + (split or 0)}T00:00:00+00:00",
    )  # fmt: skip


def test_means_are_over_the_splits_that_both_models_have():
    records = [
        record("Longform", 1, 0.70), record("original", 1, 0.68), record("Longform", 2, 0.60),
        record("original", 2, 0.62), record("Longform", 3, 0.10), record("original", None, 0.99, commit="old"),
        record("Longform", 1, 0.90, pooling="cls"),
    ]  # fmt: skip
    found = render_table("classification", records)
    assert "| laws | lead | 3e-05 | Longform | 4,096 | 2 | 65.0 ± 7.1 | 32.5 ± 3.5 |" in found
    assert "| laws | lead | 3e-05 | original | 512 | 2 | 65.0 ± 4.2 | 32.5 ± 2.1 |" in found
    assert "| laws | lead | 3e-05 | Longform is better by |  | 2 | +0.0 ± 2.8 | +0.0 ± 1.4 |" in found
    assert "| laws | cls |" not in found
    assert "old" not in found


def test_without_a_common_split_nothing_is_shown():
    assert render_table("classification", [record("Longform", 1, 0.7)]) == "*Not measured yet.*\n"
