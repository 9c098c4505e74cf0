"""Running sums of a spectrum, and their file, from which an interrupted measurement goes on.

Axes: L layers, h heads, N the longest text, m valid tokens of a text.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from longform.files import DAMAGED, atomic_write, check_same, reading
from longform_lab.spectrum.singular_values import cumulative_spectrum, effective_rank

EVERY = 120.0  # seconds between two savings


@dataclass
class RunningSums:
    """Sums over texts, a row a layer: of curves and their squares (h, N), of effective ranks (h,), all float64."""

    length: int
    curves: list[Tensor] = field(default_factory=list)
    squares: list[Tensor] = field(default_factory=list)
    ranks: list[Tensor] = field(default_factory=list)

    def add(self, layer: int, values: Tensor) -> None:
        """One text's singular values (h, m) of a layer."""
        curve = torch.ones(values.shape[0], self.length, dtype=torch.float64)
        curve[:, : values.shape[1]] = cumulative_spectrum(values).cpu()
        added = curve, curve**2, effective_rank(values).cpu()
        for sums, value in zip((self.curves, self.squares, self.ranks), added, strict=True):
            if layer == len(sums):
                sums.append(torch.zeros_like(value))
            sums[layer] += value


@dataclass
class SumsFile:
    """Where the sums are kept meanwhile. ``subject``: the model and corpus that they are of."""

    path: Path
    subject: Mapping[str, Any]
    every: float = EVERY
    saved: float = field(default_factory=time.monotonic)

    def load(self, length: int) -> tuple[RunningSums, int]:
        """The sums and how many batches they hold; none where nothing was saved.

        Raises ConfigurationError where they are of something else, CheckpointError for a damaged file.
        """
        sums = RunningSums(length)
        if not self.path.exists():
            return sums, 0
        errors = (*DAMAGED, SafetensorError)
        with (
            reading(self.path, way_out="delete it to begin this model again", errors=errors),
            safe_open(self.path, "pt") as file,
        ):
            about = file.metadata()
            found = {name: file.get_tensor(name) for name in ("curves", "squares", "ranks")}
            subject, batches = json.loads(about["subject"]), int(about["batches"])
        check_same(self.path, subject, self.subject)
        for name, tensor in found.items():
            getattr(sums, name).extend(tensor.unbind())
        return sums, batches

    def keep(self, sums: RunningSums, batches: int) -> None:
        """Save the sums of the first ``batches`` batches, whole or not at all, if it is time to."""
        if time.monotonic() - self.saved < self.every:
            return
        tensors = {name: torch.stack(getattr(sums, name)) for name in ("curves", "squares", "ranks")}
        content = save(tensors, {"subject": json.dumps(self.subject), "batches": str(batches)})
        with atomic_write(self.path, "wb") as file:
            file.write(content)
        self.saved = time.monotonic()
