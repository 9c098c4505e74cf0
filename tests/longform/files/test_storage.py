"""A file appears whole or not at all."""

import contextlib
import errno
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from longform.errors import ConfigurationError
from longform.files import (
    PROCESS,
    atomic_folder,
    atomic_write,
    clear_leftovers,
    locked,
    made_once,
    only_writer,
    recover,
)


def test_text_and_bytes_in_a_new_folder(tmp_path: Path) -> None:
    with atomic_write(tmp_path / "new" / "a.txt") as file:
        file.write("é\n")
    with atomic_write(tmp_path / "new" / "b.bin", "wb") as file:
        file.write(b"\x00\r\n")
    assert (tmp_path / "new" / "a.txt").read_bytes() == "é\n".encode()
    assert (tmp_path / "new" / "b.bin").read_bytes() == b"\x00\r\n"
    assert len(list((tmp_path / "new").iterdir())) == 2


def test_names_that_are_not_utf8_are_written_as_escapes(tmp_path: Path) -> None:
    with atomic_write(tmp_path / "a.json") as file:
        json.dump(["é", "caf\udce9.txt"], file, ensure_ascii=False)
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == ["é", "caf\udce9.txt"]


def test_target_is_untouched_until_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with atomic_write(path) as file:
        file.write("new")
        file.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new"


@pytest.mark.parametrize("error", [RuntimeError("no"), KeyboardInterrupt()])
def test_error_keeps_the_old_file(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with contextlib.suppress(type(error)), atomic_write(path) as file:
        file.write("half")
        raise error
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("a.txt", "old")]


def test_full_disk_keeps_the_old_file_and_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "a.txt"
    path.write_text("old")
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left on device") as caught, atomic_write(path) as file:
        file.write("new")
    assert caught.value.filename == str(path)
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("a.txt", "old")]


def test_other_modes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="modes"), atomic_write(tmp_path / "a", "a"):
        pass


def _start_holder(place: Path) -> subprocess.Popen[str]:
    code = (
        "import sys, time; from pathlib import Path; from longform.files import only_writer\n"
        "with only_writer(Path(sys.argv[1])): print('mine', flush=True); time.sleep(60)"
    )
    started = subprocess.Popen([sys.executable, "-c", code, str(place)], stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    assert started.stdout.readline() == "mine\n"
    return started


def test_second_writer_is_refused_and_a_killed_one_lets_go(tmp_path: Path) -> None:
    place = tmp_path / "out.jsonl"
    other = _start_holder(place)
    try:
        said = 'out.jsonl" is being written by another process'
        with pytest.raises(ConfigurationError, match=said), only_writer(place):
            pass
    finally:
        other.kill()
        other.communicate()
    with only_writer(place):
        assert [each.name for each in tmp_path.iterdir()] == [".out.jsonl.lock"]
    assert not list(tmp_path.iterdir())


def test_disk_without_locks_is_written_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refused)
    with locked(tmp_path / "lock") as mine:
        assert mine


def test_lock_that_was_deleted_while_one_waited_is_taken_anew(tmp_path: Path) -> None:
    path, order = tmp_path / "lock", []

    def take() -> None:
        with locked(path, wait=True) as mine:
            order.append(mine)
            assert path.exists()

    with locked(path):
        threads = [threading.Thread(target=take) for _ in range(8)]
        for thread in threads:
            thread.start()
    for thread in threads:
        thread.join()
    assert order == [True] * 8
    assert not path.exists()


def test_a_folder_that_another_is_making_is_waited_for_and_taken(tmp_path: Path) -> None:
    begun, made = threading.Barrier(2), []

    def make(unfinished: Path) -> None:
        made.append(unfinished)
        (unfinished / "part").write_text("whole")

    def take() -> None:
        begun.wait()
        made_once(tmp_path / "cache", make)

    threads = [threading.Thread(target=take) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]
    assert (tmp_path / "cache" / "part").read_text() == "whole"


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600), (0o002, 0o664)])
def test_weights_are_readable_as_the_umask_says(umask: int, mode: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        with atomic_folder(tmp_path / "model") as unfinished:
            save_file({"weight": torch.zeros(2)}, unfinished / "model.safetensors")
            (unfinished / "config.json").write_text("{}")
    finally:
        os.umask(before)
    assert (tmp_path / "model/model.safetensors").stat().st_mode & 0o777 == mode


def test_link_stays_and_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "a.txt").write_text("old")
    (tmp_path / "a.txt").symlink_to("disk/a.txt")
    with atomic_write(tmp_path / "a.txt") as file:
        file.write("new")
    (tmp_path / "b").symlink_to("disk/b")  # which is not there yet
    with atomic_folder(tmp_path / "b") as folder:
        (folder / "c").touch()
    assert (os.readlink(tmp_path / "a.txt"), os.readlink(tmp_path / "b")) == ("disk/a.txt", "disk/b")
    assert (tmp_path / "disk" / "a.txt").read_text() == "new"
    assert (tmp_path / "disk" / "b" / "c").exists()


KILLED = """
import os, signal, sys
from pathlib import Path
from longform.files import atomic_folder

moment, place = sys.argv[1], Path(sys.argv[2])
renamed = Path.rename

def rename(self, target):
    found = renamed(self, target)
    if moment == ("aside" if str(target).endswith(".older") else "in place"):
        os.kill(os.getpid(), signal.SIGKILL)
    return found

Path.rename = rename
with atomic_folder(place) as folder:
    (folder / "new").write_text("new")
    if moment == "writing":
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("moment", ["writing", "aside", "in place"])
@pytest.mark.parametrize("again", ["recovered", "written"])
def test_folder_survives_a_kill_at_any_moment(tmp_path: Path, moment: str, again: str) -> None:
    place = tmp_path / "a"
    place.mkdir()
    (place / "old").write_text("old")
    assert subprocess.run([sys.executable, "-c", KILLED, moment, str(place)]).returncode == -9
    assert len(list(tmp_path.iterdir())) == 2
    there = "new" if moment == "in place" else "old"
    assert place.exists() == (moment != "aside")
    if again == "recovered":
        recover(place)
        assert [path.name for path in place.iterdir()] == [there]
    else:
        with atomic_folder(place) as folder:
            assert [path.name for path in place.iterdir()] == [there]
            (folder / "newest").touch()
        assert [path.name for path in place.iterdir()] == ["newest"]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_what_is_being_written_is_no_leftover(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "a") as folder, atomic_write(folder / "b") as file:
        recover(tmp_path / "a")
        clear_leftovers(tmp_path)
        file.write("whole")
    assert (tmp_path / "a" / "b").read_text() == "whole"


def test_leftovers_of_the_dead_are_removed_and_nothing_else(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (tmp_path / "deep").mkdir()
    left = [
        f".a.{ended.pid}.12ab.unfinished", f".a.{ended.pid}.{PROCESS}0.unfinished",  # the second is that of a fork
        f"deep/.b.{os.getpid()}.12ab.unfinished",
    ]  # fmt: skip
    kept = [
        f".a.{os.getppid()}.12ab.unfinished", f"a.{ended.pid}.12ab.unfinished", ".a.unfinished", ".a.x.12ab.unfinished",
        f".a.{ended.pid}.12ab.older", f".a.{os.getpid()}.{PROCESS}0.unfinished",
    ]  # fmt: skip
    for name in (*left, *kept):
        (tmp_path / name).touch()
    clear_leftovers(tmp_path)
    assert not any((tmp_path / name).exists() for name in left)
    assert all((tmp_path / name).exists() for name in kept)
