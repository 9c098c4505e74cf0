"""Linear layers in inference by the compiled kernel of csrc/linear.c, for bfloat16 on a CPU with AMX.

oneDNN computes GELU after its product, and leaves one of two cores idle at some sizes. The kernel computes it with the
vector units while the tiles multiply. On two cores with AMX, weights not in a cache: 512 x 768 x 3,072 with GELU took
1.1 ms instead of 1.5, 512 x 3,072 x 768 with a residual 1.5 instead of 2.3, 512 x 768 x 768 0.29 instead of 0.52; of
128 rows each takes a fifth less, of 2,048 between a tenth and a third. (Compiled for AVX512-bf16 it is slower than
oneDNN, 137 to 181 GF/s against 181 to 221 on one core of a Zen 4, 1,024 rows: there it runs in tests only.)

Axes: n rows, D inputs, F outputs.
"""

import torch
from torch import Tensor

from longform.functional.conditions import TILE_MULTIPLE
from longform.functional.native.jobs import LinearJob, flat_rows, pointer, strided
from longform.functional.native.library import best_units, run

SIDE = 16  # rows and columns of a tile
SETS = 1024  # rows of so many features, or twice, thrice as many, begin in two of the nearest cache's 64 sets


def fits(weight: Tensor) -> bool:
    """Whether the kernel takes such a weight (F, D), and this machine has its units."""
    taken = weight.dtype == torch.bfloat16 and weight.device.type == "cpu" and weight.numel() > 0
    return taken and not any(size % TILE_MULTIPLE for size in weight.shape) and best_units() == "amx"


def tiled(weight: Tensor) -> Tensor:
    """``weight`` (F, D) as the kernel reads it: (F / 32, D / 32, 1024), 2 tiles of 16 outputs, in pairs of inputs."""
    outputs, inputs = (size // TILE_MULTIPLE for size in weight.shape)
    parts = weight.reshape(outputs, 2, SIDE, inputs, SIDE, 2)
    return parts.permute(0, 3, 1, 4, 2, 5).reshape(outputs, inputs, TILE_MULTIPLE * TILE_MULTIPLE)


def is_tiled(weight: Tensor) -> bool:
    """Whether ``weight``, of two axes otherwise, is ``tiled``: (F / 32, D / 32, 1024)."""
    return weight.dim() == 3


def infer(
    x: Tensor, weight: Tensor, bias: Tensor | None, *, gelu: bool = False, residual: Tensor | None = None
) -> Tensor:
    """x (..., D) times a ``tiled`` weight, plus bias (F), then exact ``gelu`` or plus ``residual`` (..., F), all in
    bfloat16, without gradients: (..., F).
    """
    if residual is not None and residual.dtype != x.dtype:
        return residual + infer(x, weight, bias)
    outputs = weight.shape[0] * TILE_MULTIPLE
    out = apart(x, x.shape[:-1], outputs) if gelu else x.new_empty(*x.shape[:-1], outputs)
    if not out.numel():
        return out
    rows, out_rows = flat_rows(x), out.view(-1, outputs)
    inputs, panels = rows.shape[1], (outputs // TILE_MULTIPLE, rows.shape[1] // TILE_MULTIPLE)
    added = None if residual is None else flat_rows(residual)
    bias = None if bias is None else bias.to(x.dtype).contiguous()
    job = LinearJob(
        weight=pointer(weight, x.dtype, *panels, TILE_MULTIPLE**2), bias=pointer(bias, x.dtype, outputs),
        rows=len(rows), inputs=inputs, outputs=outputs, gelu=gelu,
    )  # fmt: skip
    job.x, job.x_row = strided(rows, torch.bfloat16, *rows.shape)
    job.out, job.out_row = strided(out_rows, torch.bfloat16, len(rows), outputs)
    if added is not None:
        job.residual, job.residual_row = strided(added, torch.bfloat16, len(rows), outputs)
    run(job)
    return out


def apart(like: Tensor, rows: tuple[int, ...], features: int) -> Tensor:
    """Memory of shape (*``rows``, F), ``like``'s dtype, F ``features``; rows do not share the nearest cache's sets."""
    pitch = features + TILE_MULTIPLE if features % SETS == 0 else features
    return like.new_empty(*rows, pitch)[..., :features]
