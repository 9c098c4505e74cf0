"""Processes that are killed while they read a folder, and others that write and read at once: nothing is lost."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from index_rows import rows

from longform import Encoder, Index
from longform_text.search import store
from longform_text.search.ranking import Searched

# A child that dies in its turn of a step: before SQLite is told something, or a part is encoded.
CHILD = """
import os, signal, sqlite3, sys
from pathlib import Path
from longform import Encoder, Index
from longform_text.inference import chunks
from longform_text.search import adding

adding.TOGETHER, left = 40, int(sys.argv[3])

def counted(made):
    def call(*given, **named):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return made(*given, **named)
    return call

class Connection(sqlite3.Connection):
    execute = counted(sqlite3.Connection.execute)

chunks.pooled, connect = counted(chunks.pooled), sqlite3.connect
sqlite3.connect = lambda *given, **named: connect(*given, **named, factory=Connection)
Index(Path(sys.argv[1], ".longform"), Encoder.from_pretrained(sys.argv[2]), chunk_tokens=24).add(sys.argv[1])
"""


@pytest.fixture(scope="module")
def encoder(longform_folder: Path) -> Encoder:
    return Encoder.from_pretrained(longform_folder)


def write(folder: Path, turn: int) -> None:
    """Files of which some change, come and go each turn."""
    folder.mkdir(exist_ok=True)
    (folder / "long.txt").write_text("".join(f"near it is good {turn % 3} far. " for _ in range(60)))
    (folder / "same.md").write_text("# far\n\nit is bad.\n")
    (folder / "rows.jsonl").write_text("".join(f'{{"text": "text {n} {turn % 2}"}}\n' for n in range(5)))
    (folder / f"new{turn}.txt").write_text(f"a text of turn {turn}")
    (folder / f"new{turn - 2}.txt").unlink(missing_ok=True)
    (folder / "damaged.docx").write_bytes(b"PK" + bytes([turn % 7]))


def killed(folder: Path, model: Path, step: int) -> int:
    """The exit status of a child that dies at a step, if it comes to that."""
    return subprocess.run([sys.executable, "-c", CHILD, folder, model, str(step)], check=False).returncode


def steps() -> Iterator[int]:
    """Where the children die: LONGFORM_KILLS of them, a few in the suite."""
    kills = int(os.environ.get("LONGFORM_KILLS", "3"))
    return (3 + 37 * turn % 191 for turn in range(kills))  # of some 200 steps


def test_a_killed_process_is_gone_on_with(tmp_path: Path, encoder: Encoder, longform_folder: Path) -> None:
    folder, dead = tmp_path / "texts", 0
    for turn, step in enumerate(steps()):
        write(folder, turn // 2)  # each state of the folder is met twice, so that what was begun is gone on with
        dead += killed(folder, longform_folder, step) == -signal.SIGKILL
        if turn % 5 == 4:
            check(folder, encoder, tmp_path / f"whole{turn}")
    assert dead > 1
    check(folder, encoder, tmp_path / "whole")


def check(folder: Path, encoder: Encoder, whole: Path) -> None:
    """Every file is in the index once, as in one that is made at once."""
    index = Index(folder / ".longform", encoder, chunk_tokens=24).add(folder)
    expected = rows(Index(whole, encoder, chunk_tokens=24).add(folder))
    assert [each[2:] for each in rows(index)] == [each[2:] for each in sorted(expected)]
    assert {name for name, entry in index.files.items() if not entry.whole} == {"damaged.docx"}


READERS = """
import sys
from pathlib import Path
from longform import Encoder, Index
from longform.errors import ConfigurationError
from longform_text.search import adding

adding.TOGETHER = 40
kind, folder, model = sys.argv[1:]
index = Index(Path(folder, ".longform"), Encoder.from_pretrained(model), chunk_tokens=24)
for turn in range(4):
    if kind == "reads":
        for hit in index.search("near it is good", 20, passages=3):
            assert hit.passage and hit.file
        continue
    Path(folder, f"{kind}.txt").write_text(f"near it is {turn} good. " * 20)
    try:
        index.add(folder)
    except ConfigurationError as error:
        assert "being written by another process" in str(error)
"""


@pytest.mark.nightly
def test_two_write_and_two_read_at_once(tmp_path: Path, encoder: Encoder, longform_folder: Path) -> None:
    write(folder := tmp_path / "texts", 0)
    Index(folder / ".longform", encoder, chunk_tokens=24).add(folder)
    kinds = ("writes", "reads", "writes too", "reads")
    children = [subprocess.Popen([sys.executable, "-c", READERS, kind, folder, longform_folder]) for kind in kinds]
    assert [child.wait() for child in children] == [0, 0, 0, 0]
    check(folder, encoder, tmp_path / "whole")
    with store.reading(folder / ".longform") as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert len(Searched.of(database).vectors) == len(Index(folder / ".longform", encoder, chunk_tokens=24))
