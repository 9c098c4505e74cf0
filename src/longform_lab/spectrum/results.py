"""Results of one model on one corpus as a file of JSON lines, measured once and looked at often.

The first line is about the run, then there is one line a head with its whole curve, then the comparison of heads.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from longform.files import reading, write_lines
from longform_lab.spectrum.measure import COUNTS, Spectrum

DIGITS = 7  # of a share of the spectrum, in the file
ABOUT = ("name", "model", "corpus", "seconds", "notes", "subject", "facts")  # of a result, in the first line


@dataclass(frozen=True)
class RunResult:
    """One model on one corpus; ``name`` tells it from the report's others and can be a file name.

    ``subject``: which model and corpus, as ``subject_identity`` has them. ``facts``: when, on what machine, and with
    what versions it was measured. ``similarity``: cosine of every two heads' maps (H, H), H = layers x heads, layer by
    layer, over ``head_texts`` texts; None where heads were not compared.
    """

    name: str
    model: str
    corpus: str
    spectrum: Spectrum
    similarity: Tensor | None = None
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    subject: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


def write_result(path: Path, result: RunResult) -> None:
    """Write the file, whole or not at all."""
    write_lines(path, _rows(result))


def _rows(result: RunResult) -> list[dict[str, Any]]:
    spectrum = result.spectrum
    about = {name: getattr(result, name) for name in ABOUT}
    counts = {name: getattr(spectrum, name) for name in COUNTS}
    rows: list[dict[str, Any]] = [{"event": "run", **about, "seconds": round(result.seconds, 1), **counts}]
    for layer, curves in enumerate(spectrum.cumulative):
        rows += [
            {
                "event": "head",
                "layer": layer,
                "head": head,
                "effective_rank": float(spectrum.effective_rank[layer, head]),
                "cumulative": _rounded(curve),
                "deviation": _rounded(spectrum.deviation[layer, head]),
            }
            for head, curve in enumerate(curves)
        ]
    if result.similarity is not None:
        rows.append({"event": "similarity", "cosines": [_rounded(row) for row in result.similarity]})
    return rows


def _rounded(values: Tensor) -> list[float]:
    return [round(value, DIGITS) for value in values.tolist()]


def read_result(path: Path) -> RunResult:
    """Read the file. Raises CheckpointError where it is damaged."""
    with reading(path, way_out="delete it, and it is measured again"):
        return _result([json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()])


def _result(rows: list[dict[str, Any]]) -> RunResult:
    run = next(row for row in rows if row["event"] == "run")
    heads = [row for row in rows if row["event"] == "head"]
    layers = 1 + max(row["layer"] for row in heads)

    def grid(name: str) -> Tensor:
        return torch.tensor([row[name] for row in heads], dtype=torch.float64).unflatten(0, (layers, -1))

    counts = {name: run[name] for name in COUNTS}
    spectrum = Spectrum(grid("cumulative"), grid("deviation"), grid("effective_rank"), **counts)
    compared = next((row for row in rows if row["event"] == "similarity"), None)
    similarity = None if compared is None else torch.tensor(compared["cosines"], dtype=torch.float64)
    return RunResult(**{name: run[name] for name in ABOUT if name in run}, spectrum=spectrum, similarity=similarity)
