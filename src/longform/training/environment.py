"""What a run ran on: hardware and versions."""

import os
import platform
from importlib.metadata import version
from pathlib import Path

import torch

import longform
from longform.training.settings import compute_dtype


def environment() -> dict[str, str]:
    """Names and values, as the records and the report's last line have them."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return {
        "machine": f"{_processor()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads",
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "CPU",
        "matrix products": str(compute_dtype("auto", device)).removeprefix("torch."),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "longform": longform.__version__,
        "torch": torch.__version__,
        "transformers": version("transformers"),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
