"""Freed memory on a CPU: training keeps it from step to step, a server gives it back."""

import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import Generator

import torch

TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4  # mallopt's names for what it sets
NEVER = -1
# What glibc comes to by itself once a chunk of 32 MiB was freed, which sets its thresholds as high as they go.
USUAL = {MMAP_MAX: 65536, MMAP_THRESHOLD: 2**25, TRIM_THRESHOLD: 2**26}
KEPT = {MMAP_MAX: 0, TRIM_THRESHOLD: NEVER}
_lock, _inside = threading.Lock(), 0  # how many are inside, of all threads


@contextlib.contextmanager
def kept_memory(device: torch.device) -> Generator[None]:
    """Memory that is freed inside stays the process's; at the end what is free goes back to the system.

    glibc maps each tensor of more than 32 MiB by itself and gives it back at once, so that a step over a long text
    touches all its pages for the first time: at 65,536 tokens (MiniLM's size) five million times. The peak may rise,
    because freed memory is in pieces: by a quarter there, by less at shorter texts; between steps it stays the
    process's. Holds for the whole process, until the last of those that are inside (nested, or in threads) is out.
    Nothing happens on other devices, without glibc (macOS, Windows, musl), or
    where the environment sets ``MALLOC_...`` or ``GLIBC_TUNABLES`` already: ``MALLOC_MMAP_MAX_=65536`` is the opt-out.
    """
    library = _glibc()
    chosen_already = "GLIBC_TUNABLES" in os.environ or any(name.startswith("MALLOC_") for name in os.environ)
    if device.type != "cpu" or library is None or chosen_already:
        yield
        return
    _count(library, 1)
    try:
        yield
    finally:
        _count(library, -1)


def give_back() -> None:
    """Free memory back to the system, of which glibc keeps what lies between pieces in use; nothing elsewhere."""
    if (library := _glibc()) is not None:
        library.malloc_trim(0)


def _count(library: ctypes.CDLL, change: int) -> None:
    """One more, or one less, is inside: the first sets the process's allocation, the last sets it back."""
    global _inside
    with _lock:
        _inside += change
        if change == _inside == 1:
            _set(library, KEPT)
        elif _inside == 0:
            _set(library, USUAL)
            library.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)
    if not all(hasattr(library, name) for name in ("gnu_get_libc_version", "mallopt", "malloc_trim")):
        return None
    library.mallopt.argtypes, library.malloc_trim.argtypes = [ctypes.c_int, ctypes.c_int], [ctypes.c_size_t]
    return library


def _set(library: ctypes.CDLL, values: dict[int, int]) -> None:
    for name, value in values.items():
        library.mallopt(name, value)
