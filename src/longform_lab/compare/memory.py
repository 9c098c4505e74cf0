"""Peak memory of one training step at full length, measured in a process of its own.

::

    python -m longform_lab.compare.memory NAME SIZES_JSON TEXTS DEVICE

prints {"mib": ...}: how far resident memory (on a GPU: allocated memory) rises above the model's own while forward and
backward of TEXTS texts of the longest length run, float32.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from longform_lab.compare.architectures import build
from longform_lab.speed.memory import peak_growth
from longform_lab.speed.processes import run_module
from longform_lab.speed.sizes import Sizes

MIB = 2**20


def texts_at_once(batch_size: int, tokens_per_forward: int, length: int) -> int:
    """Texts of full length that go through a model together in training."""
    return max(1, min(batch_size, tokens_per_forward // length))


def step_memory(name: str, sizes: Sizes, texts: int, device: torch.device, log: Path) -> tuple[float | None, str]:
    """MiB, measured in a process of its own, and ""; or None and the reason. ``log``: gets its complaints."""
    given = (name, json.dumps(asdict(sizes)), str(texts), str(device))
    lines, why = run_module("longform_lab.compare.memory", *given, log=log, frugal=True)
    if why:
        return None, why
    found = json.loads(lines[-1])["mib"]
    return found, "" if found is not None else "the system does not say how much memory a process used"


def measured(name: str, sizes: Sizes, texts: int, device: torch.device) -> float | None:
    """Peak memory of an architecture, measured in this process."""
    model = build(name, sizes, seed=0).to(device).train()
    _step(model, _inputs(sizes, 1, device))  # loads the kernels
    inputs = _inputs(sizes, texts, device)
    growth = peak_growth(lambda: _step(model, inputs), device)
    return None if growth is None else growth / MIB


def _inputs(sizes: Sizes, texts: int, device: torch.device) -> tuple[Any, Any]:
    shape = (texts, sizes.length)
    ids = torch.randint(1, sizes.vocabulary, shape)
    return ids.to(device), torch.ones(shape, dtype=torch.long, device=device)


def _step(model: torch.nn.Module, inputs: tuple[Any, Any]) -> None:
    model(*inputs).logsumexp(-1).sum().backward()


if __name__ == "__main__":
    asked, chosen, count, place = sys.argv[1:]
    print(json.dumps({"mib": measured(asked, Sizes(**json.loads(chosen)), int(count), torch.device(place))}))
