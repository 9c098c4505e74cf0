"""The folder of a training: which run it is, the checkpoint that it goes on from, the finished model.

Checkpoints are those of transformers' Trainer. The last file of one that is written is its ``trainer_state.json``: a
folder without a whole one is half-written, and passed over.
"""

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any

from accelerate import PartialState

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
    whole_lines,
    write_json,
    write_lines,
)
from longform_text.data.token_store import input_paths
from longform_text.training.trainer import STATE

RUN_FILE, RECORDS = "run.json", "records.jsonl"
CACHE = "cache"  # of a pre-training, where no other place is given; made before it is known which run this is
UNFINISHED = "unfinished-model"  # where the finished model is written before it gets its place
OTHERWISE = "another output folder, or restart=True (--restart) to begin anew"
LOADED_BY = ("config.json", "modules.json")  # come last, so that nothing loads what is not whole
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")


def checkpoints(folder: Path) -> list[Path]:
    """Checkpoints, whole or not, the newest first."""
    found = [(int(name[1]), path) for path in folder.glob("checkpoint-*") if (name := _CHECKPOINT.fullmatch(path.name))]
    return [path for _, path in sorted(found, reverse=True)]


def is_whole(checkpoint: Path) -> bool:
    """Whether all of a checkpoint was written."""
    try:
        return isinstance(json.loads((checkpoint / STATE).read_text(encoding="utf-8")), dict)
    except (OSError, ValueError):
        return False


@contextlib.contextmanager
def place_of_run(output: str | Path | None, inputs: Iterable[Any]) -> Generator[Path]:
    """The output folder, which one run alone writes meanwhile, or one that leaves nothing behind.

    ``inputs``: models and texts, by name. Of several processes the main one looks after the folder. Raises
    ConfigurationError where the folder is not for this run to write: an input's, another process's or another's.
    """
    if output is None:
        with tempfile.TemporaryDirectory(prefix="longform-") as folder:
            yield Path(folder)
    elif PartialState().is_main_process:
        with sole_output(output, inputs=input_paths(inputs), folder=True) as folder:
            read_run(folder)
            yield folder
    else:
        yield Path(output).expanduser()


def read_run(folder: Path) -> dict[str, Any] | None:
    """Record of a folder's run: identity, status, files; None where there is none.

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
    """A run's place on the disk. ``kept``: it outlives the call.

    ``checkpoint``: where to go on from, or None. ``complete``: the model is finished, ``rows``: its log history.
    Raises ConfigurationError when the folder holds another run or another's files, CheckpointError when it is damaged.
    """

    def __init__(self, folder: Path, identity: dict[str, Any], *, kept: bool, restart: bool = False) -> None:
        self.folder, self.identity, self.kept, self.process = folder, identity, kept, PartialState()
        self.files: list[str] = []  # of the finished run, this one or one that this one replaces
        self.checkpoint: Path | None = None
        self.complete = False
        before = read_run(folder) if kept else None
        self.files = (before or {}).get("files", [])
        going_on = not restart and before is not None and self._take_up(before)
        self.process.wait_for_everyone()
        if kept and self.process.is_main_process:
            try:
                self._prepare(going_on)
            except OSError as error:
                raise CheckpointError(f'the output folder "{folder}" cannot be written: {error}') from error
        self.process.wait_for_everyone()

    def _take_up(self, before: dict[str, Any]) -> bool:
        """Where the run stands; False where it is another one, which came to nothing that could be lost."""
        complete = before["status"] == "complete"
        found = [] if complete else [path for path in checkpoints(self.folder) if is_whole(path)]
        there = {name: before.get(name) for name in self.identity}
        if not (complete or before["files"] or found) and differences(there, self.identity):
            return False
        check_same(self.folder, there, self.identity, otherwise=OTHERWISE)
        self.complete, self.checkpoint = complete, next(iter(found), None)
        return True

    def _prepare(self, going_on: bool) -> None:
        """Remove what killed processes left unfinished, and all that is not gone on with."""
        clear_leftovers(self.folder)
        remove(self.folder / UNFINISHED)
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in checkpoints(self.folder):
            if self.complete or not going_on or not is_whole(path):
                remove(path)
        if not self.complete:
            self._write("running")

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The log history of a finished run."""
        with (self.folder / RECORDS).open("rb") as file:
            return [row for _, row in whole_lines(file)]

    def _write(self, status: str) -> None:
        write_json(self.folder / RUN_FILE, {**self.identity, "status": status, "files": self.files})

    def finish(self, save: Callable[[Path], None], rows: list[dict[str, Any]]) -> None:
        """Put the finished model in the folder, and remove the checkpoints and what an earlier run had left.

        ``save``: writes the model into a folder; ``rows``: the log history. Raises CheckpointError where it cannot be
        saved; what is unfinished is removed.
        """
        if self.kept and self.process.is_main_process:
            unfinished = self.folder / UNFINISHED
            remove(unfinished)
            try:
                unfinished.mkdir(parents=True)
                save(unfinished)
                write_lines(unfinished / RECORDS, rows)
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
            for path in checkpoints(self.folder):
                remove(path)
        self.process.wait_for_everyone()

    def _place(self, unfinished: Path) -> None:
        """Each file to its place, over ours of an earlier run, whose other files go."""
        names = [path.relative_to(unfinished).as_posix() for path in unfinished.rglob("*") if path.is_file()]
        names.sort(key=lambda name: (name in LOADED_BY, name))
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
        self.files = sorted(names)
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
