"""Every command that writes asks first whether the output is its own to write."""

import shutil
from pathlib import Path

import pytest

from longform.cli.main import main
from longform.data.storage import only_writer

FILES = {
    "embed": "embed M T --output", "predict": "predict M T --output",
    "sts": "evaluate sts --longform M --data T --fields [text,text,label] --output",
    "classification": "evaluate classification --original M --data T --output",
    "retrieval": "evaluate retrieval --longform M --queries T --documents T --query-field text --relevant-field label "
    "--id-field label --output",
}  # fmt: skip
FOLDERS = {
    "convert": "convert M", "distill": "distill M M T --output",
    "align": "align M T --query-field text --document-field label --output",
    "finetune": "finetune M T --output",
    "pretrain": "pretrain T --tokenizer M --output", "spectrum": "spectrum M --text T --output",
    "compare": "compare --data T --output",
    "figure1": "reproduce figure1 --model M --text T --output",
    "table2": "reproduce table2 --model M --data T --output",
    "figure3a": "reproduce figure3a --text T --output", "shared": "reproduce figure3a --text T --shared",
}  # fmt: skip
WITHOUT_INPUTS = {
    "demo": "demo --scale tiny --output", "benchmark": "benchmark --output", "restart": "benchmark --restart --output",
    "anew": "demo --scale tiny --restart --output", "table1": "reproduce table1 --output",
    "table3": "reproduce table3 --output",
}  # fmt: skip
SHARED = (
    "compare",
    "figure1",
    "table2",
    "figure3a",
    "shared",
    "table1",
    "table3",
)  # by several processes, or locked below


@pytest.fixture
def place(tmp_path: Path, longform_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model M and texts T, side by side."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(longform_folder, tmp_path / "M")
    (tmp_path / "T").mkdir()
    (tmp_path / "T" / "a.jsonl").write_text('{"text": "good", "label": "bad"}\n' * 20)
    return tmp_path


def refused(command: str, output: str, capsys: pytest.CaptureFixture[str], place: Path) -> str:
    """What is said about an output that is refused; nothing is changed."""
    before = {path: path.is_file() and path.read_bytes() for path in place.rglob("*")}
    assert main([word.replace("T", "T/a.jsonl") if word == "T" else word for word in command.split()] + [output]) == 2
    assert {path: path.is_file() and path.read_bytes() for path in place.rglob("*")} == before
    return capsys.readouterr().err.strip().splitlines()[-1]


@pytest.mark.parametrize("command", FILES)
def test_a_file_that_is_read_is_not_written(command: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "other.jsonl").symlink_to("T/a.jsonl")
    for output in ("T/a.jsonl", "other.jsonl", "M/out.jsonl"):
        assert "which is read: give another output" in refused(FILES[command], output, capsys, place)
    (place / "out.jsonl").mkdir()
    assert 'out.jsonl" is a folder: give a file' in refused(FILES[command], "out.jsonl", capsys, place)


@pytest.mark.parametrize("command", FOLDERS)
def test_a_folder_that_is_read_is_not_written(command: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "other").symlink_to(place)
    for output in (".", "other", "T", *(["M", "M/out"] if " M" in FOLDERS[command] else [])):
        if not (command == "convert" and output == "T"):
            assert "which is read: give another output" in refused(FOLDERS[command], output, capsys, place)


@pytest.mark.parametrize("command", {**FOLDERS, **WITHOUT_INPUTS})
def test_a_folder_of_something_else_and_a_file_are_refused(
    command: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "papers").mkdir()
    (place / "papers" / "thesis.txt").write_text("years of work")
    asked = {**FOLDERS, **WITHOUT_INPUTS}[command]
    assert 'thesis.txt" is a file: give a folder' in refused(asked, "papers/thesis.txt", capsys, place)
    if command != "shared":  # a cache, and trainings in folders of their own
        said = refused(asked, "papers", capsys, place)
        assert "is not empty" in said or "was not made by the demo" in said


@pytest.mark.parametrize("command", {**FILES, **FOLDERS, **WITHOUT_INPUTS})
def test_one_process_at_a_time(command: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if command in SHARED or "evaluate" in FILES.get(command, ""):
        return
    with only_writer(place / "out.jsonl"):
        assert "is being written by another process" in refused(
            {**FILES, **FOLDERS, **WITHOUT_INPUTS}[command], "out.jsonl", capsys, place
        )
