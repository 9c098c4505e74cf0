import numpy as np

from longform.runs import pictures
from longform.training.plots import confusion_matrix


def test_a_confusion_matrix_shows_counts_and_colours_shares_of_a_row(monkeypatch):
    drawn = []
    monkeypatch.setattr(pictures, "save_figure", lambda figure, path: drawn.extend(figure.axes))
    confusion_matrix([[3, 1], [0, 0]], ["<one>", "$two$"], None)
    axes = drawn[0]
    assert [(text.get_position(), text.get_text()) for text in axes.texts] == [((0, 0), "3"), ((1, 0), "1")]
    np.testing.assert_allclose(axes.get_images()[0].get_array(), [[0.75, 0.25], [0.0, 0.0]])
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["<one>", r"\$two\$"]  # no mathematics from labels
