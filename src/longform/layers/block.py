"""A Transformer block: attention and feed-forward, each with a residual and a norm; on a whole text or in parts.

Axes: B batch, n tokens, c tokens at a time, D hidden, F features.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from longform.functional.norm import layer_norm
from longform.layers.attention import LinformerAttention
from longform.layers.linear import FUSED, PackedLinear, is_hooked
from longform.layers.packed_batch import Group
from longform.layers.self_attention import Shared
from longform.layers.streaming import assembled, attention_in_parts, in_chunks


class InferenceNorm(nn.LayerNorm):
    """Layer normalisation that adds a residual in its pass: what ``pack_weights`` makes of an nn.LayerNorm on a GPU."""

    def forward(self, input: Tensor, residual: Tensor | None = None) -> Tensor:
        """input (..., F), plus ``residual`` if that is given -> (..., F)."""
        return layer_norm(input, self.weight, self.bias, epsilon=self.eps, residual=residual)


def normalised(norm: nn.Module, x: Tensor, residual: Tensor | None) -> Tensor:
    """``norm`` of x (..., F), plus ``residual`` if there is one."""
    if type(norm) is InferenceNorm:
        return norm(x, residual)
    return norm(x if residual is None else residual + x)


def make_norm(kind: str, size: int, *, epsilon: float, bias: bool = True) -> nn.Module:
    """The norm of ``kind`` over ``size`` features: "layer_norm", with or without a ``bias``, or "rms_norm", which has
    none.
    """
    return nn.RMSNorm(size, eps=epsilon) if kind == "rms_norm" else nn.LayerNorm(size, eps=epsilon, bias=bias)


NORMS = (nn.LayerNorm, nn.RMSNorm, InferenceNorm)


class FeedForward(nn.Module):
    """output(activation(intermediate(x))): (B, n, ``hidden_size``) -> the same, ``intermediate_size`` wide inside.

    ``gated`` (GeGLU, SwiGLU): output(activation(gate(x)) * intermediate(x)). ``bias``: of all its layers.
    ``chunk_size``: tokens of each document at a time, 0 for all (Hugging Face's ``chunk_size_feed_forward``).
    """

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        activation: Callable[[Tensor], Tensor],
        chunk_size: int = 0,
        *,
        gated: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.gate = nn.Linear(hidden_size, intermediate_size, bias=bias) if gated else None
        self.intermediate = nn.Linear(hidden_size, intermediate_size, bias=bias)
        self.activation = activation
        self.output = nn.Linear(intermediate_size, hidden_size, bias=bias)
        self.chunk_size = chunk_size

    def forward(self, hidden: Tensor, *, residual: Tensor | None = None) -> Tensor:
        """hidden (B, n, D) -> (B, n, D), plus ``residual`` (B, n, D), if there is one, where ``output`` is packed."""
        if 0 < self.chunk_size < hidden.shape[1] and not torch.compiler.is_compiling():
            return self._in_chunks(hidden, residual)
        fuses = type(self.intermediate) in FUSED and type(self.activation) is nn.GELU
        if self.gate is not None:
            inside = self.activation(self.gate(hidden)) * self.intermediate(hidden)
        elif fuses and not is_hooked(self.intermediate, self.activation):
            inside = self.intermediate(hidden, activation=self.activation)
        else:
            inside = self.activation(self.intermediate(hidden))
        return self.output(inside) if residual is None else self.output(inside, residual=residual)

    def _in_chunks(self, hidden: Tensor, residual: Tensor | None) -> Tensor:
        out = torch.cat([FeedForward.forward(self, part) for part in hidden.split(self.chunk_size, dim=1)], dim=1)
        return out if residual is None else residual + out


class Block(nn.Module):
    """hidden + attention, normalised, then hidden + feed-forward, normalised ("post"); or each normalised before.

    ``attention``: takes (hidden, mask, shared=Shared(...), output_attentions=...), as LinformerAttention does.
    ``pre_norm``: norms come before attention and feed-forward and not after the sums. ``dropout``: of both branches.
    """

    def __init__(
        self,
        attention: nn.Module,
        feed_forward: nn.Module,
        attention_norm: nn.Module,
        feed_forward_norm: nn.Module,
        *,
        pre_norm: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        self.pre_norm = pre_norm
        self.attention, self.attention_norm = attention, attention_norm
        self.feed_forward, self.feed_forward_norm = feed_forward, feed_forward_norm
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor | None, shared: Shared, output_attentions: bool = False,
        distance_bias: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """hidden_states (B, n, D), bool mask (B, n) or None -> (B, n, D), and attention weights or None.

        ``distance_bias``: in place of that in ``shared``: re-entrant checkpointing sees only arguments themselves.
        """
        if distance_bias is not None:
            shared = shared._replace(distance_bias=distance_bias)
        source = self.attention_norm(hidden_states) if self.pre_norm else hidden_states
        if shared.documents is not None:
            out, weights = shared.documents.each(partial(self._attend_group, shared), source), None
        else:
            result = self.attention(source, attention_mask, shared=shared, output_attentions=output_attentions)
            out, weights = result if output_attentions else (result, None)
        return self.after_attention(self.dropout(out), hidden_states), weights

    def _attend_group(self, shared: Shared, hidden: Tensor, group: Group) -> Tensor:
        return self.attention(hidden, group.mask, shared=shared.of_group(group))

    def after_attention(self, attended: Tensor, residual: Tensor | None) -> Tensor:
        """Norms and feed-forward of attention and its ``residual``, both (B, c, D), or of their sum: (B, c, D)."""
        if self.pre_norm:
            hidden = attended if residual is None else residual + attended
            inside = self.feed_forward_norm(hidden)
        else:
            inside = hidden = normalised(self.attention_norm, attended, residual)
        rest: Tensor | None = hidden
        feed_forward = self.feed_forward
        if type(feed_forward) is FeedForward and type(feed_forward.output) is PackedLinear and not self.training:
            out, rest = feed_forward(inside, residual=hidden), None
        else:
            out = self.dropout(feed_forward(inside))
        if self.pre_norm:
            return out if rest is None else rest + out
        return normalised(self.feed_forward_norm, out, rest)

    def in_parts(self, hidden: Tensor, mask: Tensor | None, shared: Shared, *, in_place: bool) -> Tensor:
        """``forward`` of hidden (B, n, D) where no gradient is wanted (streaming.can_run_in_parts): some tokens at a
        time.

        ``in_place``: nobody needs ``hidden`` afterwards; the output of a long text is then in its memory.
        """
        plain = type(self.attention_norm) in NORMS and type(self.feed_forward_norm) in NORMS
        if not plain or type(self.feed_forward) is not FeedForward:  # what replaced them may look at whole texts
            return self(hidden, mask, shared)[0]
        source = self.attention_norm(hidden) if self.pre_norm else hidden
        parts = attention_in_parts(self.attention, source, mask, shared, hidden)
        if parts is not None:
            finished = ((where, in_chunks(self.after_attention, x)) for where, x in parts)
            return assembled(finished, hidden.shape[:2], hidden if in_place else None)
        if isinstance(self.attention, LinformerAttention) and type(self.attention.output) is PackedLinear:
            return in_chunks(self.after_attention, self.attention(source, mask, shared=shared, residual=hidden))
        return in_chunks(self.after_attention, self.attention(source, mask, shared=shared), hidden)
