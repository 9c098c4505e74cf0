"""What a command has written, for comparison: byte for byte, but for times, what is drawn of them, what a second start
of ``embed`` and ``predict`` computes in other batches, and what a training draws anew that goes on from a checkpoint.
"""

import json
import math
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pyarrow.parquet
import safetensors.torch

from longform.choices import INDEX_FOLDER
from tolerances import IN_OTHER_BATCHES, Tolerance

# Values that differ between two unbroken runs too: times, dates, measured memory; what the demo says of them.
MEASURED = (
    "*seconds*", "*milliseconds*", "*_per_second*", "*_runtime", "date", "measured", "*mib", "commit", "summary",
    "hardware", "longform", "full",  # milliseconds of a layer, in the demo
)  # fmt: skip
# Pages and pictures that show such values; the log of a benchmark's processes. They are to be there.
SHOWING = (
    "report.html", "README.md", "table.md", "comparison.png", "lengths.png", "layer.png", "time-*.png", "memory-*.png",
    "children.log",
)  # fmt: skip
TRAINED = "pretrain", "distill", "align", "finetune"  # go on from the last whole checkpoint, to losses within NOISE
NOISE = Tolerance(rtol=0.05, atol=1e-6)
SINCE_THE_START = "train_loss", "total_flos", "grad_norm"  # means and sums of one start; lengths of single gradients
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


def differences(
    expected: dict[str, Any], found: dict[str, Any], *, rounded: bool = False, resumed: bool = False
) -> list[str]:
    """One line for each file that is missing, additional or another. ``rounded``: numbers may differ by rounding;
    ``resumed``: by what a training draws that went on from a checkpoint.
    """
    states = {"is missing": expected.keys() - found.keys(), "is left over": found.keys() - expected.keys()}
    lines = [f"{name} {state}" for state, names in states.items() for name in sorted(names)]
    both = expected.keys() & found.keys()
    bound = NOISE if resumed else IN_OTHER_BATCHES if rounded else None
    return lines + [f"{name} differs" for name in both if not same(name, expected[name], found[name], bound)]


def same(name: str, expected: Any, found: Any, bound: Tolerance | None) -> bool:
    """Whether the content of a file is the same; within a ``bound`` of numbers, of weights names and shapes are
    compared, and the losses that they give: an optimizer makes much of rounding where a gradient is nearly zero.
    """
    if bound and name.endswith(".safetensors"):
        weights, others = (safetensors.torch.load(bytes) for bytes in (expected, found))
        return {key: x.shape for key, x in weights.items()} == {key: x.shape for key, x in others.items()}
    if bound is NOISE:
        if name.endswith(".png"):
            return bool(expected and found)
        expected, found = without(expected, SINCE_THE_START), without(found, SINCE_THE_START)
    if name.startswith(STREAMED):
        bound = IN_OTHER_BATCHES
    return alike(expected, found, bound) if bound else expected == found


def alike(expected: Any, found: Any, bound: Tolerance) -> bool:
    """Whether two JSON values are equal, numbers within the ``bound``."""
    if isinstance(expected, float) and isinstance(found, float):
        return math.isclose(expected, found, rel_tol=bound.rtol, abs_tol=bound.atol)
    if isinstance(expected, dict) and isinstance(found, dict):
        return expected.keys() == found.keys() and all(alike(expected[name], found[name], bound) for name in expected)
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(
            alike(one, other, bound) for one, other in zip(expected, found, strict=True)
        )
    return expected == found
