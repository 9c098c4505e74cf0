"""What a command has written, for comparison: byte for byte, but for times, what is drawn of them, and what a second
start of ``embed`` and ``predict`` computes in other batches.
"""

import json
import math
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pyarrow.parquet
import safetensors.torch

from longform.choices import INDEX_FOLDER
from tolerances import IN_OTHER_BATCHES

# Values that differ between two unbroken runs too: times, dates, measured memory; what the demo says of them.
MEASURED = (
    "*seconds*", "*milliseconds*", "tokens_per_second*", "date", "measured", "*mib", "commit", "summary", "hardware",
    "longform", "full",  # milliseconds of a layer, in the demo
)  # fmt: skip
# Pages and pictures that show such values; the log of a benchmark's processes. They are to be there.
SHOWING = (
    "report.html", "README.md", "table.md", "comparison.png", "lengths.png", "layer.png", "time-*.png", "memory-*.png",
    "children.log",
)  # fmt: skip
STREAMED = "out."  # output of embed and predict, which is one file


def contents(place: Path, *, measurements: bool = False) -> dict[str, Any]:
    """Every file below ``place`` by name. ``measurements``: the metrics of records are times and nothing else."""
    measured = (*MEASURED, "metrics") if measurements else MEASURED
    # An index holds the times of files; tests/text/search kills what writes it.
    files = sorted(path for path in place.rglob("*") if not path.is_dir() and INDEX_FOLDER not in path.parts)
    return {path.relative_to(place).as_posix(): content(path, place, measured) for path in files}


def content(path: Path, place: Path, measured: tuple[str, ...]) -> Any:
    """What is compared of one file."""
    if any(fnmatch(path.name, pattern) for pattern in SHOWING):
        return path.stat().st_size > 0
    if path.suffix == ".parquet":
        return pyarrow.parquet.read_table(path).to_pylist()
    if path.suffix not in (".json", ".jsonl"):
        return path.read_bytes()
    text = path.read_text(encoding="utf-8").replace(str(place), "PLACE")
    values = [json.loads(text)] if path.suffix == ".json" else list(map(json.loads, text.splitlines()))
    return [without(value, measured) for value in values]


def without(value: Any, names: tuple[str, ...]) -> Any:
    """A JSON value without what was measured."""
    if isinstance(value, list):
        return [without(one, names) for one in value]
    if not isinstance(value, dict):
        return value
    kept = {name: one for name, one in value.items() if not any(fnmatch(name, pattern) for pattern in names)}
    return {name: without(one, names) for name, one in kept.items()}


def differences(expected: dict[str, Any], found: dict[str, Any], *, rounded: bool = False) -> list[str]:
    """One line for each file that is missing, additional or another. ``rounded``: numbers may differ by rounding."""
    states = {"is missing": expected.keys() - found.keys(), "is left over": found.keys() - expected.keys()}
    lines = [f"{name} {state}" for state, names in states.items() for name in sorted(names)]
    both = expected.keys() & found.keys()
    return lines + [f"{name} differs" for name in both if not same(name, expected[name], found[name], rounded)]


def same(name: str, expected: Any, found: Any, rounded: bool) -> bool:
    """Whether the content of a file is the same; ``rounded``: but for rounding, of which an optimizer makes much where
    a gradient is nearly zero: of weights names and shapes are compared, and the losses that they give.
    """
    if rounded and name.endswith(".safetensors"):
        weights, others = (safetensors.torch.load(bytes) for bytes in (expected, found))
        return {key: x.shape for key, x in weights.items()} == {key: x.shape for key, x in others.items()}
    return alike(expected, found) if rounded or name.startswith(STREAMED) else expected == found


def alike(expected: Any, found: Any) -> bool:
    """Whether two JSON values are equal, numbers within the tolerance."""
    if isinstance(expected, float) and isinstance(found, float):
        return math.isclose(expected, found, rel_tol=IN_OTHER_BATCHES.rtol, abs_tol=IN_OTHER_BATCHES.atol)
    if isinstance(expected, dict) and isinstance(found, dict):
        return list(expected) == list(found) and alike(list(expected.values()), list(found.values()))
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(map(alike, expected, found))
    return expected == found
