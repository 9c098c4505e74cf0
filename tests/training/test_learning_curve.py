"""Pictures of a training: what is drawn, and what a failure does."""

import pytest
from matplotlib.figure import Figure

from longform.training.engine.records import learning_curve


def test_a_learning_curve_shows_the_loss_and_what_was_measured(tmp_path, monkeypatch):
    drawn, savefig = [], Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda figure, *file, **how: [drawn.append(figure), savefig(figure, *file, **how)]
    )
    rows = [
        {"event": "train", "step": 1, "loss": 3.0},
        {"event": "evaluation", "step": 2, "accuracy": 0.5, "loss": 9.0},
        {"event": "train", "step": 2, "loss": 2.0},
        {"event": "end", "step": 2},
    ]
    learning_curve(rows, "evaluation", "accuracy", tmp_path / "curve.png")
    lines = [line for axes in drawn[0].axes for line in axes.lines]
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert [line.get_xydata().tolist() for line in lines] == [[[1, 3.0], [2, 2.0]], [[2, 0.5]]]


def test_a_picture_that_fails_is_a_warning(tmp_path):
    said = r"curve\.png could not be drawn \(KeyError: 'loss'\); the rest of the run is saved"

    class Broken(dict):
        def get(self, name):
            return 1.0

    with pytest.warns(UserWarning, match=said):
        learning_curve([Broken(event="train", step=1)], "evaluation", "accuracy", tmp_path / "curve.png")
    assert not list(tmp_path.iterdir())
