"""The folder of a training: which run it is, how far it has come, what it has written down."""

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any

from longform.errors import CheckpointError, ConfigurationError, MissingDependencyError, some
from longform.files import (
    RunFile,
    check_same,
    clear_leftovers,
    differences,
    entries,
    flush,
    flush_files,
    reading,
    remove,
    sole_output,
    write_json,
)
from longform_text.data.token_store import input_paths
from longform_text.training.engine.checkpoints import checkpoint_step, keep_only, newest_checkpoint
from longform_text.training.engine.records import Records

RUN_FILE = "run.json"
CACHE = "cache"  # of a pre-training, where no other place is given; made before it is known which run this is
UNFINISHED = "unfinished-model"  # where the finished model is written before it gets its place
OTHERWISE = "another output folder, or restart=True (--restart) to begin anew"


@contextlib.contextmanager
def place_of_run(output: str | Path | None, inputs: Iterable[Any], process: Any) -> Generator[Path]:
    """The output folder, which one run alone writes meanwhile, or one that leaves nothing behind.

    ``inputs``: models and texts, by name. ``process``: of several, the main one looks after the folder. Raises
    ConfigurationError where the folder is not for this run to write: an input's, another process's or another's.
    """
    if output is None:
        with tempfile.TemporaryDirectory(prefix="longform-") as folder:
            yield Path(folder)
    elif process.is_main_process:
        with sole_output(output, inputs=input_paths(inputs), folder=True) as folder:
            read_run(folder)
            yield folder
    else:
        yield Path(output).expanduser()


def read_run(folder: Path) -> dict[str, Any] | None:
    """Record of a folder's run: identity, steps, status, files; None where there is none.

    Raises ConfigurationError for a folder of something else, CheckpointError for a damaged file.
    """
    path = folder / RUN_FILE
    found = RunFile(path, folder, "training", "another output folder").read(begun=entries(folder, but=(CACHE,)))
    if found is None:
        return None
    if "status" not in found:
        held = found.get("kind", f"{RUN_FILE} of something else")
        raise ConfigurationError(f'"{folder}" holds no training, but a {held}: give another output folder')
    check_names(found.setdefault("files", []), path)
    return found


class RunFolder:
    """A run's place on the disk. ``kept``: it outlives the call; ``main``: this process is the one that writes.

    ``checkpoint``: where to go on from, or None. ``steps``: optimiser steps of the whole run, once they are fixed.
    """

    def __init__(self, folder: Path, identity: dict[str, Any], *, kept: bool, main: bool) -> None:
        self.folder, self.identity, self.kept, self.main = folder, identity, kept, main
        self.records = Records(folder if kept else None, writes=main)
        self.files: list[str] = []  # of the finished run, this one or one that this one replaces
        self.checkpoint: Path | None = None
        self.steps: int | None = None
        self.complete = False

    def open(self, *, restart: bool, wait: Callable[[], None]) -> None:
        """Find out where the run stands; begin it where there is none.

        Raises ConfigurationError when the folder holds another run or another's files, CheckpointError when it is
        damaged.
        """
        before = read_run(self.folder) if self.kept else None
        going_on = not restart and before is not None and self._take_up(before)
        self.files = (before or {}).get("files", [])
        wait()
        try:
            self._open_records(anew=not going_on)
        except OSError as error:
            raise CheckpointError(f'the output folder "{self.folder}" cannot be written: {error}') from error
        wait()

    def _take_up(self, before: dict[str, Any]) -> bool:
        """Where the run stands; False where it is another one, which came to nothing that could be lost."""
        complete = before["status"] == "complete"
        checkpoint = None if complete else newest_checkpoint(self.folder)
        there = {name: before.get(name) for name in self.identity}
        if not (complete or before["files"] or checkpoint) and differences(there, self.identity):
            return False
        check_same(self.folder, there, self.identity, otherwise=OTHERWISE)
        self.steps, self.complete, self.checkpoint = before.get("steps"), complete, checkpoint
        return True

    def _open_records(self, *, anew: bool) -> None:
        if self.main:
            clear_leftovers(self.folder)
            remove(self.folder / UNFINISHED)
        if anew:
            if self.main:
                self.folder.mkdir(parents=True, exist_ok=True)
                keep_only(self.folder)
                self._write("running")
            self.records.begin()
        elif self.complete:
            self.records.restore(self.steps or 0, ended=True)
            if self.main:
                keep_only(self.folder)  # killed when the run was complete, and these not yet deleted
        elif self.steps is not None:
            self.records.restore((checkpoint_step(self.checkpoint) or 0) if self.checkpoint else 0)

    @property
    def end(self) -> dict[str, Any]:
        """The record of the end; nothing before there is one."""
        return self.records.last("end") or {}

    def outcome(self, began: float) -> dict[str, Any]:
        """Steps, records and seconds (since ``began``, by time.perf_counter) of a finished run, for its result."""
        return {"steps": self.end["step"], "seconds": time.perf_counter() - began, "records": self.records.rows}

    def fix_steps(self, steps: int) -> None:
        """Decide how many steps the run has, the same after an interruption."""
        self.steps = steps
        self._write("running")

    def _write(self, status: str) -> None:
        if self.kept and self.main:
            run = {**self.identity, "steps": self.steps, "status": status, "files": self.files}
            write_json(self.folder / RUN_FILE, run)

    def finish(self, save: Callable[[Path], None], *, wait: Callable[[], None]) -> None:
        """Put the finished model in the folder, and remove the checkpoints and what an earlier run had left.

        Raises CheckpointError where it cannot be saved; what is unfinished is removed.
        """
        if self.kept and self.main:
            unfinished = self.folder / UNFINISHED
            remove(unfinished)
            try:
                unfinished.mkdir(parents=True)
                save(unfinished)
                self._place(unfinished)
            except MissingDependencyError:
                raise
            except Exception as error:  # of a full disk safetensors and tokenizers make errors of their own
                raise CheckpointError(
                    f'the finished model could not be saved in "{self.folder}": {error}. '
                    "The last checkpoint is whole: make room and start again with the same output folder"
                ) from error
            finally:
                remove(unfinished)
            self._write("complete")
            keep_only(self.folder)
        wait()

    def _place(self, unfinished: Path) -> None:
        """Each file to its place, over ours of an earlier run, whose other files go."""
        names = sorted(path.relative_to(unfinished).as_posix() for path in unfinished.rglob("*") if path.is_file())
        flush_files(unfinished)
        check_names(names, self.folder / RUN_FILE)
        if others := [name for name in names if name not in self.files and os.path.lexists(self.folder / name)]:
            raise ConfigurationError(f"{some(others)} there is not of this run and would be replaced: move it away")
        earlier, self.files = self.files, sorted({*names, *self.files})
        self._write("running")  # killed from here on, these files are known as ours
        for name in names:
            place = self.folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            (unfinished / name).replace(place)
        for name in set(earlier).difference(names):
            (self.folder / name).unlink(missing_ok=True)
        self.files = names
        flush(self.folder)


def check_names(names: Any, listed: Path) -> None:
    """Raise CheckpointError where a name leads out of the folder of the file ``listed``, which lists what is in it."""
    folder = os.path.realpath(listed.parent)
    with reading(listed, way_out="give another output folder"):
        if not isinstance(names, list):
            raise TypeError("its list of files is none")
        for name in names:
            above = Path(os.path.realpath((listed.parent / name).parent))
            if not above.is_relative_to(folder) or Path(name).name in ("", "..") or "\0" in name:
                raise ValueError(f'its file "{name}" is elsewhere')
