"""The mean of each slot's tokens, by torch or by the compiled kernel of csrc/rows.c.

torch sums few bfloat16 values slowly, or copies them as float32 first: 2,048 tokens of 768 features, 8 a run, took it
0.53 ms on two cores, and the kernel 0.14.

Axes: B batch, n tokens, S slots, F features.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from longform.functional import dispatch
from longform.functional.conditions import BFLOAT16, EAGER, LIBRARY, NO_GRADIENT, PLAIN, Call
from longform.functional.dispatch import Condition, Kernel
from longform.functional.native.jobs import MeanJob, contiguous_rows, pointer, strided
from longform.functional.native.library import run
from longform.functional.slots import Slots, segment_sum

FEATURE_MULTIPLE = 64


@dataclass(eq=False)
class MeanCall(Call):
    """x (B, n, F) with padding blanked; ``limit``: the most slots there can be; the first ``sinks`` tokens are left
    out.
    """

    x: Tensor
    slots: Slots
    limit: int
    sinks: int

    def __post_init__(self) -> None:
        self.tensors = (self.x,)

    def options(self) -> tuple[Any, ...]:
        """See Call."""
        return (self.slots.uniform is None,)


def _by_torch(call: MeanCall) -> Tensor:
    total = segment_sum(call.x, call.slots.size, call.slots.uniform, limit=call.limit, sinks=call.sinks)
    return total / call.slots.count.clamp(min=1.0).to(total.dtype)[..., None]


def _compiled(call: MeanCall) -> Tensor:
    x, size = contiguous_rows(call.x), call.slots.uniform
    assert size is not None
    batch, length, features = x.shape
    runs = -(-length // size)
    out, count = x.new_empty(batch, runs, features), call.slots.count.float().contiguous()
    job = MeanJob(
        out=pointer(out, torch.bfloat16, batch, runs, features), count=pointer(count, torch.float32, batch, runs),
        count_batch=runs, batch=batch, rows=length, features=features, size=size, sinks=call.sinks,
    )  # fmt: skip
    job.x, job.x_batch, job.x_row = strided(x, torch.bfloat16, *x.shape)
    run(job)
    return out


ONE_SIZE = Condition("slots of one size, known without asking the device", lambda call: call.slots.uniform is not None)
FITS = Condition(
    f"tokens, and a multiple of {FEATURE_MULTIPLE} features",
    lambda call: call.x.numel() > 0 and call.x.shape[2] % FEATURE_MULTIPLE == 0,
)
SLOT_MEANS = dispatch.operation(
    "slot_means",
    Kernel("compiled", _compiled, (BFLOAT16, EAGER, PLAIN, NO_GRADIENT, ONE_SIZE, FITS, LIBRARY)),
    Kernel("torch", _by_torch),
)


def mean_pool(x: Tensor, slots: Slots, *, limit: int, sinks: int = 0) -> Tensor:
    """Mean of each slot's valid tokens: x (B, n, F) with padding blanked -> (B, S, F); an empty slot gives zeros.

    ``limit``: the most slots there can be (k). ``sinks``: leading tokens to leave out, which ``slots`` does not count.
    """
    return dispatch.run(SLOT_MEANS, MeanCall(x, slots, limit, sinks))
