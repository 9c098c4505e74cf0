"""Checkpoints of a training, a file each: weights, what optimizers and schedules keep, states of random numbers.

A file appears whole or not at all. It is read by torch.load(weights_only=True), which refuses pickled code and notices
a file that was cut short later.
"""

import contextlib
import pickle
import re
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

from longform import files
from longform.errors import CheckpointError
from longform.files import atomic_write

_NAME = re.compile(r"checkpoint-(\d+)\.pt")
UNREADABLE = (
    pickle.UnpicklingError,
    zipfile.BadZipFile,
    EOFError,
    LookupError,
    RuntimeError,
    ValueError,
    OSError,
)


def checkpoint_of(output: Path, step: int) -> Path:
    """The file of a step."""
    return output / f"checkpoint-{step}.pt"


def checkpoint_step(file: Path) -> int | None:
    """N of ``checkpoint-N.pt``; None for any other name."""
    match = _NAME.fullmatch(file.name)
    return int(match[1]) if match else None


def newest_checkpoint(output: Path) -> Path | None:
    """The checkpoint with the most steps; None where there is none."""
    found = [(step, file) for file in output.glob("checkpoint-*") if (step := checkpoint_step(file)) is not None]
    return max(found)[1] if found else None


def keep_only(output: Path, *keep: Path | None) -> None:
    """Delete all checkpoints except these."""
    for file in list(output.glob("checkpoint-*")):
        if checkpoint_step(file) is not None and file not in keep:
            file.unlink()


def save_checkpoint(file: Path, model: nn.Module, **state: Any) -> None:
    """Write weights and ``state``. Raises CheckpointError where that is not possible."""
    try:
        with atomic_write(file, "wb") as stream:
            torch.save({"model": model.state_dict(), **state}, stream)
    except Exception as error:  # of a full disk torch makes an error of its own
        raise CheckpointError(
            f'"{file}" could not be saved: {error}. Earlier checkpoints are whole: '
            "make room and start again with the same output folder"
        ) from error


def load_checkpoint(file: Path, model: nn.Module) -> dict[str, Any]:
    """Take up the weights; returns all that the file holds. Raises CheckpointError where it is damaged."""
    with reading(file):
        state = torch.load(file, map_location="cpu", weights_only=True)
        model.load_state_dict(state["model"])
    return state


def reading(file: str | Path) -> contextlib.AbstractContextManager[None]:
    """Turn what goes wrong while a checkpoint is read (cut short, a pickle, another model) into CheckpointError."""
    way_out = f'delete "{file}", or start in a new output folder, or with restart=True (--restart)'
    return files.reading(Path(file), way_out=way_out, errors=UNREADABLE)
