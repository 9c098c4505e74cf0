import dataclasses
import json

import pytest

from longform.cli.main import main
from longform_lab.compare import run as comparison
from longform_lab.compare import tasks as compare_tasks


def test_digits_through_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(comparison, "step_memory", lambda name, sizes, texts, device: (1.5, ""))
    line = ["compare", "--task", "digits", "--architectures", "linformer", "--steps", "2", "--patch", "2",
            "--pooling", "cls", "--projection-init", "normal", "--output", str(tmp_path / "out")]  # fmt: skip
    assert main(line) == 0
    settings = json.loads((tmp_path / "out" / "run.json").read_text())["settings"]
    assert (settings["pooling"], settings["projection_init"]) == ("cls", "normal")
    assert "the same pooling (cls) and head" in (tmp_path / "out" / "report.html").read_text()
    assert "Linformer" in capsys.readouterr().out
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"architectures", "run.json", "records.jsonl", "comparison.png", "report.html", "table.md"}


def test_listops_is_the_published_setup_but_for_the_rate():
    found = compare_tasks.scale("listops", "paper")
    assert (found.sizes["length"], found.sizes["hidden_size"], found.sizes["layers"]) == (2000, 64, 2)
    assert (found.learning.steps, found.learning.batch_size, found.learning.learning_rate) == (5000, 32, 1e-3)
    assert found.learning.warmup * found.learning.steps == 250
    assert found.examples == (96_000, 2_000, 2_000)


def test_more_test_texts_begin_with_the_same_ones_and_change_no_other_part(monkeypatch):
    few = dataclasses.replace(compare_tasks.scale("listops", "small"), examples=(5, 3, 4))
    monkeypatch.setitem(compare_tasks._TABLE, ("listops", "small"), few)
    usual, more = (compare_tasks.open_task("listops", test_texts=count, progress=False).task for count in (None, 7))
    assert (len(usual.test.labels), len(more.test.labels)) == (4, 7)
    for ours, theirs in zip((*usual.train[0], *usual.test[0]), (*more.train[0], *more.test[0][:4]), strict=True):
        assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--task", "chess"], '--task is "chess"'),
        (["--scale", "huge"], '--scale is "huge"'),
        (["--task", "text"], "needs data"),
        (["--task", "digits", "--data", "x"], "makes its own data"),
        (["--task", "digits", "--vocabulary", "50"], "are for --task text"),
        (["--task", "listops", "--text-field", "body"], "are for --task text"),
        (["--task", "listops", "--patch", "2"], "--patch is for images"),
        (["--task", "digits", "--pooling", "last"], '--pooling is "last"'),
        (["--task", "digits", "--projection-init", "zero"], '--projection-init is "zero"'),
        (["--task", "digits", "--test-texts", "10"], "--test-texts is for listops"),
        (["--task", "listops", "--test-texts", "0"], "--test-texts 0 must be at least 1"),
        (["--task", "digits", "--length", "10"], "--length is for texts"),
        (["--task", "listops", "--length", "2"], "3 tokens or more"),
        (["--task", "digits", "--steps", "0"], "steps=0 must be more than 0"),
        (["--data", "nowhere.jsonl"], "nowhere.jsonl"),
    ],
)
def test_bad_options_are_one_clear_line(options, said, capsys, tmp_path):
    assert main(["compare", "--output", str(tmp_path), *options]) == 2
    assert said in capsys.readouterr().err
