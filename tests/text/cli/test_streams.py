"""A command goes on, and ends with status 0, whatever becomes of the streams on which it only reports."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from json_lines import write_lines

SCRIPT = """
import os, sys, types
from longform_text.cli import main as program
from longform_text.cli.arguments import command_parser

def parser():
    made = command_parser("convert", "A fake.")
    made.add_argument("--output", default="file")
    return made

def run(settings):
    for number in range(2000):
        print("progress", number, file=sys.stderr)
        print("report", number)
    sys.stdout.flush()
    os.write(1, b"of a library")
    with open(sys.argv[-1], "w") as file:
        os.write(1, b"of a library")
        os.write(2, b"of a library")
        file.write("done")

program.import_module = lambda name: types.SimpleNamespace(parser=parser, run=run)
sys.exit(program.main(["convert", *sys.argv[1:-1]]))
"""


def _begun(tmp_path: Path, redirection: str, *options: str, **streams: Any) -> subprocess.Popen[bytes]:
    shell = ["sh", "-c", f'exec "$@" {redirection}', "sh"]
    return subprocess.Popen([*shell, sys.executable, "-c", SCRIPT, *options, str(tmp_path / "made")], **streams)


@pytest.mark.parametrize("redirection", [">&-", "2>&-", "<&- >&- 2>&-", "2>/dev/full"])
def test_streams_that_are_closed_or_full(tmp_path: Path, redirection: str) -> None:
    found = _begun(tmp_path, redirection, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    said, complaint = found.communicate()
    assert found.returncode == 0, complaint
    assert (tmp_path / "made").read_text() == "done"
    assert said.count(b"report") == (0 if ">&-" in redirection.replace("2>&-", "") else 2000)
    assert b"Traceback" not in complaint


@pytest.mark.parametrize("gone", ["stdout", "stderr"])
def test_readers_that_go_away(tmp_path: Path, gone: str) -> None:
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with _begun(tmp_path, "", **streams) as found:
        getattr(found, gone).close()
        other: Any = found.stderr if gone == "stdout" else found.stdout
        said = other.read()
    assert found.returncode == 0, said
    assert (tmp_path / "made").read_text() == "done"
    assert said.count(b"progress" if gone == "stdout" else b"report") == 2000


def test_records_on_standard_output_need_one(tmp_path: Path) -> None:
    closed = _begun(tmp_path, ">&-", "--output=-", stderr=subprocess.PIPE)
    assert b"records go to standard output, which is closed" in closed.communicate()[1]
    assert closed.returncode == 2
    gone = _begun(tmp_path, "", "--output=-", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert gone.stdout is not None
    gone.stdout.close()
    assert gone.wait() == 141  # as other programs whose output nobody takes
    assert not (tmp_path / "made").exists()


def test_a_full_disk_is_not_passed_over_where_a_report_goes(tmp_path: Path) -> None:
    found = _begun(tmp_path, ">/dev/full", stderr=subprocess.PIPE)
    assert b"No space left" in found.communicate()[1]
    assert found.returncode != 0


@pytest.mark.nightly  # its process imports everything anew
def test_the_bar_of_embed(longform_folder: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts.jsonl"
    write_lines(texts, ({"text": f"text {number}"} for number in range(1500)))
    command = [sys.executable, "-m", "longform", "embed", longform_folder, texts, "--output", tmp_path / "out.jsonl"]
    found = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert found.stderr is not None
    found.stderr.read(1)
    found.stderr.close()
    assert found.wait() == 0
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 1500
