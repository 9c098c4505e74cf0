"""The folder of a run, also where several processes begin it at once."""

import json

import pytest

from longform.errors import ConfigurationError
from longform.runs import folder as module
from longform.runs.folder import open_run_folder

NAME, WANTED = "reproduce.json", {"steps": 3}


def test_what_another_process_is_writing_does_not_make_a_folder_foreign(tmp_path):
    (tmp_path / f".{NAME}.123.unfinished").write_text("{")
    open_run_folder(tmp_path, NAME, WANTED, what="trainings")
    assert json.loads((tmp_path / NAME).read_text()) == WANTED


def test_a_folder_that_another_process_begins_now_is_shared(tmp_path, monkeypatch):
    def begun_meanwhile(output, path):
        (tmp_path / "claims").mkdir()
        path.write_text(json.dumps(WANTED))
        return True

    monkeypatch.setattr(module, "_others", begun_meanwhile)
    open_run_folder(tmp_path, NAME, WANTED, what="trainings")
    monkeypatch.undo()
    with pytest.raises(ConfigurationError, match="made with other settings"):
        open_run_folder(tmp_path, NAME, {"steps": 4}, what="trainings")


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigurationError, match="is not empty, and holds no trainings"):
        open_run_folder(tmp_path, NAME, WANTED, what="trainings")
