"""What looks at each token alone, done for some tokens at a time: a wide intermediate result is never whole in memory.

On a CPU the chunk also stays in the cache and its buffers are used again instead of being mapped anew. Without
gradients the size is chosen here; where gradients are kept it saves nothing, and a config says it or nobody does.

Axes: B batch, n tokens, D hidden.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from longform.layers.plain_linear import is_watched

LONG = 4096  # tokens from which on a text passes through a whole layer so
CPU_ROWS, DEVICE_ROWS = 1024, 65536  # tokens at a time, in all documents together


def chunk_size(hidden: Tensor) -> int:
    """Tokens at a time, in all documents together, for ``hidden`` (B, n, D)."""
    return CPU_ROWS if hidden.device.type == "cpu" else DEVICE_ROWS


def rows_of_each(batch: int) -> int:
    """Tokens at a time of each of ``batch`` documents on a CPU, at least 1."""
    return max(1, CPU_ROWS // batch)


def has_hooks(module: nn.Module) -> bool:
    """Whether somebody looks at what passes through ``module``, and would be shown parts."""
    return any(is_watched(part) for part in module.modules())


def may_overwrite(module: nn.Module, hidden: Tensor) -> bool:
    """Whether what ``module`` holds may put results for long ``hidden`` (B, n, D) where others were.

    On a CPU without gradients, in eager mode, and where nobody looks inside.
    """
    if hidden.shape[1] < LONG or hidden.device.type != "cpu" or torch.is_grad_enabled():
        return False
    return not torch.compiler.is_compiling() and not torch.jit.is_tracing() and not has_hooks(module)


def in_chunks(function: Callable[..., Tensor], *tensors: Tensor, rows: int) -> Tensor:
    """function(*tensors) for ``rows`` tokens at a time; all tensors and the result are (B, n, D).

    ``function`` takes and gives (1, m, D).
    """
    flat = [x.reshape(1, -1, x.shape[-1]) for x in tensors]
    if flat[0].shape[1] <= rows:
        return function(*flat).view(tensors[0].shape)
    starts = range(0, flat[0].shape[1], rows)
    parts = (function(*(x[:, start : start + rows] for x in flat)) for start in starts)
    if torch.is_grad_enabled():
        return torch.cat(list(parts), dim=1).view(tensors[0].shape)
    out = None
    for start, part in zip(starts, parts, strict=True):
        out = part.new_empty(flat[0].shape) if out is None else out
        out[:, start : start + rows] = part
    assert out is not None
    return out.view(tensors[0].shape)
