"""What a measurement ran on, as a benchmark record has it (longform.runs.records)."""

from dataclasses import asdict
from typing import Any

import torch

from longform.runs.records import Record


def surroundings(device: torch.device) -> dict[str, Any]:
    """``hardware``, ``versions``, ``commit`` and ``date`` of a record of what ran on ``device``: on a CPU no GPU is
    named, even where the machine has one."""
    filled = asdict(Record(name="", metrics={}))
    filled["hardware"]["gpu"] = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return {name: filled[name] for name in ("hardware", "versions", "commit", "date")}
