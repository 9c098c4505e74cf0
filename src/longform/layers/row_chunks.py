"""What looks at each token alone, done for some tokens at a time: a wide intermediate result is never whole in memory.

On a CPU the chunk also stays in the cache and its buffers are used again instead of being mapped anew. Without
gradients the size is chosen here; where gradients are kept it saves nothing, and a config says it or nobody does.

Axes: B batch, n tokens, D hidden.
"""

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor, nn

from longform.functional.hardware import has_amx
from longform.functional.window.sdpa_training import has_blockwise_kernel
from longform.layers.linear import is_watched

LONG = 4096  # tokens from which on a text passes through a whole layer so
OutputPart = tuple[tuple[slice, slice], Tensor]  # of which documents and tokens; values (b, c, D)
# Tokens at a time, in all documents together. AMX is the faster the more rows it multiplies: a base encoder on two such
# cores in bfloat16 took 1.1 s for 8,192 tokens instead of 1.3, float32 1.22 s for 2,048 instead of 1.27.
CPU_ROWS, DEVICE_ROWS = 2048 if has_amx() else 1024, 65536


def chunk_size(hidden: Tensor) -> int:
    """Tokens at a time, in all documents together, for ``hidden`` (B, n, D)."""
    return CPU_ROWS if hidden.device.type == "cpu" else DEVICE_ROWS


def rows_of_each(batch: int) -> int:
    """Tokens at a time of each of ``batch`` documents on a CPU, at least 1."""
    return max(1, CPU_ROWS // batch)


def has_hooks(module: nn.Module) -> bool:
    """Whether somebody looks at what passes through ``module``, and would be shown parts."""
    return any(is_watched(part) for part in module.modules())


def can_stream(module: nn.Module, given: Tensor) -> bool:
    """Whether ``given`` (B, n, ...) may pass through ``module`` some tokens at a time, and results take its place.

    Long texts, on a CPU without gradients, in eager mode, where nobody looks inside.
    """
    if given.shape[1] < LONG or torch.is_grad_enabled() or not has_blockwise_kernel(given):
        return False
    return not has_hooks(module)


def assembled(parts: Iterable[OutputPart], size: tuple[int, int], out: Tensor | None = None) -> Tensor:
    """The whole (B, n, D), ``size`` (B, n), from all its parts; in the memory of ``out`` if it has their dtype."""
    for where, part in parts:
        if out is None or out.dtype != part.dtype:
            out = part.new_empty(*size, part.shape[-1])
        out[where] = part
    assert out is not None
    return out


def in_chunks(function: Callable[..., Tensor], *tensors: Tensor, rows: int) -> Tensor:
    """function(*tensors) for ``rows`` tokens at a time; all tensors and the result are (B, n, D).

    ``function`` takes and gives (1, m, D).
    """
    flat = [x.reshape(1, -1, x.shape[-1]) for x in tensors]
    length, shape = flat[0].shape[1], tensors[0].shape
    if length <= rows:
        return function(*flat).view(shape)

    def parts() -> Iterator[OutputPart]:
        for start in range(0, length, rows):
            tokens = slice(start, start + rows)
            yield (slice(None), tokens), function(*(x[:, tokens] for x in flat))

    if torch.is_grad_enabled():
        return torch.cat([part for _, part in parts()], dim=1).view(shape)
    return assembled(parts(), (1, length)).view(shape)
