"""Checkpoints of a training that exist whole or not at all.

A checkpoint is written as ``incomplete-checkpoint-N`` and renamed to ``checkpoint-N`` when every file is on the disk;
its manifest has the size of each file, so that a file cut short later is noticed. Weights are safetensors; optimiser,
schedule and random states are read by torch.load(weights_only=True), which refuses pickled code.
"""

import contextlib
import pickle
import re
import shutil
import zipfile
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn
from transformers import PreTrainedModel

from longform.data.storage import flush_files, flush_folder
from longform.errors import CheckpointError
from longform.inference.weights import check_weights
from longform.runs import files
from longform.runs.output import files_in
from longform.training.engine.sharding import is_sharded, is_shared_out, load_model_shards

MANIFEST = "complete.json"
WEIGHTS = "model.safetensors"
_NAME = re.compile(r"checkpoint-(\d+)")
UNREADABLE = (SafetensorError, pickle.UnpicklingError, zipfile.BadZipFile, EOFError, KeyError, RuntimeError, OSError)


def checkpoint_step(folder: Path) -> int | None:
    """N of ``checkpoint-N``; None for any other name."""
    match = _NAME.fullmatch(folder.name)
    return int(match[1]) if match else None


def newest_checkpoint(output: Path) -> Path | None:
    """The complete checkpoint with the most steps; None where there is none.

    Raises CheckpointError when it was damaged after it was written.
    """
    if not output.is_dir():
        return None
    found = [(step, folder) for folder in output.iterdir() if (step := checkpoint_step(folder)) is not None]
    if not found:
        return None
    folder = max(found)[1]
    check_manifest(folder)
    return folder


def write_manifest(folder: Path) -> None:
    """Write down the size in bytes of each file, after all of them have reached the disk."""
    flush_files(folder)
    sizes = {name: (folder / name).stat().st_size for name in files_in(folder)}
    files.write_json(folder / MANIFEST, sizes)


def check_manifest(folder: Path) -> None:
    """Raise CheckpointError unless every file of the checkpoint is there and as long as it was."""
    sizes = files.read_json(folder / MANIFEST, way_out=_way_out(folder))
    for name, size in sizes.items():
        file = folder / name
        with reading(folder):  # a name may be longer than any file's
            there = file.stat().st_size if file.is_file() else None
        if there != size:
            state = "is missing" if there is None else f"has {there:,} bytes instead of {size:,}"
            raise CheckpointError(f'"{file}" {state}: {_way_out(folder)}')
    if WEIGHTS not in sizes and not is_sharded(folder):
        raise CheckpointError(f'"{folder}" has no {WEIGHTS}; weights in pickles are not read')


def _way_out(folder: Path) -> str:
    """Way out of a damaged checkpoint."""
    others = [one for one in folder.parent.glob("checkpoint-*") if checkpoint_step(one) is not None and one != folder]
    begin = f"go on from {max(others, key=lambda one: checkpoint_step(one) or 0).name}" if others else "begin again"
    return f'delete "{folder}" to {begin}'


def reading(folder: str | Path) -> contextlib.AbstractContextManager[None]:
    """Turn what goes wrong while a checkpoint is read (cut short, a pickle, another model) into CheckpointError."""
    way_out = (
        f"of an interrupted run, {_way_out(Path(folder))}; else start in a new output folder, or with restart=True "
        "(--restart)"
    )
    return files.reading(Path(folder), way_out=way_out, errors=UNREADABLE)


def publish(incomplete: Path, final: Path) -> None:
    """Give a finished checkpoint its name, in place of an older one of the same step."""
    write_manifest(incomplete)
    remove(final)
    incomplete.rename(final)
    flush_folder(final.parent)


def remove(folder: Path) -> None:
    """Delete a checkpoint; killed in the middle, no half of it is taken for a whole."""
    if not folder.exists():
        return
    doomed = folder.with_name(f"incomplete-{folder.name.removeprefix('incomplete-')}")
    if doomed != folder:
        shutil.rmtree(doomed, ignore_errors=True)
        folder.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def keep_only(output: Path, *keep: Path | None) -> None:
    """Delete all checkpoints, finished or not, except these."""
    kept = {folder.name for folder in keep if folder is not None}
    for folder in list(output.iterdir()):
        is_one = checkpoint_step(folder) is not None or folder.name.startswith("incomplete-checkpoint-")
        if is_one and folder.name not in kept:
            remove(folder)


def load_weights(model: nn.Module, folder: Path) -> None:
    """Load ``model.safetensors`` of a checkpoint. Raises CheckpointError when it is damaged or another model's."""
    if is_sharded(folder):
        with reading(folder):
            load_model_shards(model, folder)
        return
    if is_shared_out(model):
        raise CheckpointError(f'"{folder}" was written without fsdp: go on without it, or begin anew (--restart)')
    with reading(folder):
        weights = folder / WEIGHTS
        if not weights.exists():  # a sentence-transformers folder may have its encoder one level down
            weights = next(iter(sorted(folder.glob(f"*/{WEIGHTS}"))), weights)
        result = model.load_state_dict(load_file(weights), strict=not isinstance(model, PreTrainedModel))
    if not isinstance(model, PreTrainedModel):
        return
    tied = set(getattr(model, "all_tied_weights_keys", None) or {})
    missing = [name for name in result.missing_keys if name not in tied]
    found = {"missing_keys": missing, "mismatched_keys": (), "unexpected_keys": result.unexpected_keys}
    check_weights(model, found, folder)
    model.tie_weights()
