"""Exact near, compressed far: a window of exact tokens beside the slots of the whole text, in time and memory O(n).

The sequence is cut into blocks of w positions. A query in block i sees the valid tokens of blocks i-1, i, i+1
exactly, and every slot that covers none of them. Each token is thus counted once: a near one by itself, a far one in
its slot, which stands for ``count`` tokens, hence log(count) on its logit. The memory as a whole is weighed by a bias
per head, and by min(0, log(budget / far tokens)): all slots together stand for at most ``budget`` tokens. Sinks, the
text's first tokens, have slots of their own outside that budget. A text of two blocks or less gets full attention.

Axes: B batch, n tokens, S slots, h heads, d head dimension, w block, b = ceil(n / w) blocks.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import dropout as drop

from longform.functional.attention.amx import native_is_faster
from longform.functional.attention.bmm import products_are_faster
from longform.functional.masks import text_lengths
from longform.functional.slots import Slots
from longform.functional.window.amx import NativeDocument
from longform.functional.window.amx_training import NativeWindowAttention, native_window_trains
from longform.functional.window.bmm import ProductDocument
from longform.functional.window.document import SINGLE_TOKENS, DocumentAttention, Far, Part, far_of, far_of_tokens
from longform.functional.window.flex import flex_windowed_attention, has_flex_kernel
from longform.functional.window.sdpa_inference import FusedDocument
from longform.functional.window.sdpa_training import BlockwiseAttention, has_blockwise_kernel

HIDDEN = float("-inf")


def block_count(length: int, window: int) -> int:
    """Blocks of ``window`` tokens that hold ``length`` tokens; a compiled graph adds empty ones, never to have one."""
    return length // window + 2 if torch.compiler.is_compiling() else -(-length // window)


def block_positions(length: int, window: int, device: torch.device) -> Tensor:
    """Positions of each block's own tokens, long (b, w); those of the last block may pass the end."""
    starts = torch.arange(block_count(length, window), device=device) * window
    return starts[:, None] + torch.arange(window, device=device)


def neighbour_positions(length: int, window: int, device: torch.device) -> Tensor:
    """Positions that each block sees exactly, long (b, 3 w); some lie before the start or past the end."""
    starts = torch.arange(block_count(length, window), device=device) * window
    return starts[:, None] + torch.arange(-window, 2 * window, device=device)


def gather(x: Tensor, positions: Tensor) -> Tensor:
    """x (..., n, d) at ``positions`` (b, m) -> (..., b, m, d); a position outside takes the nearest one inside.

    Gathered rather than padded: padding by a symbolic amount would tie an exported graph to some lengths.
    """
    return x[..., positions.clamp(0, x.shape[-2] - 1), :]


def near_bias(valid: Tensor, *, window: int, dtype: torch.dtype) -> Tensor:
    """0 for valid tokens among a block's neighbours, -inf otherwise: ``valid`` bool (B, n) -> (B, b, 3 w)."""
    length = valid.shape[1]
    positions = neighbour_positions(length, window, valid.device)
    inside = (positions >= 0) & (positions < length)
    seen = gather(valid[..., None], positions)[..., 0] & inside
    return torch.zeros_like(seen, dtype=dtype).masked_fill(~seen, HIDDEN)


def far_bias(
    slots: Slots, *, length: int, window: int, dtype: torch.dtype, sinks: int = 0, budget: float | None = None
) -> Tensor:
    """What is added to the logits of slots: (B, b, S), -inf for those in a block's reach and empty ones.

    The others get log(count) + min(0, log(budget / far tokens)); the first ``sinks`` slots stand for one leading
    token each and get 0.
    """
    device = slots.count.device
    blocks = torch.arange(block_count(length, window), device=device)
    index = torch.arange(slots.count.shape[1], device=device)
    exact = index < sinks
    home = torch.where(exact, index, (index - sinks) * slots.size[:, None]) // window
    seen = ((home[:, None, :] - blocks[:, None]).abs() > 1) & (slots.count > 0)[:, None, :]
    count = slots.count.to(dtype)[:, None, :]
    logits = count.clamp(min=1.0).log()
    if budget is not None:
        tokens = torch.where(seen & ~exact, count, 0.0).sum(dim=-1, keepdim=True).clamp(min=1.0)
        logits = logits + torch.where(exact, 0.0, (budget / tokens).log().clamp(max=0.0))
    return torch.where(seen, logits, HIDDEN)


