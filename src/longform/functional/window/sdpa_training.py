"""Near tokens and far slots as two fused CPU attention calls, merged by their log-sum-exp; forward and backward.

Near: every block of w queries against its 3 w neighbours, read as overlapping views, so no key is copied, unless the
tokens of selected slots stand beside them. Far: the same blocks against all slots. With l the log-sum-exp of each
part, out = (exp(l_near) o_near + exp(l_far) o_far) / exp(l), exp(l) = exp(l_near) + exp(l_far). The backward kernels,
given the merged output and l, return each part's share of the gradient of the joint softmax.

Axes: B batch, n tokens, S slots, h heads, d head dimension, w block, b blocks, t tokens of selected slots, g = 1 or h.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from longform.functional.execution import has_values
from longform.functional.second_gradient import Gradients, differentiable_by
from longform.functional.window import formula
from longform.functional.window.call import WindowCall

MOST_BIASES = 2**24  # of queries and slots in one call of the backward kernel, which wants them written out

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def lacks(call: WindowCall, _: bool) -> str | None:
    """The first thing that ``call`` lacks for ``attend``, or None; see dispatch.Kernel."""
    if call.neighbours is not None:
        return "a text that is read both ways, no grid"
    if call.dropout:
        return "no dropout"
    if call.distance_bias is not None:
        return "no bias by distance"
    if not call.query.is_cpu:
        return "tensors on a CPU"
    if not has_values():
        return "eager execution (no graph is traced, no torch.func transform)"
    return None if call.query.shape[0] else "at least one text"


def attend(call: WindowCall) -> Tensor:
    """Attention to near tokens and far slots through which gradients pass: (B, h, n, d), zeros on padding."""
    slots, blocks = call.slots, call.blocks
    near = blocks.near.expand(len(call.query), -1, -1, -1)
    biases = near, blocks.far, call.head_bias, blocks.tokens
    given = call.query, call.key, call.value, slots.key, slots.value, *biases, call.window
    return call.blanked(BlockwiseAttention.apply(*given))


def _blocks(x: Tensor, window: int) -> Tensor:
    """One document x (h, n, d), n a multiple of w -> (b, h, w, d), a view."""
    return x.unflatten(1, (-1, window)).transpose(0, 1)


def _exact(x: Tensor, window: int, tokens: Tensor | None) -> Tensor:
    """Keys or values that each block sees exactly, of one document x (h, n + 2 w, d) with a block in front: (b, h, 3 w,
    d), a view, or (b, h, 3 w + t, d) with those of ``tokens`` long (h, b, t) beside them.
    """
    near = x.unfold(1, 3 * window, window).permute(1, 0, 3, 2)
    if tokens is None:
        return near
    index = (tokens.flatten(1) + window)[..., None].expand(-1, -1, x.shape[2])
    return torch.cat([near, x.gather(1, index).unflatten(1, tokens.shape[1:]).transpose(0, 1)], dim=2)


def _fold(x: Tensor, window: int) -> Tensor:
    """Sum of overlapping neighbours x (b, h, 3 w, d) back into the document (h, b w, d)."""
    blocks, heads, _, dim = x.shape
    before, own, after = x.unflatten(2, (3, window)).unbind(2)
    total = own.clone()
    total[:-1] += before[1:]
    total[1:] += after[:-1]
    return total.transpose(0, 1).reshape(heads, blocks * window, dim)


def _of_tokens(x: Tensor, window: int, tokens: Tensor | None) -> Tensor:
    """Sum of the gradients x (b, h, 3 w + t, d) of ``_exact`` for each token of the document: (h, b w, d)."""
    total = _fold(x[:, :, : 3 * window], window)
    if tokens is None:
        return total
    more = x[:, :, 3 * window :].transpose(0, 1).flatten(1, 2)
    return total.scatter_add_(1, tokens.flatten(1)[..., None].expand_as(more), more)


def _part(query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Attention of blocks and its log-sum-exp; ``bias`` (g, b, keys). Where a block sees nothing the latter is -inf."""
    spread = bias.transpose(0, 1)[:, :, None]
    out, lse = _forward(query, key, value, attn_mask=spread.expand(-1, -1, query.shape[2], -1))
    return out, lse.masked_fill((spread == -torch.inf).all(dim=-1), -torch.inf)


