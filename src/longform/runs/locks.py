"""Locks between processes that share a folder: one works on a part, the others take the next one."""

import contextlib
import os
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path

from longform.errors import ConfigurationError


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = False) -> Generator[bool]:
    """True while no other process holds ``path``, which the system releases when this process ends, even if killed.

    ``wait``: until the other has let go. Where the system has no such locks (Windows), always True.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if find_spec("fcntl") is None:
        yield True
        return
    import fcntl

    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        mine = True
    except BlockingIOError:
        mine = False
    try:
        yield mine
    finally:
        os.close(handle)


def refuse_process_groups() -> None:
    """Raise ConfigurationError in one of several processes of torchrun, which would wait for each other's locks."""
    size = os.environ.get("WORLD_SIZE", "1")
    if size not in ("", "1"):
        raise ConfigurationError(
            f"longform reproduce takes one process a training, and this is one of WORLD_SIZE={size}: start it without "
            "torchrun; the same command several times shares the trainings of a folder out"
        )
