"""Local self-attention as a layer: each token sees those near it exactly, and no others; there are no slots.

Axes: B batch, n tokens, D hidden, h heads, d head dimension, w reach.
"""

from typing import Any

from torch import Tensor

from longform.functional.window.local import local_attention, local_context, local_weights
from longform.layers.position_options import check_reach_of_local
from longform.layers.self_attention import NOTHING_SHARED, SelfAttention, Shared


class LocalAttention(SelfAttention):
    """Multi-head self-attention to the tokens at most ``reach`` w away on each side, in O(n w).

    ``hidden_size`` D and ``num_heads`` h; ``head_dim`` d, None for D / h; ``num_key_value_heads``: heads of keys and
    values, None for h of them; ``max_length``: the most tokens; ``dropout`` on attention weights. Weights that
    ``forward`` returns are (B, h, n, 3 w), of the query's block of w tokens and of both neighbours.
    Raises ConfigurationError for sizes that do not go together.
    """

    covers_all = False

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        *,
        max_length: int,
        reach: int,
        head_dim: int | None = None,
        num_key_value_heads: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        check_reach_of_local(reach)
        super().__init__(
            hidden_size,
            num_heads,
            head_dim=head_dim,
            num_key_value_heads=num_key_value_heads,
            max_length=max_length,
            bias=bias,
            dropout=dropout,
        )
        self.reach = reach

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        *,
        shared: Shared = NOTHING_SHARED,
        output_attentions: bool = False,
    ) -> Any:
        """Attend, as LinformerAttention does; a ``shared`` projection is not used: nothing is shortened here."""
        x, mask = self.prepare(hidden_states, attention_mask)
        query = self.queries_of(hidden_states, x, mask, shared)
        query, key, value = (each.transpose(1, 2) for each in (query, *self.keys_and_values(x, mask, shared)))
        rate, weights = self.dropout_rate, None
        if output_attentions:
            weights = local_weights(query, key, reach=self.reach, mask=mask)
            context = local_context(weights, value, reach=self.reach, dropout=rate)
        else:
            context = local_attention(query, key, value, reach=self.reach, mask=mask, dropout=rate)
        out = self.output(context.flatten(2))
        return out if weights is None else (out, weights)
