"""``longform search``: questions as they are typed, what is searched, and what is said beside the answers."""

import io
import json
from pathlib import Path

import pytest

from longform_text.cli.main import main


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "texts" / "deep").mkdir(parents=True)
    (tmp_path / "texts" / "near.txt").write_text("line one\nAt -40 degrees --dry-run is near it.\n")
    (tmp_path / "texts" / "deep" / "far.md").write_text("# Far\n\nfar it is bad.\n")
    (tmp_path / "texts" / "broken.docx").write_bytes(b"PK")
    return tmp_path / "texts"


def ask(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[list[str], str]:
    """The files that answer, and what else was said."""
    capsys.readouterr()
    assert main(["search", *map(str, arguments), "--json"]) == 0
    said = capsys.readouterr()
    return [json.loads(line)["file"] for line in said.out.splitlines()], said.err


def test_one_file_or_folder_is_searched_alone(
    folder: Path, longform_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ("--model", longform_folder)
    files, said = ask(capsys, folder, "near", *model)
    assert sorted(files) == ["deep/far.md", "near.txt"]
    assert "passed over  broken.docx: not a readable docx file" in said
    assert ask(capsys, folder / "near.txt", "far", *model) == (["near.txt"], "")
    index = ("--index", folder / ".longform")
    assert ask(capsys, folder / "deep", "near", *model, *index) == (["deep/far.md"], "")


@pytest.mark.parametrize("question", ["-40 degrees", "--dry-run near", "-1", "->next near"])
def test_a_question_that_begins_with_a_dash(
    question: str, folder: Path, longform_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(ask(capsys, folder, question, "--model", longform_folder)[0]) == 2
    assert main(["search", "--model", str(longform_folder), "--json", "--", str(folder), question]) == 0
    assert main(["search", str(folder), "--dry-run"]) == 2
    assert 'a text that begins with a dash comes after " -- "' in capsys.readouterr().err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_without_a_question_a_terminal_asks_for_them(
    folder: Path, longform_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["search", str(folder), "--model", str(longform_folder)]
    monkeypatch.setattr("sys.stdin", io.StringIO("near\n"))
    assert main(arguments) == 0
    assert capsys.readouterr().out == ""
    monkeypatch.setattr("sys.stdin", Terminal("degrees\n\nbad\n"))
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "near.txt, line 2" in said
    assert "At -40 **degrees** --dry-run" in said
    assert "deep/far.md, line 3  Far" in said
    monkeypatch.setattr("sys.stdout", terminal := Terminal())
    assert main(["search", str(folder), "degrees", *arguments[2:]]) == 0
    assert f"\x1b]8;;{(folder / 'near.txt').as_uri()}#line=2\x1b\\near.txt\x1b]8;;\x1b\\, line 2" in terminal.getvalue()


def test_what_does_not_fit_is_said(
    folder: Path, longform_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longform_text.search.ranking.FITS", 2.0)
    assert main(["search", str(folder), "near", "--model", str(longform_folder)]) == 0
    assert capsys.readouterr().out.startswith("nothing fits well; the nearest:\n\n1. ")
