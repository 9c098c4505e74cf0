"""Commands as processes that can be killed: children of a fork server, or true starts of Python."""

import faulthandler
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LONGEST = 600.0  # seconds after which a command counts as hanging
CHANGES = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["campaign.loaded"])


@dataclass(frozen=True)
class Ended:
    """How a command ended: its status (negative: the signal), what it said on both streams, its seconds."""

    status: int
    said: str
    seconds: float

    @property
    def error(self) -> str:
        """The last line that it said."""
        return self.said.strip().rpartition("\n")[2]


@dataclass(frozen=True)
class Bounds:
    """What ends a command: the change of a file below ``place`` before which it is killed (0: none), bytes that a file
    may have, bytes of memory beyond what is loaded. ``seen``: a file that gets the changes, one a line.
    """

    place: Path
    change: int = 0
    file_bytes: int | None = None
    memory_bytes: int | None = None
    seen: Path | None = None

    def begin(self) -> Callable[[], None]:
        """Bound this process; call what is returned at its end."""
        seen = self._watch_changes()
        for kind, size in (
            (resource.RLIMIT_FSIZE, self.file_bytes),
            (resource.RLIMIT_AS, None if self.memory_bytes is None else self.memory_bytes + address_space()),
        ):
            if size is not None:
                resource.setrlimit(kind, (size, size))
        return lambda: self.seen.write_text("\n".join(seen)) if self.seen else None

    def _watch_changes(self) -> list[str]:
        seen: list[str] = []
        place, here = str(self.place), os.getpid()

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            if event not in CHANGES or not str(arguments[0]).startswith(place) or os.getpid() != here:
                return
            if event == "open" and not (arguments[2] or 0) & WRITING:
                return
            seen.append(f"{event} {str(arguments[0])[len(place) + 1 :]}")
            if len(seen) == self.change:
                os.kill(here, signal.SIGKILL)

        sys.addaudithook(hook)
        return seen


@dataclass
class Running:
    """A command that runs in a child of the fork server; it begins at once."""

    line: Sequence[str]
    log: Path
    bounds: Bounds | None = None
    started: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        self.process = SERVER.Process(target=run_command, args=(list(self.line), self.log, self.bounds))
        self.process.start()

    def kill(self, after: float) -> Ended:
        """How it ended: by SIGKILL ``after`` so many seconds, or by itself before that."""
        self.process.join(after)
        self.process.kill()
        return self.end()

    def end(self) -> Ended:
        """Wait until it has ended."""
        self.process.join(LONGEST)
        hangs = self.process.exitcode is None
        if hangs:
            self.process.kill()
            self.process.join()
        said = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        assert not hangs, f"it hangs: {said[-2000:]}"
        return Ended(self.process.exitcode or 0, said, time.perf_counter() - self.started)


def run_command(line: Sequence[str], log: Path, bounds: Bounds | None) -> None:
    """The child: ``longform`` with what it says written to ``log``."""
    from longform_text.cli.main import main

    faulthandler.enable()
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(handle, stream)
    os.setpgid(0, 0)
    os.environ["TMPDIR"] = tempfile.tempdir = str(log.parent)  # of killed processes much is left there
    end = bounds.begin() if bounds else None
    status = main(line)
    if end:
        end()
    sys.stdout.flush()
    sys.exit(status)


def address_space() -> int:
    """Bytes of address space that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def run_truly(line: Sequence[str], log: Path, *, kill_after: float | None = None) -> Ended:
    """The command as a user starts it, all imports included; SIGKILL ``kill_after`` seconds."""
    started = time.perf_counter()
    with log.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-m", "longform", *line], stdout=file, stderr=file)
        try:
            process.wait(LONGEST if kill_after is None else kill_after)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return Ended(process.returncode, log.read_text(errors="replace"), time.perf_counter() - started)


def members(group: int) -> list[int]:
    """The processes of a process group that have not ended."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, process_group = status.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(process_group) == group and state != "Z":
            found.append(int(status.parent.name))
    return found
