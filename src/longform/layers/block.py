"""A Transformer block: attention and feed-forward, each with a residual and a norm; on a whole text or in parts.

Axes: B batch, n tokens, c tokens at a time, D hidden.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from longform.layers.attention import LinformerAttention
from longform.layers.feed_forward import FeedForward
from longform.layers.norm import InferenceNorm
from longform.layers.self_attention import Shared
from longform.layers.streaming import added, assembled, attention_in_parts, in_chunks


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
        self, hidden_states: Tensor, attention_mask: Tensor | None, shared: Shared, output_attentions: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """hidden_states (B, n, D), bool mask (B, n) or None -> (B, n, D), and attention weights or None."""
        source = self.attention_norm(hidden_states) if self.pre_norm else hidden_states
        attended = self.attention(source, attention_mask, shared=shared, output_attentions=output_attentions)
        context, weights = attended if output_attentions else (attended, None)
        return self._after_attention(self.dropout(context), hidden_states), weights

    def in_parts(self, hidden: Tensor, mask: Tensor | None, shared: Shared, *, in_place: bool) -> Tensor:
        """forward of hidden (B, n, D) where no gradient is wanted (streaming.can_run_in_parts): some tokens at a time.

        ``in_place``: nobody needs ``hidden`` afterwards; the output of a long text is then in its memory.
        """
        source = self.attention_norm(hidden) if self.pre_norm else hidden
        finish: Any = partial(in_chunks, self._after_attention)
        parts = attention_in_parts(self.attention, source, mask, shared, hidden)
        if parts is None and isinstance(self.attention, LinformerAttention):
            context, _ = self.attention.context(source, mask, shared)
            return finish(*added(self.attention.output, context, hidden))
        if parts is None:
            return finish(self.attention(source, mask, shared=shared), hidden)
        return assembled(((where, finish(x)) for where, x in parts), hidden.shape[:2], hidden if in_place else None)

    def _after_attention(self, attended: Tensor, residual: Tensor | None) -> Tensor:
        """Norms and feed-forward of attention and its ``residual``, both (B, c, D), or of their sum: (B, c, D).

        ``attended`` may be overwritten where no gradient is wanted.
        """
        if self.pre_norm:
            hidden = attended if residual is None else residual + attended
            out, rest = self._fed_forward(self.feed_forward_norm(hidden), hidden)
            return out if rest is None else rest + out
        in_place = not torch.is_grad_enabled()
        if type(self.attention_norm) is InferenceNorm:
            hidden = self.attention_norm(attended, residual, in_place=in_place)
        else:
            hidden = self.attention_norm(attended if residual is None else residual + attended)
        out, rest = self._fed_forward(hidden, hidden)
        if type(self.feed_forward_norm) is InferenceNorm:
            return self.feed_forward_norm(out, rest, in_place=in_place)
        return self.feed_forward_norm(out if rest is None else rest + out)

    def _fed_forward(self, hidden: Tensor, residual: Tensor) -> tuple[Tensor, Tensor | None]:
        """Feed-forward of ``hidden``, and the ``residual``, None where that is added already."""
        if not self.training and type(self.feed_forward) is FeedForward:
            return self.feed_forward.plus(hidden, residual)
        return self.dropout(self.feed_forward(hidden)), residual
