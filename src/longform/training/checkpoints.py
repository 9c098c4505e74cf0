"""Checkpoints that exist whole or not at all, and the file that says which run a folder holds.

A checkpoint is written as ``incomplete-checkpoint-N`` and renamed to ``checkpoint-N`` when every file is on the disk;
its manifest has the size of each file, so that a file cut short later is noticed. Weights are safetensors; optimiser,
schedule and random states are read by torch.load(weights_only=True), which refuses pickled code.
"""

import contextlib
import json
import os
import pickle
import re
import shutil
import zipfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from longform.data.text import atomic_write
from longform.errors import CheckpointError, ConfigurationError
from longform.training.settings import differences

MANIFEST = "complete.json"
RUN_FILE = "run.json"
WEIGHTS = "model.safetensors"
WRITTEN = (WEIGHTS, "config.json", "README.md", "records.jsonl", "report.html")  # of what a run writes, the likely ones
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
    sizes = {}
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
        sizes[file.relative_to(folder).as_posix()] = file.stat().st_size
    with atomic_write(folder / MANIFEST) as file:
        json.dump(sizes, file, indent=1)


def check_manifest(folder: Path) -> None:
    """Raise CheckpointError unless every file of the checkpoint is there and as long as it was."""
    sizes = _read_json(folder / MANIFEST, way_out=_way_out(folder))
    for name, size in sizes.items():
        file = folder / name
        there = file.stat().st_size if file.is_file() else None
        if there != size:
            state = "is missing" if there is None else f"has {there:,} bytes instead of {size:,}"
            raise CheckpointError(f'"{file}" {state}: {_way_out(folder)}')
    if WEIGHTS not in sizes:
        raise CheckpointError(f'"{folder}" has no {WEIGHTS}; weights in pickles are not read')


def _way_out(folder: Path) -> str:
    """What to do about a damaged checkpoint."""
    others = [one for one in folder.parent.glob("checkpoint-*") if checkpoint_step(one) is not None and one != folder]
    begin = f"go on from {max(others, key=lambda one: checkpoint_step(one) or 0).name}" if others else "begin again"
    return f'delete "{folder}" to {begin}'


def _read_json(path: Path, *, way_out: str) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f'"{path}" is missing: {way_out}') from error
    except (OSError, ValueError) as error:
        raise CheckpointError(f'"{path}" cannot be read ({error}): {way_out}') from error


@contextlib.contextmanager
def reading(folder: str | Path) -> Generator[None]:
    """Turn what goes wrong while a checkpoint is read (cut short, a pickle, another model) into CheckpointError."""
    try:
        yield
    except UNREADABLE as error:
        lines = str(error).splitlines()
        said = lines[0] if lines else type(error).__name__
        raise CheckpointError(
            f'"{folder}" cannot be read: {said}. Of an interrupted run: {_way_out(Path(folder))}. Else start in a new '
            "output folder, or with resume=False"
        ) from error


def publish(incomplete: Path, final: Path) -> None:
    """Give a finished checkpoint its name, in place of an older one of the same step."""
    write_manifest(incomplete)
    remove(final)
    incomplete.rename(final)


def remove(folder: Path) -> None:
    """Delete a checkpoint; killed in the middle, no half of it is taken for a whole."""
    if not folder.exists():
        return
    doomed = folder.with_name(f"incomplete-{folder.name.removeprefix('incomplete-')}")
    if doomed != folder:
        shutil.rmtree(doomed, ignore_errors=True)
        folder.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def refuse_foreign_files(output: Path) -> None:
    """Raise ConfigurationError where a folder of no run has files that a run would replace or delete."""
    if not output.is_dir() or (output / RUN_FILE).exists():
        return
    names = sorted(path.name for path in output.iterdir())
    taken = [name for name in names if name in WRITTEN or checkpoint_step(output / name) is not None]
    if taken:
        raise ConfigurationError(
            f'"{output}" holds {", ".join(taken)} and no {RUN_FILE}: this run would replace what is not its own; '
            "give another output folder"
        )


def keep_only(output: Path, *keep: Path | None) -> None:
    """Delete all checkpoints, finished or not, except these."""
    kept = {folder.name for folder in keep if folder is not None}
    for folder in list(output.iterdir()):
        is_one = checkpoint_step(folder) is not None or folder.name.startswith("incomplete-checkpoint-")
        if is_one and folder.name not in kept:
            remove(folder)


def read_run(output: Path) -> dict[str, Any] | None:
    """What ``run.json`` says; None where there is none. Raises CheckpointError when it cannot be read."""
    path = output / RUN_FILE
    return _read_json(path, way_out="choose another output folder, or resume=False") if path.exists() else None


def write_run(output: Path, run: dict[str, Any]) -> None:
    """Write ``run.json``."""
    with atomic_write(output / RUN_FILE) as file:
        json.dump(run, file, indent=1)


def check_same_run(
    output: Path, before: dict[str, Any], now: dict[str, Any], *,
    otherwise: str = "another output folder, or resume=False (--resume false) to begin anew",
) -> None:  # fmt: skip
    """Raise ConfigurationError, naming each difference, unless the folder's run has these settings and this data.

    ``otherwise``: the other ways out.
    """
    changed = [
        line
        for part in ("kind", "settings", "model", "teacher", "data", "texts", "processes")
        if part in before
        for line in _differences(part, before.get(part), now.get(part))
    ]
    if changed:
        raise ConfigurationError(
            f'"{output}" holds a run that was started differently:\n  ' + "\n  ".join(changed) + "\n"
            f"Give the same settings to go on with it, {otherwise}."
        )


def _differences(part: str, before: Any, now: Any) -> list[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        return differences(before, now)
    return differences({part: before}, {part: now})