def windowed_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    memory_key: Tensor,
    memory_value: Tensor,
    slots: Slots,
    *,
    window: int,
    memory_bias: Tensor | None = None,
    memory_budget: float | None = None,
    sinks: int = 0,
    mask: Tensor | None = None,
    implementation: str = "sdpa",
    dropout: float = 0.0,
    of_tokens: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention to near tokens exactly and to far ones through slots; see the head of this file.

    query, key, value (B, h, n, d) with padding blanked; memory_key, memory_value (B, h, S, d); ``window`` w in
    tokens, a multiple of the slot size; the first ``sinks`` slots are single leading tokens, seen by all queries;
    ``mask`` bool (B, n) or None; ``of_tokens``: a slot of one token holds its key and value, as a mean or maximum does.
    Returns out (B, h, n, d), zeros on padding, and, in "eager", the weights (B, h, n, S + 3 w): slots first, then the
    block's neighbours.
    """
    batch, heads, length, _ = query.shape
    fused = implementation == "sdpa" and dropout == 0.0 and has_blockwise_kernel(query)
    if fused and not _gradient_is_wanted(query, key, value, memory_key, memory_value, memory_bias):
        lengths = text_lengths(mask, batch=batch, length=length)
        if lengths is not None:
            options = {"sinks": sinks, "bias": memory_bias, "budget": memory_budget, "of_tokens": of_tokens}
            far_at = partial(far_of, memory_key=memory_key, memory_value=memory_value, slots=slots, **options)
            return _without_gradient(query, key, value, far_at, lengths, window), None
    dtype = torch.float64 if query.dtype == torch.float64 else torch.float32
    far = far_bias(slots, length=length, window=window, dtype=dtype, sinks=sinks, budget=memory_budget)
    bias = torch.zeros(heads, dtype=dtype, device=query.device) if memory_bias is None else memory_bias.to(dtype)
    if implementation == "sdpa" and dropout == 0.0 and has_flex_kernel(query):
        memory = (memory_key, memory_value, far, bias)
        out = flex_windowed_attention(query, key, value, *memory, window=window, mask=mask)
        if out is not None:
            return _blank(out, mask), None
    if fused and native_window_trains(query, key, value, memory_key, memory_value, window=window):
        lengths = text_lengths(mask, batch=batch, length=length)
        if lengths is not None:
            memory = (memory_key, memory_value, far, bias)
            return NativeWindowAttention.apply(query, key, value, *memory, lengths, window), None
    valid = torch.ones(batch, length, dtype=torch.bool, device=query.device) if mask is None else mask
    near = near_bias(valid, window=window, dtype=dtype)
    weight = bias[:, None].expand(batch, -1, far.shape[1])
    if fused:
        out = BlockwiseAttention.apply(query, key, value, memory_key, memory_value, near, far, weight, window)
        return _blank(out, mask), None
    out, parts = _blockwise(query, key, value, memory_key, memory_value, near, far, weight, window, dropout)
    return _blank(out, mask), _by_query(parts, length) if implementation == "eager" else None


def single_token_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    window: int,
    memory_bias: Tensor | None,
    memory_budget: float | None,
    sinks: int,
    mask: Tensor | None,
) -> Tensor | None:
    """``windowed_attention`` where every slot is a token, without forming slots: out (B, h, n, d), or None.

    None where a gradient is wanted, where padding is not on the right alone, for long texts and on other devices: then
    slots have to be formed.
    """
    batch, _, length, _ = query.shape
    if not has_blockwise_kernel(query) or _gradient_is_wanted(query, key, value, memory_bias) or length > SINGLE_TOKENS:
        return None
    lengths = text_lengths(mask, batch=batch, length=length)
    if lengths is None:
        return None
    far_at = partial(far_of_tokens, like=key, sinks=sinks, bias=memory_bias, budget=memory_budget)
    return _without_gradient(query, key, value, far_at, lengths, window)


def _gradient_is_wanted(*tensors: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


def _blank(out: Tensor, mask: Tensor | None) -> Tensor:
    return out if mask is None else torch.where(mask[:, None, :, None], out, 0.0)


def _without_gradient(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    far_at: Callable[[int, int], Far],
    lengths: list[int],
    window: int,
) -> Tensor:
    """Each document by itself, as long as its text: out (B, h, n, d), zeros on padding.

    ``far_at``: the slots of a document, by its number and its length.
    """
    batch, heads, length, dim = query.shape
    out = query.new_empty(batch, length, heads, dim)
    attention = window_kernel(query, key, value)
    for b, n in enumerate(lengths):
        out[b, n:] = 0.0
        if n == 0:
            continue
        attention(far_at(b, n))(Part(query[b, :, :n], key[b, :, :n], value[b, :, :n], n, window), out[b, :n])
    return out.transpose(1, 2)


def window_kernel(query: Tensor, key: Tensor, value: Tensor) -> type[DocumentAttention]:
    """For query, key, value (h, ., d): what computes a document's window and memory on a CPU without gradients."""
    if native_is_faster(query, key, value):
        return NativeDocument
    return ProductDocument if products_are_faster(query, key, value) else FusedDocument


def _blockwise(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    memory_key: Tensor,
    memory_value: Tensor,
    near: Tensor,
    far: Tensor,
    weight: Tensor,
    window: int,
    dropout: float,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    length, device = query.shape[2], query.device
    around = neighbour_positions(length, window, device)
    blocks = gather(query * query.shape[-1] ** -0.5, block_positions(length, window, device))
    near_logits = blocks @ gather(key, around).transpose(-1, -2) + near[:, None, :, None, :]
    far_logits = blocks @ memory_key[:, :, None].transpose(-1, -2)
    far_logits = far_logits + far[:, None, :, None, :] + weight[..., None, None]
    near_weights, far_weights = joint_softmax(near_logits, far_logits)
    dtype = value.dtype
    out = drop(far_weights, dropout).to(dtype) @ memory_value[:, :, None]
    out = out + drop(near_weights, dropout).to(dtype) @ gather(value, around)
    own = torch.arange(length, device=device)
    return out.flatten(2, 3).index_select(2, own), (far_weights, near_weights)


def _by_query(parts: tuple[Tensor, Tensor], length: int) -> Tensor:
    """Far weights (B, h, b, w, S) and near ones (B, h, b, w, 3 w) -> (B, h, n, S + 3 w)."""
    return torch.cat(parts, dim=-1).flatten(2, 3)[:, :, :length]


def joint_softmax(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax over the last axes, shapes (..., p) and (..., q), taken together; zeros where all of it is -inf."""
    peak = torch.maximum(first.amax(dim=-1, keepdim=True), second.amax(dim=-1, keepdim=True)).detach()
    peak = peak.masked_fill(peak == HIDDEN, 0.0)
    powers = (first - peak).exp(), (second - peak).exp()
    total = powers[0].sum(dim=-1, keepdim=True) + powers[1].sum(dim=-1, keepdim=True)
    total = total.masked_fill(total == 0.0, 1.0)
    return powers[0] / total, powers[1] / total
