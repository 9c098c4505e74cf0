"""Passes as CUDA graphs, and a training's forward, backward and clipping: eager, as a graph, or compiled and as one.

A small model on a GPU waits for Python in eager mode; a graph that is captured once and replayed does not. A mode that
fails, or that does not compute what eager mode does, is left with one line that says why; the process then begins anew
in the next mode, since a failed capture leaves CUDA as it may.

Axes: B texts, n tokens, m hidden tokens.
"""

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

from longform import LinformerForMaskedLM
from longform.models.graphs import record

FALLBACK = {"compile": "graph", "graph": "eager"}  # compiled passes are captured too
LARGEST_DIFFERENCE = 0.02  # of the loss and of the norm of gradients from eager mode's, relative; bfloat16


class TrainingPass:
    """A call takes a batch, long (B, n), (m) and (m), and leaves clipped gradients; all batches have one shape.

    ``first``: a batch by which the mode is tried; it changes no weights. ``mode`` is then what serves.
    """

    def __init__(self, model: LinformerForMaskedLM, first: Sequence[Tensor], *, mode: str) -> None:
        self.model = model
        self.buffers = tuple(x.clone() for x in first)
        self.mode, self.replay = "eager", cast(Callable[[], object], self._eager)
        if mode == "eager":
            return
        if self.buffers[0].device.type != "cuda":
            print(f"--mode {mode} takes a GPU, graphs are CUDA's: eager mode serves", flush=True)
            return
        try:
            self.mode, self.replay = mode, self._tried(mode)
        except Exception as error:
            _begin_anew(mode, error)

    def __call__(self, batch: Sequence[Tensor]) -> None:
        for buffer, x in zip(self.buffers, batch, strict=True):
            buffer.copy_(x)
        self.replay()

    def loss(self, ids: Tensor, places: Tensor, labels: Tensor) -> Tensor:
        """The mean cross-entropy in nats, a scalar; ids (B, n), places and labels (m)."""
        # Nothing is kept from one pass to the next: a graph would read what no longer is there.
        with torch.autocast(ids.device.type, dtype=torch.bfloat16, enabled=ids.is_cuda, cache_enabled=False):
            return _loss(self.model, ids, places, labels)

    def _eager(self, compute: Callable[..., Tensor] | None = None) -> Tensor:
        """The loss and the norm of its gradients before they were clipped, (2,)."""
        self.model.zero_grad(set_to_none=True)
        loss = (compute or self.loss)(*self.buffers)
        loss.backward()
        norm = clip_grad_norm_(self.model.parameters(), 1.0)
        return torch.stack([loss.detach(), norm.detach()])

    def _tried(self, mode: str) -> Callable[[], object]:
        """Replay of a captured pass. Raises where it gives other numbers than eager mode."""
        expected = self._eager().tolist()
        replay, result = record(partial(self._eager, self._compiled() if mode == "compile" else self.loss))
        replay()
        found = result.tolist()
        pairs = zip(found, expected, strict=True)
        if not all(abs(one - other) <= LARGEST_DIFFERENCE * abs(other) for one, other in pairs):
            raise RuntimeError(f"loss and norm of gradients are {found}, in eager mode {expected}")
        return replay

    def _compiled(self) -> Callable[..., Tensor]:
        compiled = torch.compile(_loss, dynamic=False)

        def compute(*given: Tensor) -> Tensor:
            with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
                return compiled(self.model, *given)

        return compute


def _loss(model: LinformerForMaskedLM, ids: Tensor, places: Tensor, labels: Tensor) -> Tensor:
    """As TrainingPass.loss; the head sees hidden tokens alone."""
    states = model.linformer(input_ids=ids).last_hidden_state.flatten(0, 1)
    return cross_entropy(model.lm_head(states.index_select(0, places)).float(), labels)


def _begin_anew(mode: str, error: Exception) -> None:
    """This process again, in the next mode."""
    reason = " ".join(str(error).split())[:200]
    print(f"--mode {mode} does not work here, {FALLBACK[mode]} does: {reason}", flush=True)
    program = sys.modules["__main__"].__spec__
    assert program is not None, "modes are for programs that were started by python -m"
    os.execv(sys.executable, [sys.executable, "-m", program.name, *sys.argv[1:], "--mode", FALLBACK[mode]])
