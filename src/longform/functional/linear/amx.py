"""Linear layers by the compiled kernel of native/, for bfloat16 on a CPU whose units it knows, without gradients.

oneDNN computes GELU after its product, and leaves one of two cores idle at some sizes (onednn_linear.py). The kernel
computes it with the vector units while the tiles multiply. On two cores with AMX, weights not in a cache: 512 x 768 x
3,072 with GELU took 1.1 ms instead of 1.5, 512 x 3,072 x 768 with a residual 1.5 instead of 2.3, 512 x 768 x 768 0.29
instead of 0.52; of 128 rows each takes a fifth less, of 2,048 between a tenth and a third.

Axes: n rows, D inputs, F outputs, k rows of E.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from longform.functional.conditions import is_plain_inference
from longform.functional.native.jobs import LinearJob
from longform.functional.native.library import best_units, run

WHOLE = 32  # what D and F are multiples of: the rows of two tiles, and a tile's pairs
SIDE = 16  # rows and columns of a tile
LONGEST = 2048  # inputs of 256 rows fill half of the second cache
TILES, HALVES, FLOATS, TURNED_FLOATS = range(4)  # native/linear.h's weight_kind
NOTHING, GELU, SLOPE = range(3)  # and its ending
SETS = 1024  # rows of so many features, or twice, thrice as many, begin in two of the nearest cache's 64 sets


def native_linear_fits(weight: Tensor) -> bool:
    """Whether the kernel takes such a weight (F, D), and this machine has its units."""
    fits = weight.dtype == torch.bfloat16 and weight.device.type == "cpu" and weight.numel() > 0
    return fits and not any(size % WHOLE for size in weight.shape) and best_units() is not None


def tiled(weight: Tensor) -> Tensor:
    """``weight`` (F, D) as the kernel reads it: (F / 32, D / 32, 1024), 2 tiles of 16 outputs, in pairs of inputs."""
    outputs, inputs = weight.shape
    parts = weight.reshape(outputs // WHOLE, 2, SIDE, inputs // WHOLE, SIDE, 2)
    return parts.permute(0, 3, 1, 4, 2, 5).reshape(outputs // WHOLE, inputs // WHOLE, WHOLE * WHOLE)


def is_tiled(weight: Tensor) -> bool:
    """Whether ``weight``, of two axes otherwise, is (F / 32, D / 32, 1024)."""
    return weight.dim() == 3


def native_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    with_gelu: bool = False,
    residual: Tensor | None = None,
    bias_times: Tensor | None = None,
) -> Tensor:
    """x (..., D) times a ``tiled`` weight plus bias (F,), then exact GELU, then plus residual (..., F); gives (..., F).

    All of one dtype, bfloat16. ``bias_times`` (...): how many times each row adds the bias. What GELU gives is wide
    and goes into the next product: its rows stand ``apart``.
    """
    outputs, inputs = weight.shape[0] * WHOLE, x.shape[-1]
    out = apart(x, x.shape[:-1], outputs) if with_gelu else x.new_empty(*x.shape[:-1], outputs)
    if not out.numel():
        return out
    held, added = _rows(x), None if residual is None else _rows(residual)
    bias = None if bias is None else bias.to(x.dtype).contiguous()
    times = None if bias is None or bias_times is None else bias_times.float().contiguous()
    job = LinearJob(
        weight=weight.data_ptr(), bias=_address(bias), bias_times=_address(times), out=out.data_ptr(),
        out_row=out.stride(-2) if out.dim() > 1 else 0, rows=held.shape[0], inputs=inputs, outputs=outputs,
        kind=TILES, ending=GELU if with_gelu else NOTHING,
    )  # fmt: skip
    _give(job, held, added)
    run(job)
    return out


def native_product_fits(left: Tensor, right: Tensor) -> bool:
    """Whether left (k, n) times right (n, F) is the kernel's: not so long that ``left`` leaves the second cache."""
    if left.dtype != torch.bfloat16 or right.shape[-1] % WHOLE or not 0 < left.shape[-1] <= LONGEST:
        return False
    return is_plain_inference(left, right) and best_units() is not None


def native_product(left: Tensor, right: Tensor) -> Tensor:
    """left (k, n) times right (n, F), bfloat16 -> (k, F)."""
    length, outputs = right.shape
    if length % WHOLE:
        left = pad(left, (0, -length % WHOLE))
    out = left.new_empty(left.shape[0], outputs)
    held, right = _rows(left), _rows(right)
    job = LinearJob(
        weight=right.data_ptr(), weight_row=right.stride(0), weight_rows=length, out=out.data_ptr(), out_row=outputs,
        rows=left.shape[0], inputs=left.shape[1], outputs=outputs, kind=HALVES,
    )  # fmt: skip
    _give(job, held, None)
    run(job)
    return out


def apart(like: Tensor, rows: tuple[int, ...], features: int) -> Tensor:
    """Memory of shape (*``rows``, F), ``like``'s dtype, F ``features``; rows do not share the nearest cache's sets."""
    pitch = features + WHOLE if features % SETS == 0 else features
    return like.new_empty(*rows, pitch)[..., :features]


def _give(job: LinearJob, x: Tensor, residual: Tensor | None) -> None:
    job.x, job.x_row = x.data_ptr(), x.stride(0)
    if residual is not None:
        job.residual, job.residual_row = residual.data_ptr(), residual.stride(0)


def _rows(x: Tensor) -> Tensor:
    """x (..., F) as (n, F), each row contiguous."""
    rows = x.reshape(-1, x.shape[-1])
    return rows if rows.stride(1) == 1 else rows.contiguous()


def _address(x: Tensor | None) -> int | None:
    return None if x is None else x.data_ptr()
