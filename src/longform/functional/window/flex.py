"""The window and the memory as two FlexAttention calls, merged by their log-sum-exp; forward and backward, on CUDA.

Near: keys in the query's block and its neighbours, by tiles. Far: all slots, with formula.far_bias on their logits,
made in the kernel of what belongs to a slot and what belongs to a block: read as a table of both, one tile of it takes
more of a GPU's shared memory than keys and values do, and more than there is.
With l the log-sum-exp of each part and c the bias of the memory, out = (1 - p) o_near + p o_far, p = sigmoid(l_far + c
- l_near). No key is copied and no n x n tensor exists. One call over slots and tokens together would need the gradient
of c through score_mod, where the kernel adds n S terms to each head's one number in turn; here c meets one number a
query. As in all that is compiled, a backward pass frees its graph: retain_graph is refused, with the way out. Without
compilation flex_attention builds all n x n logits, so it never runs so outside of tests.

A tile is T consecutive tokens, the unit in which a GPU kernel skips work; a block is the w tokens of the window. Tiles
and blocks need not divide each other. A query sees the valid keys of its own block and of both neighbours, so tile i
meets a few tiles around it and no others; of those some are seen whole, by every query and with no padding, and need
no look at single keys. torch's create_block_mask finds the same by looking at all pairs of tokens; here it is O(n).

Axes: B batch (of tiles 1 where nothing is padded), n tokens, S slots, h heads, d head dimension, w block, b = ceil(n /
w) blocks, t = ceil(n / T) tiles, m = 2 r + 1 tiles around one.
"""

import functools
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from inspect import signature
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import flex_attention as flex

from longform.errors import ConfigurationError
from longform.functional.dispatch import Condition
from longform.functional.one_pass import once_a_pass
from longform.functional.window.call import WindowCall
from longform.functional.window.formula import FarParts

TILE = 128
NOWHERE = -2
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
HEAD_DIMS = range(16, 257)
LOWEST = -1e30
# The kernel for short queries (flex decoding) would need a graph of its own.
OPTIONS: Any = {"BACKEND": "TRITON"}
GRAPHS = 64
# torch 2.10 and 2.11 have a limit for all that is compiled and none for one function.
LIMIT_OF_ONE: Any = {"recompile_limit": GRAPHS} if "recompile_limit" in signature(torch.compile).parameters else {}
_refused: set[tuple[torch.dtype, int]] = set()


class Tiles(NamedTuple):
    """For each tile of queries the tiles of keys that it meets, and for each tile of keys those of queries.

    Counts are int32 (B, 1, t); indices int32 (B, 1, t, m), of which the first ``count`` are meant. ``partial`` tiles
    need the mask of single tokens, ``full`` ones do not.
    """

    partial_count: Tensor
    partial: Tensor
    full_count: Tensor
    full: Tensor
    partial_queries_count: Tensor
    partial_queries: Tensor
    full_queries_count: Tensor
    full_queries: Tensor


class NotCompiledError(RuntimeError):
    """torch.compile is switched off; caught where the call is made."""


def _kernels_take(call: WindowCall) -> bool:
    return call.query.dtype in DTYPES and call.query.shape[-1] in HEAD_DIMS


def _may_compile(call: WindowCall) -> bool:
    """In a graph, but for export; in eager mode without modes or transforms (FlopCounterMode, fake tensors, vmap)."""
    if torch.jit.is_tracing():
        return False
    if torch.compiler.is_compiling():
        return not torch.compiler.is_exporting()
    watched = torch._C._functorch.maybe_current_level() is not None or torch._C._len_torch_dispatch_stack() > 0
    return not watched and (call.query.dtype, call.query.shape[-1]) not in _refused


@torch.compiler.assume_constant_result
def can_compile() -> bool:
    """Whether torch has the FlexAttention that this file calls (2.10 or newer), and Triton for the device."""
    from torch.utils._triton import has_triton

    known = getattr(flex, "FlexKernelOptions", None)
    return known is not None and "BACKEND" in known.__annotations__ and has_triton()


TAKEN = Condition("float32, bfloat16 or float16 heads of 16 to 256 features", _kernels_take)
COMPILES = Condition(
    "FlexAttention may be compiled (no export, no transform, no earlier failure)", _may_compile, of_values=True
)
TRITON = Condition("torch 2.10 or newer with Triton", lambda call: can_compile())


def attend(call: WindowCall) -> Tensor:
    """Attention to near tokens and far slots: (B, h, n, d), zeros on padding; NotImplemented where it does not
    compile.
    """
    query, key, value = call.tensors
    memory, mask = call.memory, call.mask
    batch, _, length, _ = query.shape
    far = call.far_parts
    where: Any = {"length": length, "window": call.window, "device": query.device}
    blocks, key_block = once_a_pass(blocks_of, mask, batch=batch, **where)
    tiles = once_a_pass(near_tiles, mask, **where)
    others = (x.to(query.dtype) for x in (key, value, memory.key, memory.value))  # under autocast they may differ
    given: tuple[Any, ...] = (query, *others, far, call.head_bias, blocks, key_block, tiles)
    if torch.compiler.is_compiling():
        return call.blanked(near_and_far(*given))
    try:
        with _compiling_as_wanted():
            return call.blanked(_Once.apply(_compiled()(*given)))
    except NotCompiledError:
        return NotImplemented
    except _compilation_errors() as error:
        _refused.add((query.dtype, query.shape[-1]))
        reason = str(error).strip().split("\n", 1)[0]
        warnings.warn(f"FlexAttention does not compile here, a slower path serves instead: {reason}", stacklevel=4)
        return NotImplemented


