"""What a run ran on: hardware and versions."""

import os
import platform
from importlib.metadata import version
from pathlib import Path

import torch

from longform.functional.conditions import native_bfloat16


def environment(device: torch.device | None = None, dtype: torch.dtype | None = None) -> dict[str, str]:
    """Names and values, as the records and the report's last line have them.

    ``device``, ``dtype`` of matrix products: those that were used; None: what "auto" is here.
    """
    device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = dtype or (torch.bfloat16 if native_bfloat16(device) else torch.float32)
    return {
        "machine": f"{_processor()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads",
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU",
        "matrix products": str(dtype).removeprefix("torch."),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "longform": version("longform"),
        "torch": torch.__version__,
        "transformers": version("transformers"),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
