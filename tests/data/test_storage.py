"""A file appears whole or not at all."""

import contextlib
import errno
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from longform.data.storage import atomic_write, locked, made_once, only_writer
from longform.errors import ConfigurationError


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
        "import sys, time; from pathlib import Path; from longform.data.storage import only_writer\n"
        "with only_writer(Path(sys.argv[1])): print('mine', flush=True); time.sleep(60)"
    )
    started = subprocess.Popen([sys.executable, "-c", code, str(place)], stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    assert started.stdout.readline() == "mine\n"
    return started


def test_second_writer_is_told_who_writes_and_a_killed_one_lets_go(tmp_path: Path) -> None:
    place = tmp_path / "out.jsonl"
    other = _start_holder(place)
    try:
        said = rf"out.jsonl\" is being written by process {other.pid} \(-c "
        with pytest.raises(ConfigurationError, match=said), only_writer(place):
            pass
    finally:
        other.kill()
        other.communicate()
    with only_writer(place):
        assert [each.name for each in tmp_path.iterdir()] == [".out.jsonl.lock"]
    assert not list(tmp_path.iterdir())


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
