import csv

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from longform.runs import pictures
from longform.training.plots import DRAWN, confusion_matrix, confusion_table


def test_a_confusion_matrix_shows_counts_and_colours_shares_of_a_row(monkeypatch):
    drawn = []
    monkeypatch.setattr(pictures, "save_figure", lambda figure, path: drawn.extend(figure.axes))
    confusion_matrix([[3, 1], [0, 0]], ["<one>", "$two$"], None)
    axes = drawn[0]
    assert [(text.get_position(), text.get_text()) for text in axes.texts] == [((0, 0), "3"), ((1, 0), "1")]
    np.testing.assert_allclose(axes.get_images()[0].get_array(), [[0.75, 0.25], [0.0, 0.0]])
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["<one>", r"\$two\$"]  # no mathematics from labels


def test_of_many_classes_the_most_confused_are_drawn(monkeypatch, tmp_path):
    drawn = []
    monkeypatch.setattr(pictures, "save_figure", lambda figure, path: drawn.append(figure))
    counts = np.diag(np.full(400, 5))
    counts[7, 300] = counts[399, 0] = 2
    confusion_matrix(counts.tolist(), [f"class {i}" for i in range(400)], None)
    assert max(drawn[0].get_size_inches()) < 24
    axes = drawn[0].axes[0]
    names = [tick.get_text() for tick in axes.get_yticklabels()]
    assert len(names) == DRAWN
    assert {"class 0", "class 7", "class 300", "class 399"} <= set(names)
    assert names == sorted(names, key=lambda name: int(name.split()[1]))
    assert axes.get_title() == f"the {DRAWN} most confused of 400 classes"
    written = [(text.get_position(), text.get_text()) for text in axes.texts]
    assert ((names.index("class 300"), names.index("class 7")), "2") in written
    confusion_table(counts.tolist(), [f"class {i}" for i in range(400)], tmp_path / "all.csv")
    lines = (tmp_path / "all.csv").read_text().splitlines()
    assert lines[0] == "true,predicted,texts"
    assert len(lines) == 1 + 402
    assert "class 7,class 300,2" in lines


@hypothesis.given(names=st.lists(st.text(st.characters()), min_size=2, max_size=2))
@hypothesis.example(names=["\ud800", "\udfff$ $x_{$"])
@hypothesis.example(names=["中文", "हिन्दी"])
@hypothesis.example(names=["x" * 2000, "\x00\n"])
@hypothesis.settings(max_examples=10)
def test_any_name_of_a_class_can_be_drawn_and_written(names, tmp_path):
    confusion_matrix([[3, 1], [1, 2]], names, tmp_path / "a.png")
    confusion_table([[3, 1], [1, 2]], names, tmp_path / "a.csv")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    with (tmp_path / "a.csv").open(encoding="utf-8", newline="") as file:
        assert len(list(csv.reader(file))) == 5


def test_a_picture_that_fails_is_a_warning():
    said = r"curve\.png could not be drawn \(ValueError: no glyph\); the rest of the run is saved"
    with pytest.warns(UserWarning, match=said), pictures.optional("curve.png"):
        raise ValueError("no glyph")


@pytest.mark.parametrize("lack", [MemoryError("bad_alloc"), OSError("no space")])
def test_a_lack_that_may_pass_is_an_error_so_that_a_new_start_draws(lack: Exception) -> None:
    with pytest.raises(type(lack)), pictures.optional("curve.png"):
        raise lack