def _document(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    slot_key: Tensor,
    slot_value: Tensor,
    near: Tensor,
    far: Tensor,
    tokens: Tensor | None,
    head_bias: Tensor,
    window: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One document: out (b, h, w, d), joint log-sum-exp, the share of slots and their output."""
    blocks = _blocks(query, window)
    near_out, near_lse = _part(blocks, _exact(key, window, tokens), _exact(value, window, tokens), near)
    spread = (blocks.shape[0], -1, -1, -1)
    far_out, far_lse = _part(blocks, slot_key.expand(spread), slot_value.expand(spread), far)
    far_lse = far_lse + head_bias[:, None]
    lse = torch.logaddexp(near_lse, far_lse)
    lse = lse.masked_fill(lse == -torch.inf, 0.0)
    share = torch.exp(far_lse - lse)
    # torch.lerp takes four times as long in float32: 8 ms instead of 2 for 12 heads of 4,096 tokens.
    out = torch.sub(far_out.to(share.dtype), near_out).mul_(share[..., None]).add_(near_out)
    return out.to(query.dtype), lse, share, far_out


class BlockwiseAttention(torch.autograd.Function):
    """query, key, value (B, h, n, d), those of slots (B, h, S, d), near (B, g, b, 3 w + t), far (B, g, b, S),
    head_bias (h), tokens (B, h, b, t) or None: see Blocks.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        slot_key: Tensor,
        slot_value: Tensor,
        near: Tensor,
        far: Tensor,
        head_bias: Tensor,
        tokens: Tensor | None,
        window: int,
    ) -> Tensor:
        """Returns out (B, h, n, d)."""
        given = query, key, value, slot_key, slot_value, near, far
        of_tokens = [None] * len(query) if tokens is None else tokens
        documents = zip(*_padded(*given, window), of_tokens, strict=True)
        parts = [_document(*document, head_bias, window) for document in documents]
        # Of one document (b, h, w, d) without a copy.
        found = [x[0][None] if len(x) == 1 else torch.stack(x) for x in zip(*parts, strict=True)]
        out, lse, share, far_out = found
        ctx.options = (window,)
        ctx.save_for_backward(*given, head_bias, tokens, out, lse, share, far_out)
        return out.transpose(1, 2).flatten(2, 3)[:, :, : query.shape[2]]

    @staticmethod
    @differentiable_by(formula.attention)
    def backward(ctx: Any, saved: Any, gradient: Tensor) -> Gradients:
        """Gradients of query, key, value, slot_key, slot_value and head_bias."""
        (window,), length = ctx.options, gradient.shape[2]
        *given, head_bias, tokens, out, lse, share, far_out = saved
        of_tokens = [None] * len(gradient) if tokens is None else tokens
        of_batch = _whole(gradient, window), *_padded(*given, window), of_tokens, out, lse, share, far_out
        parts = [_document_backward(*document, head_bias, window) for document in zip(*of_batch, strict=True)]
        *near, slot_key, slot_value, d_bias = (torch.stack(x) for x in zip(*parts, strict=True))
        grads = *(x[:, :, :length] for x in near), slot_key, slot_value
        return *(x.to(gradient.dtype) for x in grads), None, None, d_bias.sum(dim=0), None, None


def _whole(x: Tensor, window: int) -> Tensor:
    """x (B, h, n, d) with zeros behind, to whole blocks: (B, h, b w, d)."""
    short = -x.shape[2] % window
    return pad(x, (0, 0, 0, short)) if short else x


def _padded(query: Tensor, key: Tensor, value: Tensor, *others: Any) -> tuple[Tensor, ...]:
    """Whole blocks of queries (B, h, b w, d), keys and values with a block before and behind; then ``others``."""
    *rest, window = others
    around = (0, 0, window, window + -query.shape[2] % window)
    return _whole(query, window), pad(key, around), pad(value, around), *rest


def _document_backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    slot_key: Tensor,
    slot_value: Tensor,
    near: Tensor,
    far: Tensor,
    tokens: Tensor | None,
    out: Tensor,
    lse: Tensor,
    share: Tensor,
    far_out: Tensor,
    head_bias: Tensor,
    window: int,
) -> tuple[Tensor, ...]:
    # The backward kernel is twice as slow in bfloat16 as in float32 on blocks this small (measured on AVX512-bf16).
    gradient, query, key, value, slot_key, slot_value, out, far_out = (
        x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
        for x in (gradient, query, key, value, slot_key, slot_value, out, far_out)
    )
    blocks, d_out = _blocks(query, window), _blocks(gradient, window).contiguous()
    dq, dk, dv = _backward(
        d_out, blocks, _exact(key, window, tokens), _exact(value, window, tokens), out, lse, 0.0, False,
        attn_mask=near.transpose(0, 1)[:, :, None].expand(-1, -1, window, -1),
    )  # fmt: skip
    far_lse = lse - head_bias[:, None]
    far_dq, far_dk, far_dv = _far_backward(d_out, blocks, slot_key, slot_value, out, far_lse, far)
    dq = dq.transpose(0, 1).flatten(1, 2) + far_dq
    d_share = d_out.to(share.dtype) * (far_out.to(share.dtype) - out.to(share.dtype))
    d_bias = (share * d_share.sum(dim=-1)).sum(dim=(0, 2))
    d_key, d_value = (_of_tokens(x, window, tokens) for x in (dk, dv))
    return dq, d_key, d_value, far_dk, far_dv, d_bias.to(head_bias.dtype)


def _far_backward(
    d_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, lse: Tensor, far: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of queries (h, b w, d) and of the slots' keys and values (h, S, d), by some blocks at a time."""
    window, slots = query.shape[2], far.shape[2]
    some = max(1, MOST_BIASES // max(1, len(far) * window * slots))
    dq, dk, dv = [], torch.zeros_like(key), torch.zeros_like(value)
    for first in range(0, len(query), some):
        part = slice(first, first + some)
        flat = [x[part].transpose(0, 1).flatten(1, 2)[None] for x in (d_out, query, out, lse)]
        bias = far[:, part, None].expand(-1, -1, window, -1).flatten(1, 2)[None]
        found = _backward(
            flat[0], flat[1], key[None], value[None], flat[2], flat[3], 0.0, False, attn_mask=bias
        )  # fmt: skip
        dq.append(found[0][0])
        dk += found[1][0]
        dv += found[2][0]
    return torch.cat(dq, dim=1), dk, dv
