"""Pictures of a training: what is drawn, whatever labels are called, and what a failure does."""

import csv

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from longform.training.engine import pictures
from longform.training.engine.pictures import DRAWN, confusion_matrix, learning_curve
from longform.training.finetuning.job import confusion_table


@pytest.fixture
def drawn(monkeypatch):
    """Figures that would be saved, each with its size in inches."""
    from matplotlib.figure import Figure

    made = []

    def keep(path, size, draw):
        made.append(Figure(figsize=size))
        draw(made[-1])

    monkeypatch.setattr(pictures, "_save", keep)
    return made


def test_a_confusion_matrix_shows_counts_and_colours_shares_of_a_row(drawn):
    confusion_matrix([[3, 1], [0, 0]], ["<one>", "$two$"], None)
    axes = drawn[0].axes[0]
    assert [(text.get_position(), text.get_text()) for text in axes.texts] == [((0, 0), "3"), ((1, 0), "1")]
    np.testing.assert_allclose(axes.get_images()[0].get_array(), [[0.75, 0.25], [0.0, 0.0]])
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["<one>", r"\$two\$"]  # no mathematics from labels


def test_of_many_labels_the_most_confused_are_drawn(drawn, tmp_path):
    counts = np.diag(np.full(400, 5))
    counts[7, 300] = counts[399, 0] = 2
    labels = [f"class {i}" for i in range(400)]
    confusion_matrix(counts.tolist(), labels, None)
    assert max(drawn[0].get_size_inches()) < 24
    axes = drawn[0].axes[0]
    names = [tick.get_text() for tick in axes.get_yticklabels()]
    assert len(names) == DRAWN
    assert {"class 0", "class 7", "class 300", "class 399"} <= set(names)
    assert names == sorted(names, key=lambda name: int(name.split()[1]))
    assert axes.get_title() == f"the {DRAWN} most confused of 400 labels"
    written = [(text.get_position(), text.get_text()) for text in axes.texts]
    assert ((names.index("class 300"), names.index("class 7")), "2") in written
    confusion_table(counts.tolist(), labels, tmp_path / "all.csv")
    lines = (tmp_path / "all.csv").read_text().splitlines()
    assert len(lines) == 1 + 402
    assert "class 7,class 300,2" in lines


def test_a_learning_curve_shows_the_loss_and_what_was_measured(drawn):
    rows = [
        {"event": "train", "step": 1, "loss": 3.0},
        {"event": "evaluation", "step": 2, "accuracy": 0.5, "loss": 9.0},
        {"event": "train", "step": 2, "loss": 2.0},
        {"event": "end", "step": 2},
    ]
    learning_curve(rows, "evaluation", "accuracy", None)
    lines = [line for axes in drawn[0].axes for line in axes.lines]
    assert [line.get_xydata().tolist() for line in lines] == [[[1, 3.0], [2, 2.0]], [[2, 0.5]]]


@hypothesis.given(names=st.lists(st.text(st.characters()), min_size=2, max_size=2))
@hypothesis.example(names=["\ud800", "\udfff$ $x_{$"])
@hypothesis.example(names=["中文", "हिन्दी"])
@hypothesis.example(names=["x" * 2000, "\x00\n"])
@hypothesis.settings(max_examples=10)
def test_any_name_of_a_label_can_be_drawn_and_written(names, tmp_path):
    confusion_matrix([[3, 1], [1, 2]], names, tmp_path / "a.png")
    confusion_table([[3, 1], [1, 2]], names, tmp_path / "a.csv")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    with (tmp_path / "a.csv").open(encoding="utf-8", newline="") as file:
        assert len(list(csv.reader(file))) == 5


def test_a_picture_that_fails_is_a_warning(tmp_path):
    said = r"curve\.png could not be drawn \(KeyError: 'loss'\); the rest of the run is saved"

    class Broken(dict):
        def get(self, name):
            return 1.0

    with pytest.warns(UserWarning, match=said):
        learning_curve([Broken(event="train", step=1)], "evaluation", "accuracy", tmp_path / "curve.png")
    assert not list(tmp_path.iterdir())
