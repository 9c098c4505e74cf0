"""Means of runs of tokens by the compiled kernel of native/, for bfloat16 on a CPU without gradients: one pass.

torch sums few bfloat16 values slowly, or copies them as float32 first: 2,048 tokens of 768 features, 8 a run, took it
0.53 ms on two cores, and the kernel 0.14.

Axes: B batch, n tokens, S slots, F features.
"""

import ctypes

import torch
from torch import Tensor

from longform.functional.conditions import is_plain_inference
from longform.functional.native.jobs import MeanJob
from longform.functional.native.library import native_library


def native_mean_serves(x: Tensor) -> bool:
    """Whether the kernel takes such ``x`` (B, n, F); a compiler cannot trace the last question."""
    plain = x.dtype == torch.bfloat16 and x.numel() > 0 and is_plain_inference(x)
    return plain and x.stride(2) == 1 and native_library() is not None


def native_mean_of_runs(x: Tensor, count: Tensor, *, size: int, sinks: int) -> Tensor:
    """Sums of ``size`` tokens each, the first ``sinks`` left out, over ``count`` (B, S) or 1: x (B, n, F) -> (B, S, F).

    S is n / size, rounded up.
    """
    library = native_library()
    assert library is not None
    batch, length, features = x.shape
    out = x.new_empty(batch, -(-length // size), features)
    count = count.float().contiguous()
    job = MeanJob(
        x=x.data_ptr(), out=out.data_ptr(), count=count.data_ptr(), x_batch=x.stride(0), x_row=x.stride(1),
        count_batch=count.stride(0), batch=batch, rows=length, features=features, size=size, sinks=sinks,
        threads=torch.get_num_threads(),
    )  # fmt: skip
    library.longform_mean_of_runs(ctypes.byref(job))
    return out
