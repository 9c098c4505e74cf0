"""The folder of a training: which run it is, the checkpoint that it goes on from, the finished model.

Checkpoints are those of transformers' Trainer. The last file of one that is written is its ``trainer_state.json``: a
folder without a whole one is half-written, and passed over.
"""

import contextlib
import json
import re
import tempfile
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any

from accelerate import PartialState
from transformers import PreTrainedModel

from longform.errors import CheckpointError, ConfigurationError, MissingDependencyError
from longform.files import (
    RunFile,
    check_same,
    clear_leftovers,
    entries,
    flush,
    flush_files,
    remove,
    sole_output,
    whole_lines,
    write_json,
    write_lines,
)
from longform.pretrained.weights import load_whole
from longform_text.data.token_store import input_paths
from longform_text.training.trainer import STATE

RUN_FILE, RECORDS = "run.json", "records.jsonl"
CACHE = "cache"  # of a pre-training, where no other place is given; made before it is known which run this is
UNFINISHED = "unfinished-model"  # where the finished model is written before it gets its place
OTHERWISE = "another output folder, or restart=True (--restart) to begin anew"
LOADED_BY = ("config.json", "modules.json")  # come last, so that nothing loads what is not whole
ADAPTER = "adapter"  # of an earlier run, which a later one need not write, and which would mislead
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
    """Record of a folder's run: identity and status; None where there is none.

    Raises ConfigurationError for a folder of something else, CheckpointError for a damaged file.
    """
    path = folder / RUN_FILE
    found = RunFile(path, folder, "training", "another output folder").read(
        begun=entries(folder, but=(CACHE, UNFINISHED))
    )
    if found is None:
        return None
    if "status" not in found:
        held = found.get("kind", f"{RUN_FILE} of something else")
        raise ConfigurationError(f'"{folder}" holds no training, but a {held}: give another output folder')
    return found


class RunFolder:
    """A run's place on the disk. ``kept``: it outlives the call.

    ``checkpoint``: where to go on from, or None. ``complete``: the model is finished, ``rows``: its log history.
    Raises ConfigurationError where the folder holds another run, CheckpointError where it is damaged.
    """

    def __init__(self, folder: Path, identity: dict[str, Any], *, kept: bool, restart: bool = False) -> None:
        self.folder, self.identity, self.kept, self.process = folder, identity, kept, PartialState()
        self.complete, self.checkpoint = False, None
        before = read_run(folder) if kept else None
        if before is not None and not restart:
            self._take_up(before)
        self.process.wait_for_everyone()
        if kept and self.process.is_main_process:
            try:
                self._prepare()
            except OSError as error:
                raise CheckpointError(f'the output folder "{folder}" cannot be written: {error}') from error
        self.process.wait_for_everyone()

    def _take_up(self, before: dict[str, Any]) -> None:
        """Where the run stands. Raises ConfigurationError for another one, unless it came to nothing."""
        whole = [path for path in checkpoints(self.folder) if is_whole(path)]
        self.complete = before["status"] == "complete"
        self.checkpoint = None if self.complete else next(iter(whole), None)
        if self.complete or whole:
            there = {name: before.get(name) for name in self.identity}
            check_same(self.folder, there, self.identity, otherwise=OTHERWISE)

    def _prepare(self) -> None:
        """Remove what killed processes left unfinished, and all that is not gone on with."""
        clear_leftovers(self.folder)
        remove(self.folder / UNFINISHED)
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in checkpoints(self.folder):
            if self.checkpoint is None or not is_whole(path):
                remove(path)
        if not self.complete:
            self._write("running")

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The log history of a finished run."""
        with (self.folder / RECORDS).open("rb") as file:
            return [row for _, row in whole_lines(file)]

    def load(self, model: PreTrainedModel) -> list[dict[str, Any]]:
        """Give ``model`` the weights of a finished run; its log history."""
        model.load_state_dict(load_whole(type(model), self.folder, dtype=model.dtype).state_dict())
        return self.rows

    def _write(self, status: str) -> None:
        write_json(self.folder / RUN_FILE, {**self.identity, "status": status})

    def finish(self, save: Callable[[Path], None], rows: list[dict[str, Any]]) -> None:
        """Put the finished model in the folder, and remove the checkpoints.

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
        """Each file to its place; what says how to load the folder comes last, and none of an earlier run stays."""
        names = [path.relative_to(unfinished).as_posix() for path in unfinished.rglob("*") if path.is_file()]
        flush_files(unfinished)
        for name in LOADED_BY:
            (self.folder / name).unlink(missing_ok=True)
        remove(self.folder / ADAPTER)
        for name in sorted(names, key=lambda name: (name in LOADED_BY, name)):
            place = self.folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            (unfinished / name).replace(place)
        flush(self.folder)