class _Once(torch.autograd.Function):
    """An output of any shape whose gradient is not differentiated again, which torch would refuse without a way out."""

    @staticmethod
    def forward(ctx: Any, out: Tensor) -> Tensor:
        """Returns ``out``."""
        return out.view_as(out)

    @staticmethod
    def backward(ctx: Any, *gradient: Any) -> Any:
        """The output's gradient; raises ConfigurationError where a graph of it is asked for."""
        if torch.is_grad_enabled():
            raise ConfigurationError(
                "FlexAttention, which serves windows on CUDA, has no second derivative (create_graph=True): call the "
                'model inside `with longform.kernels.use(window="formula")`'
            )
        return gradient


def near_and_far(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    memory_key: Tensor,
    memory_value: Tensor,
    far: FarParts,
    bias: Tensor,
    query_block: Tensor,
    key_block: Tensor,
    tiles: Tiles,
) -> Tensor:
    """As above: (B, h, n, d), with the blocks of ``blocks_of`` and the tiles of ``near_tiles``."""

    def seen(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return (key_block[b, k] - query_block[q]).abs() <= 1

    home, logit, less, counted = far.home, far.logit, far.less, far.counted

    def weighed(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        score = score + logit[b, k]
        if less is not None:
            score = score + torch.where(counted[k], less[b, query_block[q]], 0.0)
        return torch.where((home[b, k] - query_block[q]).abs() > 1, score, -torch.inf)

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
    return torch.compile(_never_eager, fullgraph=True, dynamic=True, **LIMIT_OF_ONE)


def _never_eager(*given: Any) -> Tensor:
    if not torch.compiler.is_compiling():
        raise NotCompiledError
    return near_and_far(*given)


@contextmanager
def _compiling_as_wanted() -> Generator[None]:
    """The backward kernel is compiled with the forward one, so that its failure is seen where the call is made.

    Batches of one, padded ones, other head counts, each dtype and calls without gradients have graphs of their own:
    more than the eight after which torch gives up.
    """
    import torch._dynamo.config as dynamo
    import torch._functorch.config as functorch

    later = {"force_non_lazy_backward_lowering": True} if hasattr(functorch, "force_non_lazy_backward_lowering") else {}
    with functorch.patch(later), nullcontext() if LIMIT_OF_ONE else dynamo.patch(recompile_limit=GRAPHS):
        yield


def _compilation_errors() -> tuple[type[Exception], ...]:
    from torch._dynamo import exc

    return exc.TorchDynamoException, exc.FailOnRecompileLimitHit


def tile_count(length: int, tile: int) -> int:
    """Tiles that hold ``length`` tokens; a compiled graph adds empty ones, never to have one."""
    return length // tile + 2 if torch.compiler.is_compiling() else -(-length // tile)


def blocks_of(
    mask: Tensor | None, *, batch: int, length: int, window: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """The block of each token as a query, int32 (n,), and as a key, (B, n): NOWHERE on padding."""
    blocks = torch.arange(length, device=device, dtype=torch.int32) // window
    of_keys = blocks if mask is None else torch.where(mask, blocks, NOWHERE)
    return blocks, of_keys.expand(batch, -1).contiguous()


def near_tiles(mask: Tensor | None, *, length: int, window: int, device: torch.device, tile: int = TILE) -> Tiles:
    """The tiles of a text of ``length`` tokens; ``mask`` bool (B, n), or None where nothing is padded."""
    tiles = tile_count(length, tile)
    own = torch.arange(tiles, device=device)[:, None]
    radius = (2 * window - 2) // tile + 1
    around = own + torch.arange(-radius, radius + 1, device=device)
    inside = (around >= 0) & (around < tiles)
    other = around.clamp(0, tiles - 1)
    first = own[:, 0] * tile // window
    last = (own[:, 0] * tile + tile - 1).clamp(max=length - 1) // window
    meet = inside & (first[other] <= last[:, None] + 1) & (first[:, None] <= last[other] + 1)
    whole = (last[other] - first[:, None] <= 1) & (last[:, None] - first[other] <= 1)
    some_text, all_text = _tile_text(mask, length=length, tiles=tiles, tile=tile, device=device)
    meet = meet & some_text[:, :, None] & some_text[:, other]
    full, full_queries = meet & whole & all_text[:, other], meet & whole & all_text[:, :, None]
    lists = (_listed(kind, other) for kind in (meet & ~full, full, meet & ~full_queries, full_queries))
    return Tiles(*(part for pair in lists for part in pair))


def _tile_text(
    mask: Tensor | None, *, length: int, tiles: int, tile: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Whether a tile holds some text, and whether it holds nothing else: bool (B, t), gathered rather than padded."""
    positions = torch.arange(tiles, device=device)[:, None] * tile + torch.arange(tile, device=device)
    valid = (positions < length)[None]
    if mask is not None:
        valid = valid & mask[:, positions.clamp(max=length - 1)]
    return valid.any(dim=-1), valid.all(dim=-1)


def _listed(kind: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Tiles ``other`` (t, m) where ``kind`` (B, t, m), first in their rows: counts (B, 1, t), indices (B, 1, t, m)."""
    order = kind.to(torch.int32).argsort(dim=-1, descending=True, stable=True)
    indices = other.expand_as(kind).gather(-1, order).to(torch.int32)
    return kind.sum(dim=-1, dtype=torch.int32)[:, None], indices[:, None]
