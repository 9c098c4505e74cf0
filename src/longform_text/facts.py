"""The machine and software of a run: hardware, versions and commit, for records and for reports."""

import datetime
import importlib.metadata
import os
import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import torch

from longform.functional.conditions import native_bfloat16

CHECKOUT = Path(__file__).parents[2]
PACKAGES = ("torch", "transformers", "longform")
CPU_FEATURES = {"avx2": "avx2", "avx512": "avx512f", "avx512_bf16": "avx512_bf16", "amx_bf16": "amx_bf16"}


def hardware(device: torch.device | None = None) -> dict[str, Any]:
    """CPU model and features, usable cores, torch threads, memory in GiB, and the GPU or None.

    ``device``: what was used; on a CPU no GPU is named, even where the machine has one. None: all that there is.
    """
    model, features = _cpu_description()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    on_gpu = torch.cuda.is_available() if device is None else device.type == "cuda"
    return {
        "cpu": model,
        "cpu_features": features,
        "cores": cores,
        "threads": torch.get_num_threads(),
        "memory_gib": round(memory, 1),
        "gpu": torch.cuda.get_device_name(device) if on_gpu else None,
    }


def _cpu_description() -> tuple[str, list[str]]:
    """Model name and those instruction sets that decide the speed of matrix products."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine(), []
    pairs = (line.partition(":") for line in lines)
    fields = {name.strip(): value.strip() for name, _, value in pairs}
    flags = set(fields.get("flags", "").split())
    return fields.get("model name", platform.machine()), [name for name, flag in CPU_FEATURES.items() if flag in flags]


def versions() -> dict[str, str]:
    """Python, the packages that decide a result, and which kernels of our own were there."""
    from longform.functional.native.library import kernels

    packages = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {"python": platform.python_version(), **packages, "kernels": kernels()}


@cache
def commit() -> str:
    """The commit of the working tree, with "+" when tracked code differs from it; "unknown" outside a checkout.

    As it was when this process first asked: long measurements ask before they begin.
    """
    if not (CHECKOUT / ".git").exists():
        return "unknown"
    changes = ("status", "--porcelain", "--untracked-files=no", "--", "src", "benchmarks/*.py")
    try:
        return _git("rev-parse", "--short=12", "HEAD") + ("+" if _git(*changes) else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=CHECKOUT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def now() -> str:
    """UTC, ISO 8601, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def record_facts(device: torch.device) -> dict[str, Any]:
    """``hardware``, ``versions``, ``commit`` and ``date`` of a record of what has just run on ``device``."""
    return {"hardware": hardware(device), "versions": versions(), "commit": commit(), "date": now()}


def environment(device: torch.device | None = None, dtype: torch.dtype | None = None) -> dict[str, str]:
    """Names and values for people: a report's last line, the first record of a training.

    ``device``, ``dtype`` of matrix products: those that were used; None: what "auto" is here.
    """
    device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = dtype or (torch.bfloat16 if native_bfloat16(device) else torch.float32)
    found = hardware(device)
    return {
        "machine": f"{found['cpu']}, {found['cores']} cores, {found['threads']} threads",
        "device": found["gpu"] or "CPU",
        "matrix products": str(dtype).removeprefix("torch."),
        "system": f"{platform.system()} {platform.machine()}",
        **versions(),
        "code": commit(),
    }
