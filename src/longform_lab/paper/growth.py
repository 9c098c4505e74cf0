"""Time and memory of one pass of an LSTM, Reformer and Performer, which the benchmark lacks, each in its own process.

::

    python -m longform_lab.paper.growth '{"task": "time", "name": "recurrent", "cell": {...}, "repeats": 3}'

prints a JSON object: "time": the seconds of every round; "memory": the bytes by which memory rose above the loaded
model, under an allocator that gives memory back at once, which makes a pass slower.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from longform.errors import MissingDependencyError
from longform_lab.compare.encoders import performer, reformer
from longform_lab.compare.sizes import Sizes
from longform_lab.speed.children import said_apart
from longform_lab.speed.measuring import alternate
from longform_lab.speed.memory import peak_growth
from longform_lab.speed.precision import make_pass, prepare, random_states
from longform_lab.speed.shapes import Cell, Shape
from longform_lab.speed.worker import reason_of


class _OnStates(nn.Module):
    """An encoder as a function of hidden states (B, n, D)."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, hidden: Tensor) -> Tensor:
        """hidden (B, n, D) -> (B, n, D or 2 D)."""
        mask = torch.ones(hidden.shape[:2], dtype=torch.long, device=hidden.device)
        found = self.encoder(inputs_embeds=hidden, attention_mask=mask)
        return found if isinstance(found, Tensor) else found.last_hidden_state


class _Recurrent(nn.Module):
    """As many LSTM layers, both directions, D features in all."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        size = shape.size
        self.layers = nn.LSTM(size.hidden, size.hidden // 2, size.layers, batch_first=True, bidirectional=True)

    def forward(self, hidden: Tensor) -> Tensor:
        """hidden (B, n, D) -> (B, n, D)."""
        return self.layers(hidden)[0]


def _sizes(shape: Shape) -> Sizes:
    size = shape.size
    return Sizes(
        length=shape.length,
        vocabulary=0,
        features=size.hidden,
        labels=2,
        hidden_size=size.hidden,
        layers=size.layers,
        heads=size.heads,
        intermediate_size=size.intermediate,
        dropout=0.0,
        projected_length=shape.slots,
    )


BUILDERS: dict[str, tuple[str, Callable[[Shape], nn.Module]]] = {
    "recurrent": ("recurrent (LSTM, both directions)", _Recurrent),
    "reformer": ("Reformer (LSH)", lambda shape: _OnStates(reformer(_sizes(shape))[0])),
    "performer": ("Performer", lambda shape: _OnStates(performer(_sizes(shape))[0])),
}


def measured(task: str, name: str, cell: Cell, repeats: int) -> dict[str, Any]:
    """``task`` "time" or "memory", in this process; raises what building and running raise."""
    torch.set_num_threads(cell.threads)
    torch.manual_seed(0)
    model = prepare(BUILDERS[name][1](cell.shape).eval(), cell, autocast=True)
    run, hidden = make_pass(model, cell), random_states(cell)
    run(hidden)
    if task == "memory":
        return {"growth": peak_growth(partial(run, hidden), cell.device)}
    return {"seconds": alternate({name: partial(run, hidden)}, {name: repeats}, lambda _: None)[name]}


def measured_apart(name: str, cell: Cell, repeats: int, limit: float) -> dict[str, Any]:
    """Seconds and growth, each from a process of its own; {"missing": why} where one has no result.

    ``limit``: seconds that a process may take.
    """
    found: dict[str, Any] = {}
    for task in ("memory", "time"):
        job = json.dumps({"task": task, "name": name, "cell": asdict(cell), "repeats": repeats})
        found |= said_apart(task, "longform_lab.paper.growth", job, limit=limit)
        if "missing" in found:
            break
    return found


def reported(task: str, name: str, cell: Cell, repeats: int) -> dict[str, Any]:
    """Result of ``measured``, or {"missing": why} where it fails."""
    try:
        return measured(task, name, cell, repeats)
    except MissingDependencyError as error:
        return {"missing": f"not installed: {error}"}
    except Exception as error:
        return {"missing": reason_of(error)}


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    print(json.dumps(reported(asked["task"], asked["name"], Cell(**asked["cell"]), asked["repeats"])))
