"""The window and the memory as two FlexAttention calls, merged by their log-sum-exp; forward and backward, on CUDA.

Near: keys in the query's block and its neighbours, by tiles (window_tiles.py). Far: all slots, with far_bias on their
logits. With l the log-sum-exp of each part and c the bias of the memory, out = (1 - p) o_near + p o_far,
p = sigmoid(l_far + c - l_near). No key is copied and no n x n tensor exists. One call over slots and tokens together
would need the gradient of c through score_mod, where the kernel adds n S terms to each head's one number in turn;
here c meets one number a query. As in all that is compiled, a backward pass frees its graph: retain_graph is
refused, with the way out. Without compilation flex_attention builds all n x n logits, so it never runs so
outside of tests.

Axes: B batch, n tokens, S slots, h heads, d head dimension, w block, b = ceil(n / w) blocks.
"""

import functools
import inspect
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import flex_attention as flex

from longform.functional.window.flex_tiles import NOWHERE, TILE, Tiles, near_tiles, token_blocks

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
HEAD_DIMS = range(16, 257)
LOWEST = -1e30
# The kernel for short queries (flex decoding) would need a graph of its own.
OPTIONS: Any = {"BACKEND": "TRITON"}
_refused: set[tuple[torch.dtype, int]] = set()


class NotCompiledError(RuntimeError):
    """torch.compile is switched off; caught where the call is made."""


def has_flex_kernel(query: Tensor) -> bool:
    """Whether FlexAttention can serve: CUDA with Triton, a dtype and a head dimension that its kernels take.

    In eager mode also: nobody watches or transforms the call (FlopCounterMode, fake tensors, vmap), and the kernel
    has not failed to compile before.
    """
    kind = query.dtype, query.shape[-1]
    if query.device.type != "cuda" or kind[0] not in DTYPES or kind[1] not in HEAD_DIMS or torch.jit.is_tracing():
        return False
    if torch.compiler.is_compiling():
        return can_compile() and not torch.compiler.is_exporting()
    watched = torch._C._functorch.maybe_current_level() is not None or torch._C._len_torch_dispatch_stack() > 0
    return can_compile() and not watched and kind not in _refused


@torch.compiler.assume_constant_result
def can_compile() -> bool:
    """Whether torch has the FlexAttention that this file calls (2.10 or newer), and Triton for the device."""
    from torch.utils._triton import has_triton

    known = getattr(flex, "FlexKernelOptions", None)
    return known is not None and "BACKEND" in known.__annotations__ and has_triton()


def flex_windowed_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    memory_key: Tensor,
    memory_value: Tensor,
    far: Tensor,
    bias: Tensor,
    *,
    window: int,
    mask: Tensor | None = None,
) -> Tensor | None:
    """Attention to near tokens and far slots: out (B, h, n, d), anything on padding; None where it does not compile.

    query, key, value (B, h, n, d); memory_key, memory_value (B, h, S, d); far (B, b, S) of far_bias; ``bias`` (h,);
    ``mask`` bool (B, n) or None.
    """
    batch, _, length, _ = query.shape
    blocks = token_blocks(length, window=window, device=query.device)
    key_block = (blocks if mask is None else torch.where(mask, blocks, NOWHERE)).expand(batch, -1)
    tiles = near_tiles(mask, length=length, window=window, device=query.device)
    others = (x.to(query.dtype) for x in (key, value, memory_key, memory_value))  # under autocast they may differ
    given: tuple[Any, ...] = (query, *others, far, bias, blocks, key_block.contiguous(), tiles)
    if torch.compiler.is_compiling():
        return near_and_far(*given)
    try:
        with _backward_compiled_at_once():
            return _compiled()(*given)
    except NotCompiledError:
        return None
    except _compilation_errors() as error:
        _refused.add((query.dtype, query.shape[-1]))
        reason = str(error).strip().split("\n", 1)[0]
        warnings.warn(f"FlexAttention does not compile here, a slower path serves instead: {reason}", stacklevel=3)
        return None


def near_and_far(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    memory_key: Tensor,
    memory_value: Tensor,
    far: Tensor,
    bias: Tensor,
    query_block: Tensor,
    key_block: Tensor,
    tiles: Tiles,
) -> Tensor:
    """As above, with blocks of queries int32 (n,) and of keys (B, n), NOWHERE on padding."""

    def seen(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return (key_block[b, k] - query_block[q]).abs() <= 1

    def weighed(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return score + far[b, query_block[q], k]

    length = query.shape[2]
    near = flex.BlockMask((length, length), *tiles, BLOCK_SIZE=(TILE, TILE), mask_mod=seen)
    asked = flex.AuxRequest(lse=True)
    near_out, near_rest = flex.flex_attention(
        query, key, value, block_mask=near, kernel_options=OPTIONS, return_aux=asked
    )
    far_out, far_rest = flex.flex_attention(
        query, memory_key, memory_value, score_mod=weighed, kernel_options=OPTIONS, return_aux=asked
    )
    near_lse, far_lse = _finite(near_rest.lse), _finite(far_rest.lse) + bias[:, None]
    share = torch.sigmoid(far_lse - near_lse)[..., None]
    near_out, far_out = near_out.to(share.dtype), far_out.to(share.dtype)
    return (near_out + share * (far_out - near_out)).to(query.dtype)


def _finite(lse: Tensor | None) -> Tensor:
    """Log-sum-exp (B, h, n), -inf where nothing is seen, so that a difference of two has a gradient."""
    assert lse is not None
    return lse.masked_fill(lse == -torch.inf, LOWEST)


@functools.cache
def _compiled() -> Callable[..., Tensor]:
    """near_and_far as one fused graph for all lengths, made at the first call."""
    # Batches of one, models of other head counts and each dtype have graphs of their own; torch gives up after eight.
    known = "recompile_limit" in inspect.signature(torch.compile).parameters
    limit: dict[str, Any] = {"recompile_limit": 64} if known else {}
    return torch.compile(_never_eager, fullgraph=True, dynamic=True, **limit)


def _never_eager(*given: Any) -> Tensor:
    if not torch.compiler.is_compiling():
        raise NotCompiledError
    return near_and_far(*given)


def _backward_compiled_at_once() -> AbstractContextManager[None]:
    """The backward kernel is compiled with the forward one, so that its failure is seen where the call is made."""
    from torch._functorch import config

    wanted = {"force_non_lazy_backward_lowering": True}
    return config.patch({name: value for name, value in wanted.items() if hasattr(config, name)})


def _compilation_errors() -> tuple[type[Exception], ...]:
    from torch._dynamo import exc

    return exc.TorchDynamoException, exc.FailOnRecompileLimitHit
