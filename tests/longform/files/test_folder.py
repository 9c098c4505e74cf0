"""Which run a folder or an unfinished output belongs to, also where several processes begin it at once."""

import json
import os

import pytest

from longform import files as module
from longform.errors import CheckpointError, ConfigurationError
from longform.files import RunFile, check_same, differences, open_run_folder

NAME, WANTED = "reproduce.json", {"steps": 3}


def test_differences_name_what_changed():
    assert differences({"a": 1, "b": 2}, {"a": 1, "b": 3, "c": 4}) == ["b: 2 there, 3 now", "c: None there, 4 now"]
    assert differences({"a": {"x": 1, "y": 2}, "b": 0}, {"a": {"x": 1, "y": 3}}) == [
        "a.y: 2 there, 3 now", "b: 0 there, None now",
    ]  # fmt: skip
    assert differences({"a": [1, 2], "b": None}, {"a": (1, 2)}) == []  # as JSON gives it back


def test_what_differs_and_the_way_out_are_said(tmp_path):
    with pytest.raises(ConfigurationError, match=r"\(steps: 3 there, 4 now\): give the same, or another folder$"):
        check_same(tmp_path, WANTED, {"steps": 4}, otherwise="another folder")


def test_what_another_process_is_writing_does_not_make_a_folder_foreign(tmp_path):
    (tmp_path / f".{NAME}.{os.getppid()}.ab12.unfinished").write_text("{")
    open_run_folder(tmp_path, NAME, WANTED, what="trainings")
    assert json.loads((tmp_path / NAME).read_text()) == WANTED


def test_a_folder_that_another_process_begins_now_is_shared(tmp_path, monkeypatch):
    def begun_meanwhile(folder, *, but):
        (tmp_path / "locks").mkdir()
        (tmp_path / NAME).write_text(json.dumps(WANTED))
        return ["locks"]

    monkeypatch.setattr(module, "entries", begun_meanwhile)
    open_run_folder(tmp_path, NAME, WANTED, what="trainings")
    monkeypatch.undo()
    with pytest.raises(ConfigurationError, match="begun with other settings"):
        open_run_folder(tmp_path, NAME, {"steps": 4}, what="trainings")


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigurationError, match=r"is not empty \(thesis.txt\), and holds no trainings"):
        open_run_folder(tmp_path, NAME, WANTED, what="trainings")


def test_a_refused_command_leaves_no_identity_behind(tmp_path):
    open_run_folder(tmp_path, NAME, WANTED, what="trainings")
    open_run_folder(tmp_path, NAME, {"steps": 4}, what="trainings")
    assert json.loads((tmp_path / NAME).read_text()) == {"steps": 4}


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[1]",
        "3",
        '{"steps": ' + "1" * 5000 + "}",
        "[" * 100_000,
        "\ud800".encode("utf-16-le", "surrogatepass").decode("latin-1"),
    ],
)
def test_a_damaged_identity_says_what_to_do(tmp_path, content):
    (tmp_path / NAME).write_text(content)
    with pytest.raises(CheckpointError, match=r"reproduce\.json.* is damaged .*give --restart"):
        RunFile(tmp_path / NAME, tmp_path, "trainings", "--restart").read(begun=["part"])
