"""The benchmark record: what was measured, with what settings, on what machine, with what code.

One record is one JSON line. Files of records are appended to and never edited; a newer record with the same settings
replaces an older one in tables only.
"""

import datetime
import importlib.metadata
import json
import math
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).parents[3]
PACKAGES = ("torch", "transformers", "longform")
CPU_FEATURES = {"avx2": "avx2", "avx512": "avx512f", "avx512_bf16": "avx512_bf16", "amx_bf16": "amx_bf16"}

Value = float | int | str | bool | list[list[float]] | None


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


def hardware() -> dict[str, Any]:
    """CPU model and features, usable cores, torch threads, memory in GiB, and the GPU or None."""
    import torch

    model, features = _cpu_description()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpu": model,
        "cpu_features": features,
        "cores": cores,
        "threads": torch.get_num_threads(),
        "memory_gib": round(memory, 1),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


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
    try:
        head = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=CHECKOUT, check=True, capture_output=True)
        changed = subprocess.run(
            ["git", "status", "--porcelain", "--untracked-files=no", "--", "src", "benchmarks/*.py"],
            cwd=CHECKOUT,
            check=True,
            capture_output=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.stdout.decode().strip() + ("+" if changed.stdout.strip() else "")


def now() -> str:
    """UTC, ISO 8601, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


@dataclass(frozen=True, kw_only=True)
class Record:
    """One measurement.

    Args:
        name: what was measured; the file and, by default, the table that shows it.
        metrics: results by name; None where a result does not exist. NaN and infinity are refused.
        settings: all that was chosen; equal settings mean the same experiment.
        units: unit by metric, for those that have one.
        hardware, versions, commit, date: filled in from the machine (date is UTC, ISO 8601).
    """

    name: str
    metrics: Mapping[str, Value]
    settings: Mapping[str, Any] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    hardware: Mapping[str, Any] = field(default_factory=hardware)
    versions: Mapping[str, str] = field(default_factory=versions)
    commit: str = field(default_factory=commit)
    date: str = field(default_factory=now)

    def __post_init__(self) -> None:
        broken = [key for key, value in self.metrics.items() if isinstance(value, float) and not math.isfinite(value)]
        if broken:
            raise ValueError(f"record {self.name!r}: metrics must be finite or None, got {broken}")
        unknown = self.units.keys() - self.metrics.keys()
        if unknown:
            raise ValueError(f"record {self.name!r}: units for metrics that do not exist: {sorted(unknown)}")

    def to_line(self) -> str:
        """The record as one line of JSON, without the line end."""
        return json.dumps(asdict(self), ensure_ascii=False, allow_nan=False)


def append_records(path: str | Path, records: Iterable[Record]) -> None:
    """Append lines in a single write, so that two processes cannot mix theirs; creates the file and its folder."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, "".join(record.to_line() + "\n" for record in records).encode())
    finally:
        os.close(descriptor)


def append_record(path: str | Path, record: Record) -> None:
    """Append one record."""
    append_records(path, [record])


def read_records(paths: Iterable[str | Path]) -> list[Record]:
    """All records of the files, in file order.

    Raises:
        ValueError: a line that is not a record, with file and line number.
    """
    records = []
    for path in map(Path, paths):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if not line.strip():
                continue
            try:
                records.append(Record(**json.loads(line)))
            except (TypeError, ValueError) as error:
                raise ValueError(f"{path.name}, line {number}: not a benchmark record ({error})") from error
    return records
