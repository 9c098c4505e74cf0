"""The commands of the laboratory: options that reach it, and bad ones in one clear line."""

import json

import numpy as np
import pytest

from longform_lab.commands import reproduce as command
from longform_lab.compare import run as comparison
from longform_lab.compare import tasks as compare_tasks
from longform_lab.demo import run as demo
from longform_lab.paper.reproduce import SUBJECTS
from longform_text.cli.main import main


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


def test_digits_are_value_tokens_with_zero_left_for_padding():
    task = compare_tasks.digits_task(1)
    assert (task.vocabulary, task.longest) == (18, 64)
    assert [len(part.labels) for part in (task.train, task.validation, task.test)] == [1258, 180, 359]
    values = np.concatenate(task.train.sequences)
    assert (values.min(), values.max()) == (1, 17)
    assert task.digest() == compare_tasks.digits_task(1).digest() != compare_tasks.digits_task(2).digest()


def test_help_names_every_subject_and_its_time():
    text = " ".join(command.parser().format_help().split())
    assert all(f"{name}: " in text for name in SUBJECTS)
    assert "minutes" in text


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["compare", "--task", "chess"], '--task is "chess"'),
        (["compare", "--scale", "huge"], '--scale is "huge"'),
        (["compare", "--task", "text"], "needs data"),
        (["compare", "--task", "bytes"], "needs data"),
        (["compare", "--task", "digits", "--data", "x"], "makes its own data"),
        (["compare", "--task", "digits", "--vocabulary", "50"], "is for --task text"),
        (["compare", "--task", "listops", "--text-field", "body"], "are for --task text"),
        (["compare", "--task", "digits", "--pooling", "last"], '--pooling is "last"'),
        (["compare", "--task", "digits", "--projection-init", "zero"], '--projection-init is "zero"'),
        (["compare", "--task", "digits", "--length", "10"], "--length is for texts"),
        (["compare", "--task", "listops", "--length", "2"], "3 tokens or more"),
        (["compare", "--task", "digits", "--steps", "0"], "steps=0 must be more than 0"),
        (["compare", "--data", "nowhere.jsonl"], "nowhere.jsonl"),
        (["reproduce", "figure9"], 'SUBJECT is "figure9"'),
        (["reproduce", "figure3a"], "figure3a needs --text"),
        (["reproduce", "table2"], "table2 needs --data"),
        (["reproduce", "table1", "--text", "x.txt"], "table1 makes no use of --text"),
        (["reproduce", "table3", "--also", "window"], "no use of --also"),
        (["reproduce", "table3", "--scale", "huge"], '--scale is "huge"'),
        (["reproduce", "table3", "--lengths", "1"], "2 tokens or more"),
        (["reproduce", "table3", "--lengths", "128"], "k above n/2 is not measured"),
        (["reproduce", "figure1", "--text", "x.txt", "--lengths", "32", "64"], "one length, not 2"),
        (["reproduce", "table1", "--lengths", "512"], "two lengths or more"),
        (["reproduce", "figure3a", "--text", "nowhere.txt"], "nowhere.txt"),
        (["reproduce", "figure3a", "--text", "-"], "cannot be read again"),
        (["reproduce", "figure3a", "--text", "x.txt", "--preset", "enormous"], 'no preset "enormous"'),
        (["reproduce", "table2", "--data", "x", "--lengths", "64", "128"], "cuts texts to one length of 2 to 512"),
        (["reproduce", "table2", "--data", "nowhere"], '"nowhere" is not a folder'),
    ],
)
def test_bad_options_are_one_clear_line(line, said, tmp_path, capsys):
    assert main([*line, "--output", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()  # the right command is not refused afterwards


@pytest.mark.parametrize("subject", [["figure3a", "--text", "x.txt"], ["table2", "--data", "x"], ["table1"]])
def test_torchrun_is_refused(subject, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["reproduce", *subject, "--output", str(tmp_path / "out")]) == 2
    assert "one process a training" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_help_of_demo_hides_the_scale(capsys):
    assert main(["demo", "--help"]) == 0
    printed = capsys.readouterr().out
    for option in ("--output", "--seed", "--restart"):
        assert option in printed
    assert "--scale" not in printed


def test_options_reach_the_demo(tmp_path, monkeypatch):
    given = {}
    monkeypatch.setattr(demo, "run_demo", lambda output, **options: given.update(output=output, **options))
    assert main(["demo", "--output", str(tmp_path), "--seed", "3", "--scale", "tiny", "--restart"]) == 0
    assert given == {"output": str(tmp_path), "seed": 3, "scale": "tiny", "restart": True}
    assert main(["demo"]) == 0
    assert (str(given["output"]), given["seed"], given["scale"], given["restart"]) == ("runs/demo", 0, "full", False)


def test_a_foreign_folder_of_demo_is_one_clear_line(tmp_path, capsys):
    (tmp_path / "thesis.txt").write_text("precious")
    assert main(["demo", "--output", str(tmp_path), "--scale", "tiny"]) == 2
    assert "is not empty (thesis.txt), and holds no demo" in capsys.readouterr().err
    assert main(["demo", "--output", str(tmp_path), "--scale", "tiny", "--restart"]) == 2
    assert (tmp_path / "thesis.txt").read_text() == "precious"
