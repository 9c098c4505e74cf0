"""The last line of every command says what one would do next, in a line that the command line takes."""

import io
import json
import re
import shlex
from inspect import getsource
from pathlib import Path
from typing import Any

import pytest
from campaign.commands import command_line, make_inputs
from json_lines import write_lines

from longform_text.cli.arguments import parse
from longform_text.cli.main import all_commands, command_module, main

COMMAND = re.compile(r"longform [^(,]+")  # up to the next one, or to what is said of it
ALSO = {
    "evaluate": "evaluate sts --data {given}/pairs.jsonl --longform {given}/longform",
    "doctor": "doctor --kernels --length 64",
}


@pytest.fixture(scope="module")
def given(tiny_tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_inputs(tmp_path_factory.mktemp("given"), tiny_tokenizer)
    rows = [{"sentence1": "near", "sentence2": text, "score": at} for at, text in enumerate(["far", "long", "near"])]
    write_lines(folder / "pairs.jsonl", rows)
    return folder


@pytest.mark.parametrize("name", ["embed", "predict", "convert", *ALSO])
def test_the_last_line_is_the_next_command(
    name: str, given: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ALSO[name].format(given=given).split() if name in ALSO else command_line(name, given, tmp_path)
    assert main(line) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("next  ")
    proposed = COMMAND.findall(last)
    assert proposed or name == "embed"  # after which one goes on in Python
    for _, command, *arguments in map(shlex.split, proposed):
        if arguments[-1:] != ["--help"]:
            parse(command_module(command).parser(), arguments)


def test_every_command_has_a_next_step() -> None:
    without = [name for name in all_commands() if "print_next(" not in getsource(command_module(name))]
    # One answers, one runs until it is stopped, the last one's summary ends with a step.
    assert without == ["search", "serve", "demo"]


def test_a_report_does_not_stand_among_the_records(
    given: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"id": 1, "text": "near"}\n')))
    options = ["--stdin-format", "jsonl", "--output", "-", "--keep", "text"]
    assert main(["embed", str(given / "longform"), "-", *options]) == 0
    said = capsys.readouterr()
    (record,) = map(json.loads, said.out.splitlines())
    assert (record["id"], record["text"]) == ("1", "near")
    assert said.err.splitlines()[-1].startswith("next  ")
    assert re.search(r"documents +1\n", said.err)
