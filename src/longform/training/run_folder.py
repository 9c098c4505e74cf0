"""The folder of a training: which run it is, how far it has come, what it has written down."""

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import torch

from longform.errors import CheckpointError, MissingDependencyError, require
from longform.runs.files import write_json
from longform.runs.folder import RunFile, check_same, entries
from longform.training.checkpoints import WEIGHTS, checkpoint_step, keep_only, newest_checkpoint
from longform.training.records import Records

RUN_FILE = "run.json"
UNFINISHED = "incomplete-checkpoint-final"  # where the finished model is written before it gets its place
WRITTEN = (WEIGHTS, "config.json", "README.md", "records.jsonl", "report.html")  # of what a run writes, the likely ones
OTHERWISE = "another output folder, or resume=False (--resume false) to begin anew"


@contextlib.contextmanager
def temporary_folder() -> Generator[Path]:
    """A folder for a run that leaves nothing behind."""
    with tempfile.TemporaryDirectory(prefix="longform-") as folder:
        yield Path(folder)


def current_process() -> Any:
    """This process among those of ``torchrun`` or ``accelerate launch``: accelerate's PartialState."""
    return require("accelerate", extra="train").PartialState(cpu=not torch.cuda.is_available())


def read_run(folder: Path) -> dict[str, Any] | None:
    """What the folder says about its run: identity, steps, status, files; None where it says nothing.

    Raises ConfigurationError where a folder of no run has files that a run would replace or delete, CheckpointError
    for a damaged file.
    """
    found = entries(folder, lambda path: path.name in WRITTEN or checkpoint_step(path) is not None)
    return RunFile(folder / RUN_FILE, folder, "training", OTHERWISE).read(begun=found)


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

    def open(self, *, resume: bool, wait: Callable[[], None]) -> None:
        """Find out where the run stands; begin it where there is none.

        Raises ConfigurationError when the folder holds another run or another's files, CheckpointError when it is
        damaged.
        """
        before = self._before(resume)
        if before is not None and resume:
            there = {name: before.get(name) for name in self.identity}
            check_same(self.folder, there, self.identity, otherwise=OTHERWISE)
            self.steps = before.get("steps")
            self.complete = before.get("status") == "complete"
            self.checkpoint = None if self.complete else newest_checkpoint(self.folder)
        wait()
        try:
            self._open_records(anew=before is None or not resume)
        except OSError as error:
            raise CheckpointError(f'the output folder "{self.folder}" cannot be written: {error}') from error
        wait()

    def _before(self, resume: bool) -> dict[str, Any] | None:
        """What the folder says about its run; None where that cannot be read and is not needed."""
        try:
            before = read_run(self.folder) if self.kept else None
        except CheckpointError:
            if resume:
                raise
            return None
        self.files = (before or {}).get("files", [])
        return before

    def _open_records(self, *, anew: bool) -> None:
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

    def fix_steps(self, steps: int, process: Any) -> None:
        """Decide how many steps the run has, the same in all processes and after an interruption."""
        if process.num_processes > 1:
            from accelerate.utils import broadcast_object_list

            steps = broadcast_object_list([steps])[0]
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
            shutil.rmtree(unfinished, ignore_errors=True)
            try:
                unfinished.mkdir(parents=True)
                save(unfinished)
                earlier, self.files = self.files, _move_all(unfinished, self.folder)
                for name in set(earlier).difference(self.files):
                    (self.folder / name).unlink(missing_ok=True)
            except MissingDependencyError:
                raise
            except Exception as error:  # of a full disk safetensors and tokenizers make errors of their own
                raise CheckpointError(
                    f'the finished model could not be saved in "{self.folder}": {error}. '
                    "The last checkpoint is whole: make room and start again with the same output folder"
                ) from error
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
            self._write("complete")
            keep_only(self.folder)
        wait()


def _move_all(source: Path, target: Path) -> list[str]:
    """Each file to its place in ``target``, over an older one. Returns their names there."""
    names = sorted(path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file())
    for name in names:
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        (source / name).replace(place)
    return names
