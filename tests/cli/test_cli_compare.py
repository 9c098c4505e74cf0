import json

import numpy as np
import pytest

from longform.cli.main import main
from longform_lab.compare import run as comparison
from longform_lab.compare import tasks as compare_tasks


def test_digits_through_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(comparison, "step_memory", lambda *given: (1.5, ""))
    line = ["compare", "--task", "digits", "--architectures", "linformer", "--steps", "2",
            "--pooling", "cls", "--projection-init", "normal", "--output", str(tmp_path / "out")]  # fmt: skip
    assert main(line) == 0
    settings = json.loads((tmp_path / "out" / "run.json").read_text())["settings"]
    assert (settings["pooling"], settings["projection_init"]) == ("cls", "normal")
    assert "the same pooling (cls) and head" in (tmp_path / "out" / "report.html").read_text()
    assert "Linformer" in capsys.readouterr().out
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"architectures", "run.json", "records.jsonl", "comparison.png", "report.html", "table.md"}


def test_listops_is_the_published_setup_but_for_the_rate():
    found = compare_tasks.SCALES["listops", "paper"]
    assert (found.sizes["length"], found.sizes["hidden_size"], found.sizes["layers"]) == (2000, 64, 2)
    assert (found.learning.steps, found.learning.batch_size, found.learning.learning_rate) == (5000, 32, 1e-3)
    assert found.learning.warmup * found.learning.steps == 250
    assert found.examples == (96_000, 2_000, 2_000)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--task", "chess"], '--task is "chess"'),
        (["--scale", "huge"], '--scale is "huge"'),
        (["--task", "text"], "needs data"),
        (["--task", "bytes"], "needs data"),
        (["--task", "digits", "--data", "x"], "makes its own data"),
        (["--task", "digits", "--vocabulary", "50"], "is for --task text"),
        (["--task", "listops", "--text-field", "body"], "are for --task text"),
        (["--task", "digits", "--pooling", "last"], '--pooling is "last"'),
        (["--task", "digits", "--projection-init", "zero"], '--projection-init is "zero"'),
        (["--task", "digits", "--length", "10"], "--length is for texts"),
        (["--task", "listops", "--length", "2"], "3 tokens or more"),
        (["--task", "digits", "--steps", "0"], "steps=0 must be more than 0"),
        (["--data", "nowhere.jsonl"], "nowhere.jsonl"),
    ],
)
def test_bad_options_are_one_clear_line(options, said, capsys, tmp_path):
    assert main(["compare", "--output", str(tmp_path), *options]) == 2
    assert said in capsys.readouterr().err


def test_digits_are_value_tokens_with_zero_left_for_padding():
    task = compare_tasks.digits_task(1)
    assert (task.vocabulary, task.longest) == (18, 64)
    assert [len(part.labels) for part in (task.train, task.validation, task.test)] == [1258, 180, 359]
    values = np.concatenate(task.train.sequences)
    assert (values.min(), values.max()) == (1, 17)
    assert task.digest() == compare_tasks.digits_task(1).digest() != compare_tasks.digits_task(2).digest()
