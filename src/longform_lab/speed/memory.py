"""Peak memory of one pass: resident memory on a CPU, the allocator's count on CUDA; and limits on it."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import torch

STATUS = Path("/proc/self/status")
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}  # freed memory goes back at once
KEPT_FREE = 0.06  # of available memory, for everyone else


def peak_growth(action: Callable[[], object], device: str | torch.device) -> int | None:
    """Bytes by which memory rises above its present level while the action runs; None where the system cannot say it.

    On CUDA what the allocator has handed out; on Linux the kernel's own record (VmHWM, reset through clear_refs). The
    process should run with ``ALLOCATOR`` in its environment.
    """
    place = torch.device(device)
    if place.type == "cuda":
        before = torch.cuda.memory_allocated(place)
        torch.cuda.reset_peak_memory_stats(place)
        action()
        return torch.cuda.max_memory_allocated(place) - before
    resident = _resident_from_now() if place.type == "cpu" else None
    action()
    return None if resident is None else max(0, _kilobytes("VmHWM") - resident) * 1024


def _resident_from_now() -> int | None:
    """Kilobytes now, from where the kernel's record of the highest begins anew; None where there is no such record."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
        return _kilobytes("VmRSS")
    except OSError:
        return None


def process_peak() -> int:
    """The most bytes that the process had resident, since the last ``peak_growth`` began where there was one."""
    if STATUS.exists():
        return _kilobytes("VmHWM") * 1024
    import resource  # there is none on Windows

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def available_bytes() -> int | None:
    """Memory that a new process can have; None where the system does not say it."""
    try:
        found = re.search(r"MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        return None
    return None if found is None else int(found[1]) * 1024


def limit_memory(limit: int | None) -> None:
    """Make allocations fail above ``limit`` bytes, so that one process's excess ends in an error and not in a kill."""
    if limit is None or sys.platform == "win32":
        return
    import resource

    if hasattr(resource, "RLIMIT_DATA"):
        most = resource.getrlimit(resource.RLIMIT_DATA)[1]
        if most != resource.RLIM_INFINITY:
            limit = min(limit, most)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, most))


def _kilobytes(name: str) -> int:
    found = re.search(rf"{name}:\s*(\d+) kB", STATUS.read_text())
    assert found is not None, f"{STATUS} has no {name}"
    return int(found[1])
