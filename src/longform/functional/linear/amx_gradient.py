"""What a training step needs of a linear layer by the compiled kernels of native/, on a CPU whose units they know.

Under autocast torch copies every float32 weight as bfloat16, and its gradient back. The kernels round weights while
they lay them out in tiles, a few panels ahead of the product, and sum gradients in float32 where they belong.

Axes: n rows, D inputs, F outputs. Rows of bfloat16 tensors are contiguous, and may stand apart.
"""

import torch
from torch import Tensor

from longform.functional.linear.amx import FLOATS, GELU, NOTHING, SLOPE, TURNED_FLOATS, apart
from longform.functional.native.jobs import LinearJob, WeightGradientJob
from longform.functional.native.library import run


def product(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    before_gelu: Tensor | None = None,
    bias_times: Tensor | None = None,
) -> Tensor:
    """x (n, D) bfloat16 times weight (F, D) transposed, plus bias (F,), both float32 -> (n, F) bfloat16.

    ``bias_times`` (n,) float32: how many times each row adds the bias. With ``before_gelu``, memory (n, F), exact GELU
    of it; what that was taken of is left there.
    """
    job = LinearJob(kind=TURNED_FLOATS, ending=NOTHING if before_gelu is None else GELU)
    if bias is not None:
        job.bias = bias.data_ptr()
    if bias_times is not None:
        job.bias_times = bias_times.data_ptr()
    return _done(job, x, weight, before_gelu, weight.shape[0])


def input_gradient(d_out: Tensor, weight: Tensor, *, before_gelu: Tensor | None = None) -> Tensor:
    """d_out (n, F) bfloat16 times weight (F, D) float32 -> (n, D) bfloat16, times GELU'(``before_gelu`` (n, D))."""
    job = LinearJob(kind=FLOATS, ending=NOTHING if before_gelu is None else SLOPE)
    return _done(job, d_out, weight, before_gelu, weight.shape[1])


def weight_gradient(d_out: Tensor, x: Tensor, *, with_bias: bool) -> tuple[Tensor, Tensor | None]:
    """d_out (n, F) transposed times x (n, D), both bfloat16 -> (F, D), and the sums of d_out (F,), float32."""
    outputs, inputs = d_out.shape[1], x.shape[1]
    d_weight = x.new_empty(outputs, inputs, dtype=torch.float32)
    d_bias = x.new_empty(outputs, dtype=torch.float32) if with_bias else None
    job = WeightGradientJob(
        x=x.data_ptr(), d_out=d_out.data_ptr(), d_weight=d_weight.data_ptr(), x_row=x.stride(0),
        d_out_row=d_out.stride(0), rows=x.shape[0], inputs=inputs, outputs=outputs,
    )  # fmt: skip
    if d_bias is not None:
        job.d_bias = d_bias.data_ptr()
    run(job)
    return d_weight, d_bias


def _done(job: LinearJob, x: Tensor, weight: Tensor, before_gelu: Tensor | None, outputs: int) -> Tensor:
    """The job's output (n, ``outputs``), which stands ``apart`` inside a feed-forward part."""
    out = x.new_empty(x.shape[0], outputs) if before_gelu is None else apart(x, x.shape[:1], outputs)
    job.x, job.weight, job.out = x.data_ptr(), weight.data_ptr(), out.data_ptr()
    job.x_row, job.weight_row, job.out_row = x.stride(0), weight.stride(0), out.stride(0)
    (job.rows, job.inputs), job.outputs = x.shape, outputs
    if before_gelu is not None:
        job.before_gelu, job.before_row = before_gelu.data_ptr(), before_gelu.stride(0)
    run(job)
    return out
