import dataclasses

from longform_lab.records import Record
from longform_lab.tables import write as tables
from longform_lab.tables.compare_tables import picture_name
from longform_lab.tables.draw import draw_comparisons

HARDWARE = {"cpu": "a CPU", "cpu_features": ["avx2"], "cores": 2, "threads": 1, "gpu": None}
VERSIONS = {"torch": "2.13.0", "transformers": "5.23.0"}
SETTINGS = {
    "kind": "text", "scale": "small", "task": "notes.parquet", "device": "cpu", "train_texts": 700,
    "validation_texts": 100, "test_texts": 200, "most_frequent_class": 0.25, "length": 64, "vocabulary": 300,
    "hidden_size": 16, "layers": 2, "heads": 2, "intermediate_size": 32, "projected_length": 8, "window": 4,
    "projection_init": "block_mean", "steps": 30, "batch_size": 8, "learning_rate": 1e-3, "seed": 0,
}  # fmt: skip
METRICS = {
    "accuracy": 0.5, "macro_f1": 0.4, "validation_accuracy": 0.5, "seconds": 20.0, "cpu_seconds": 10.0,
    "milliseconds_per_text": 1.25, "memory_mib": 12.0, "parameters": 4321, "tokens": 5000, "steps": 30, "best_step": 30,
}  # fmt: skip


def record(architecture, *, metrics=METRICS, gpu=None, **settings):
    return Record(
        name="compare", metrics=metrics, settings={**SETTINGS, "architecture": architecture, **settings},
        hardware={**HARDWARE, "gpu": gpu}, versions=VERSIONS, commit="abc", date="2026-11-01T00:00:00+00:00",
    )  # fmt: skip


BASELINE = dict.fromkeys(METRICS) | {"accuracy": 0.75, "cpu_seconds": 2.0, "seconds": 2.0}


def test_a_data_set_and_budget_is_a_caption_a_picture_and_a_table():
    text = tables.render_table("compare", [record("tfidf", metrics=BASELINE), record("full"), record("full", steps=60)])
    assert text.count("**notes.parquet**, scale small: 2 layers of width 16") == 2
    assert "700 texts to train on" in text
    assert "the most frequent class has 25.0%" in text.replace("\n", " ")
    assert "![test accuracy against training time: notes.parquet](../pictures/compare-notes-small-64-30.png)" in text
    assert "| full attention | 50.00 | 40.00 | 10 | 500 | 1.2 | 12 | 4,321 |" in text
    assert "| TF-IDF + logistic regression | 75.00 | – | 2 | – | – | – | – |" in text
    assert text.index("| full attention") < text.index("| TF-IDF")
    assert "*Measured on a CPU, 2 cores, avx2." in text


def test_an_architecture_that_was_measured_again_with_newer_settings_stands_there_once():
    before = record("bigbird", metrics={**METRICS, "accuracy": 0.25})
    before = dataclasses.replace(before, date="2026-10-01T00:00:00+00:00")
    text = tables.render_table("compare", [record("bigbird", pooling="mean"), before, record("full")])
    assert text.count("| BigBird (sparse) |") == 1
    assert "| BigBird (sparse) | 50.00 |" in text


def test_linformers_whose_projection_begins_otherwise_stand_beside_each_other():
    before = record("linformer")
    del before.settings["projection_init"]
    text = tables.render_table("compare", [before, record("linformer"), record("full")])
    assert text.count("**notes.parquet**") == 1
    assert "| Linformer, E begun as N(0, 1/k) | 50.00 |" in text
    assert "| Linformer | 50.00 |" in text


def test_another_pooling_is_a_table_and_a_picture_of_its_own_and_rows_without_one_are_of_the_mean():
    before = record("linformer")
    text = tables.render_table("compare", [before, record("full", pooling="mean"), record("full", pooling="cls")])
    assert text.count("**notes.parquet**") == 2
    assert text.count("mean pooling;") == 1
    assert text.count("the first token's state pooled;") == 1
    assert picture_name({**SETTINGS, "pooling": "mean"}) == picture_name(SETTINGS)
    assert picture_name({**SETTINGS, "pooling": "cls"}) == "compare-notes-small-64-30-cls.png"


def test_times_of_a_gpu_are_wall_clock_and_its_picture_has_its_own_name():
    text = tables.render_table("compare", [record("linformer", gpu="a GPU", device="cuda")])
    assert "training, wall-clock s" in text
    assert "| Linformer | 50.00 | 40.00 | 20 | 250 |" in text
    assert picture_name({**SETTINGS, "device": "cuda"}) == "compare-notes-small-64-30-gpu.png"


def test_listops_stands_beside_the_published_accuracy_at_its_length_alone():
    def rows(length):
        about = {"kind": "listops", "length": length, "task": "ListOps, 500 to 2,000 symbols"}
        return [record(name, **about) for name in ("full", "linformer", "longform")]

    long = tables.render_table("listops", rows(2000))
    assert "| full attention | 50.00 | 37.10 |" in long
    assert "| Linformer | 50.00 | 37.25 |" in long
    assert "| Longform (window) | 50.00 | – |" in long
    assert "published" not in tables.render_table("listops", rows(500))
    one = {**SETTINGS, "kind": "listops", "scale": "paper", "task": "ListOps", "length": 2000, "test_texts": 2000}
    assert picture_name(one) == "compare-listops-paper-2000-30.png"
    assert picture_name({**one, "test_texts": 20000}) == "compare-listops-paper-2000-30-tested20000.png"
    assert "Not measured yet" in tables.render_table("compare", rows(2000))


def test_a_picture_is_drawn_for_each_table_and_none_without_records(tmp_path):
    assert draw_comparisons([], tmp_path / "none") == []
    assert not (tmp_path / "none").exists()
    later = dataclasses.replace(record("full"), date="2026-11-02T00:00:00+00:00")
    rows = [record("full"), later, record("tfidf", metrics=BASELINE), record("full", learning_rate=2e-3)]
    made = draw_comparisons(rows, tmp_path)
    assert [path.name for path in made] == ["compare-notes-small-64-30.png", "compare-notes-small-64-30-rate0.002.png"]
    assert all(path.stat().st_size > 1000 for path in made)
