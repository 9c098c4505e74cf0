"""What a measurement ran on, as a benchmark record has it (longform.benchmarking.records), and its peak memory."""

import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from longform.benchmarking.records import Record


def surroundings(device: torch.device) -> dict[str, Any]:
    """``hardware``, ``versions``, ``commit`` and ``date`` of a record of what ran on ``device``: on a CPU no GPU is
    named, even where the machine has one."""
    filled = asdict(Record(name="", metrics={}))
    filled["hardware"]["gpu"] = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return {name: filled[name] for name in ("hardware", "versions", "commit", "date")}


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
