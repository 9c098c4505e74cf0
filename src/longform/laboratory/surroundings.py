"""What a measurement ran on: the fields of a benchmark record (benchmarks/records.py), and its peak memory."""

import datetime
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from longform.training.environment import environment

VERSIONS = ("python", "torch", "transformers", "longform")


def surroundings() -> dict[str, Any]:
    """``hardware``, ``versions`` and ``date`` (UTC) of a record; ``commit``: the variable LONGFORM_COMMIT's."""
    found = environment()
    return {
        "hardware": {name: value for name, value in found.items() if name not in VERSIONS},
        "versions": {name: found[name] for name in VERSIONS},
        "commit": os.environ.get("LONGFORM_COMMIT", "unknown"),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def peak_growth(action: Callable[[], object]) -> int | None:
    """Bytes by which resident memory rises above its present level while the action runs; None where the system
    does not say it (Linux does: VmHWM, reset through clear_refs)."""
    status = Path("/proc/self/status")
    try:
        Path("/proc/self/clear_refs").write_text("5")
        before = _kilobytes(status.read_text(), "VmRSS")
    except OSError:
        return None
    action()
    return (_kilobytes(status.read_text(), "VmHWM") - before) * 1024


def _kilobytes(status: str, name: str) -> int:
    found = re.search(rf"{name}:\s*(\d+) kB", status)
    assert found is not None, f"/proc/self/status has no {name}"
    return int(found[1])
