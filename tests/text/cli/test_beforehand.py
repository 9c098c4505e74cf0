"""Sources, options and outputs are looked at before torch is imported, let alone a model loaded."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import longform
from longform.errors import DataError
from longform.files import only_writer
from longform_text.cli.main import main
from longform_text.data.given import Files
from longform_text.data.text import FILES_LOOKED_AT, look

CALL = """import contextlib, io, json, sys
from longform_text.cli.main import main
for line in json.load(sys.stdin):
    with contextlib.redirect_stderr(io.StringIO()) as said:
        status = main(line.split())
    print(json.dumps([status, said.getvalue(), sorted({"torch", "transformers"} & sys.modules.keys())]))
"""
COLUMNS = 'a.csv: no field "other"; the fields there are: text, label'
EMPTY = "no documents in {}: nothing but white space"
REFUSED: dict[str, tuple[str, str]] = {
    "embed, column": ("embed MODEL a.csv --output out.jsonl --text-field other", COLUMNS),
    "embed, id": ("embed MODEL a.csv --output out.jsonl --id-field other", COLUMNS),
    "embed, kept": ("embed MODEL a.csv --output out --keep own=label new=other", COLUMNS),
    "embed, kept of text": ("embed MODEL a.txt --output out.jsonl --keep x", 'a.txt: no field "x" to keep; plain t'),
    "embed, kept of lines": ("embed MODEL - --output out --keep text x", 'standard input: no field "x" to keep; plain'),
    "predict, kept": ("predict MODEL mixed --output out.jsonl --keep n=label", 'a.txt: no field "label"'),
    "embed, blank": ("embed MODEL blank.txt --output out.parquet", EMPTY.format("blank.txt")),
    "embed, nothing": ("embed MODEL none.jsonl --output out.jsonl", EMPTY.format("none.jsonl")),
    "embed, header alone": ("embed MODEL header.csv --output out.jsonl", EMPTY.format("header.csv")),
    "embed, no output": ("embed MODEL a.csv", "--output must be given"),
    "predict, remembered column": ("predict REMEMBERS a.csv --output out.jsonl", 'a.csv: no field "body"'),
    "predict, pair": ("predict MODEL a.csv --output out.jsonl --pair-field other", COLUMNS),
    "finetune, column": ("finetune MODEL a.csv --output out --label-field other", COLUMNS),
    "finetune, validation": ("finetune MODEL a.csv --validation none.jsonl --output out", EMPTY.format("none.jsonl")),
    "finetune, no output": ("finetune MODEL a.csv", "--output must be given"),
    "finetune, option": ("finetune MODEL a.csv --ouput out", "did you mean \"--output\""),
    "distill, column": ("distill MODEL MODEL a.csv --output out --text-field other", COLUMNS),
    "distill, blank": ("distill MODEL MODEL blank.txt none.jsonl --output out", "no documents in blank.txt, none.jso"),
    "pretrain, column": ("pretrain a.csv --output out --text-field other", COLUMNS),
    "pretrain, validation": ("pretrain a.csv --validation blank.txt --output out", EMPTY.format("blank.txt")),
    "align, column": ("align MODEL a.csv --output out --query-field text --document-field other", COLUMNS),
    "align, documents": ("align MODEL q.jsonl --documents a.csv --output out --id-field other", COLUMNS),
    "export, no folder": ("export nowhere", '"nowhere" is no folder: export reads'),
    "export, no weights": ("export BARE", 'the folder "BARE" has no weights: no file in it ends in .safetensors'),
    "embed, no weights": ("embed BARE a.csv --output out", 'the folder "BARE" has no weights'),
    "convert, no weights": ("convert BARE out", 'the folder "BARE" has no weights'),
    "convert, idf": ("convert MODEL out --idf blank.txt", EMPTY.format("blank.txt")),
}  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, content in {
        "a.csv": 'text,label\n"of\nseveral lines",x\n',
        "q.jsonl": '{"query": "x", "relevant": 1}\n',
        "a.txt": "of several words",
        "mixed/a.csv": "text,label\none,x\n",
        "mixed/a.txt": "two",
        "header.csv": "text,label\n",
        "blank.txt": " \n\n\t",
        "none.jsonl": "",
    }.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(content)
    for model, config in {"MODEL": {}, "REMEMBERS": {"fine_tuning": {"text_field": "body"}}}.items():
        Path(model).mkdir()
        Path(model, "config.json").write_text(json.dumps({"model_type": "linformer", **config}))
        Path(model, "model.safetensors").touch()
    Path("BARE").mkdir()
    Path("BARE", "config.json").write_text("{}")
    return tmp_path


def test_what_cannot_be_is_said_before_torch_is_imported(here: Path) -> None:
    lines = json.dumps([line for line, _ in REFUSED.values()])
    done = subprocess.run([sys.executable, "-c", CALL], input=lines, capture_output=True, text=True, check=True)
    for (line, expected), found in zip(REFUSED.values(), done.stdout.splitlines(), strict=True):
        status, said, imported = json.loads(found)
        assert (status, imported, len(said.splitlines())) == (2, [], 1), (line, said)
        assert expected in said, line
    assert not Path("out").exists()


def test_the_same_from_python_before_a_model_is_loaded(here: Path) -> None:
    rows = [{"text": "near", "label": "x"}]
    for call in (
        lambda: longform.embed("MODEL", Files(("a.csv",)), text_field="other"),
        lambda: longform.embed("MODEL", rows, text_field="other"),
        lambda: longform.embed("MODEL", rows, keep=["other"]),
        lambda: longform.embed("MODEL", "a.txt", keep=["other"]),
        lambda: longform.embed("MODEL", ["a text"], keep=["other"]),
        lambda: longform.predict("REMEMBERS", "a.csv"),
        lambda: longform.distill("MODEL", "MODEL", "a.csv", text_field="other"),
        lambda: longform.align("MODEL", "a.csv"),
    ):
        with pytest.raises(DataError, match="no field"):
            call()
    for empty in ("blank.txt", [], ["blank.txt", "none.jsonl"]):
        with pytest.raises(DataError, match="no documents in"):
            longform.embed("MODEL", empty)


def test_an_empty_file_among_others_is_no_error(here: Path) -> None:
    look(["a.csv", "blank.txt"], "text")
    look(["-", "blank.txt"])
    Path("many").mkdir()
    for number in range(FILES_LOOKED_AT + 1):
        Path("many", f"{number:03}.txt").write_text("text" if number == FILES_LOOKED_AT else "")
    look(["many"])  # not all of many files is looked at


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
        assert "the input" in refused(FILES[command], output, capsys, place)
    (place / "out.jsonl").mkdir()
    assert 'out.jsonl" is a folder: give a file' in refused(FILES[command], "out.jsonl", capsys, place)


@pytest.mark.parametrize("command", FOLDERS)
def test_a_folder_that_is_read_is_not_written(command: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "other").symlink_to(place)
    for output in (".", "other", "T", *(["M", "M/out"] if " M" in FOLDERS[command] else [])):
        if not (command == "convert" and output == "T"):
            assert "the input" in refused(FOLDERS[command], output, capsys, place)


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
