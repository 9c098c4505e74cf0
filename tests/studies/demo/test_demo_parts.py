"""Pictures, the choice of texts, the comparison, and peak memory."""

import math
from dataclasses import replace

import numpy as np
import pytest

from longform.data.text import Document
from longform.errors import CheckpointError
from longform.runs import pictures
from longform_lab.demo.comparing import compare
from longform_lab.demo.material import Material, every_nth, spread
from longform_lab.demo.plots import draw_learning, draw_lengths, smooth
from longform_lab.demo.report import growth
from longform_lab.demo.scale import scale_named
from longform_lab.demo.steps import _seconds_a_token, choose_texts


def document(number, category, group):
    return Document(str(number), f"text {number}", {"category": category, "group": group})


@pytest.fixture
def drawn(monkeypatch):
    """The axes of every picture that is drawn, by title."""
    found = {}
    monkeypatch.setattr(
        pictures, "save_figure", lambda figure, path: found.update({axes.get_title(): axes for axes in figure.axes})
    )
    return found


def lines_of(axes):
    return {line.get_label(): [tuple(map(float, point)) for point in line.get_xydata()] for line in axes.get_lines()}


def test_a_picture_of_lengths_has_a_line_for_each_model_that_was_measured(drawn):
    rows = [{"model": "longform", "length": n, "seconds": n / 1e3, "mib": None} for n in (128, 256, 4096)]
    rows.append({"model": "original, longer table", "length": 128, "seconds": 0.5, "mib": 7.0})
    draw_lengths(rows, None)
    time, memory = drawn["Time of one document"], drawn["Peak memory of one document"]
    assert (time.get_xscale(), time.get_yscale()) == ("log", "log")
    assert lines_of(time)["Longform"] == [(128, 0.128), (256, 0.256), (4096, 4.096)]
    assert [label for label in lines_of(time) if label == "original"] == []
    assert list(lines_of(memory).values()) == [[(128, 7.0)]]
    assert [tick.get_text() for tick in time.get_xticklabels()] == ["128", "256", "4,096"]
    low, high = time.get_ylim()
    assert low < 0.128
    assert high > 4.096


def test_a_picture_of_learning_shows_losses_and_scores(drawn):
    tuned = {
        "longform": [{"event": "train", "step": step, "loss": 0.0} for step in (1, 2)],  # a constant line
        "original": [{"event": "evaluation", "step": 2, "macro_f1": 0.5}, {"event": "evaluation", "step": 3}],
    }
    draw_learning(tuned, [], None)
    assert lines_of(drawn["Fine-tuning: training loss"]) == {"Longform": [(1, 0.0), (2, 0.0)]}
    assert lines_of(drawn["Fine-tuning: validation"]) == {"original": [(2, 0.5)]}
    assert lines_of(drawn["Healing: training loss"]) == {}


def test_single_batches_are_smoothed():
    points = [(step, float(step % 2)) for step in range(32)]
    assert smooth(points)[0] == (6, pytest.approx(3 / 7))
    assert smooth(points[:5]) == points[:5]


def test_spread_takes_few_of_a_group_and_leaves_categories_as_frequent_as_they_are():
    scale = replace(scale_named("tiny", seed=0), texts_per_group=2)
    documents = [document(n, "a" if n < 30 else "b", n // 10) for n in range(40)]
    taken = spread(documents, scale, 0)
    groups = [d.fields["group"] for d in taken]
    assert max(groups.count(group) for group in set(groups)) == 2
    assert sum(d.fields["category"] == "a" for d in taken) == 6
    assert sum(d.fields["category"] == "b" for d in taken) == 2
    assert spread(documents, scale, 0) == taken
    assert spread(documents, scale, 1) != taken


def test_every_nth_takes_of_each_category_in_proportion():
    documents = [document(n, "a" if n % 4 else "b", n) for n in range(40)]
    taken = every_nth(documents, 8)
    assert len({d.id for d in taken}) == 8
    assert sum(d.fields["category"] == "b" for d in taken) == 2
    assert len(every_nth(documents[:3], 8)) == 3


def test_fewer_texts_on_a_slow_machine(tmp_path, monkeypatch):
    scale = scale_named("tiny", seed=0)
    texts = [(str(n), "x" * 460, "a") for n in range(50)]
    material = Material("", texts, [], [], [], ["a"], {})
    monkeypatch.setattr("longform_lab.demo.steps.material_of", lambda _: material)

    def rows(pace):
        return {"rows": [{"event": "train", "tokens": n * 100, "seconds": n * 100 * pace} for n in range(4)]}

    def chosen(pace):
        found = choose_texts(None, scale, rows(pace))
        return found["heads"], found["texts"]

    assert chosen(1e-4) == (50, 50)
    # 60 s; a text is 96 tokens for the one and 48 for the other; read for a head (0.2), then to learn from (1.05)
    assert chosen(0.02) == (50, math.floor((60 - 50 * 0.02 * 144 * 0.2) / (0.02 * 144 * 1.05)))
    heads = math.floor(30 / (0.03 * 144 * 0.2))
    assert chosen(0.03) == (heads, max(8, math.floor((60 - heads * 0.03 * 144 * 0.2) / (0.03 * 144 * 1.05))))
    assert chosen(10.0) == (2 * scale.finetune.batch_size, 2 * scale.finetune.batch_size)


def test_the_pace_ignores_where_a_run_was_taken_up_again():
    def row(tokens, seconds):
        return {"event": "train", "tokens": tokens, "seconds": seconds}

    assert _seconds_a_token([row(100, 10), row(200, 20), row(300, 1), row(400, 11)]) == pytest.approx(0.1)
    assert _seconds_a_token([row(100, 10)]) == 0.0


def test_the_comparison_counts_what_the_original_cuts():
    truth = [0, 1, 0, 1, 0]
    long = {"truth": truth, "predicted": [0, 1, 0, 0, 0], "accuracy": 0.8, "macro_f1": 0.7}
    original = {"truth": truth, "predicted": [1, 1, 0, 0, 1], "truncated": [9, 0, 0, 7, 0], "accuracy": 0.4,
                "macro_f1": 0.3}  # fmt: skip
    found = compare(long, original, seed=0)
    assert found["accuracy"] == pytest.approx(0.4)
    assert found["long"] == {"texts": 2, "longform": 0.5, "original": 0.0}
    assert found["short"] == {"texts": 3, "longform": 1.0, "original": pytest.approx(2 / 3)}
    low, high = found["interval"]
    assert 0.0 <= low < 0.4 < high <= 1.0
    same = compare(original, original, seed=0)
    assert same["interval"] == [0.0, 0.0]


def test_growth_says_how_time_grows():
    rows = [
        {"model": model, "length": length, "seconds": seconds, "mib": 3.0}
        for model, length, seconds in [
            ("longform", 100, 1.0), ("longform", 400, 4.4), ("original, longer table", 100, 1.0),
            ("original, longer table", 400, 11.0),
        ]
    ]  # fmt: skip
    said = growth(rows)
    assert "100 -> 400 tokens (4 x) takes 4.4 x the time" in said
    assert "11.0 x the time" in said
    assert "at 400 tokens 4.40 s and 3 MiB instead of 11.00 s" in said
    assert "at 400 tokens 4.40 s instead of 11.00 s with full" in growth([row | {"mib": None} for row in rows])


def test_damaged_texts_say_what_to_do(tmp_path):
    (tmp_path / "texts.json").write_text('{"encoder": "x"}')
    with pytest.raises(CheckpointError, match="--restart"):
        Material.load(tmp_path / "texts.json")


def test_the_interval_is_reproducible():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 40).tolist()
    one = {"truth": truth, "predicted": rng.integers(0, 3, 40).tolist(), "truncated": [0] * 40, "accuracy": 0.0,
           "macro_f1": 0.0}  # fmt: skip
    other = {**one, "predicted": rng.integers(0, 3, 40).tolist()}
    assert compare(one, other, seed=3) == compare(one, other, seed=3)
    assert compare(one, other, seed=3)["long"] == {"texts": 0, "longform": None, "original": None}
