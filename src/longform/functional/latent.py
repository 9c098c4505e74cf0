"""Slots that the text makes itself: k latents of each head attend to all its tokens, in whatever order these come.

    q = q0 + g softmax(q1^ K^T) K^        the text's latents: learned ones, and what others find, g zero at first
    E = softmax(q^ K^T)                   (k, n), of the input; no place is in it
    K' = q^, V' = E V

x^ is x / sqrt(mean(x²)), times a learned weight where it says so. A permutation of the tokens permutes what attention
over K' and V' gives. Both steps are attention with few queries: O(n k).

Axes: B batch, n tokens, k slots, h heads, d head dimension.
"""

import torch
from torch import Tensor
from torch.nn.functional import rms_norm

from longform.functional.attention import slot_attention

EPSILON = 1e-6


def unit_rms(x: Tensor, weight: Tensor | None = None) -> Tensor:
    """x / sqrt(mean(x²)) over the last axis, times ``weight``: x (..., d), weight (..., d) or None -> (..., d)."""
    out = rms_norm(x, x.shape[-1:], eps=EPSILON)
    return out if weight is None else out * weight


def latent_slots(
    key: Tensor,
    value: Tensor,
    latents: Tensor,
    weight: Tensor,
    *,
    seekers: Tensor,
    gate: Tensor,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Keys and values of the slots, (B, h, k, d) each, of keys and values (B, h, n, d) of the tokens.

    ``latents`` q0 and ``seekers`` q1 (h, k, d), ``gate`` g (h, 1, 1), ``weight`` (h, 1, d) of q's norm; ``mask`` bool
    (B, n), False for tokens that are no text. A text of no tokens has values of zero.
    """
    batch, dtype, dim = key.shape[0], key.dtype, key.shape[-1]
    keys, slot_mask = unit_rms(key), mask
    found, _ = slot_attention(_of_all(unit_rms(seekers), batch, dtype), keys, keys, slot_mask=slot_mask)
    query = unit_rms(_of_all(latents, batch, dtype) + gate.to(dtype) * found, weight.to(dtype))
    values, _ = slot_attention(query * dim**0.5, keys, value, slot_mask=slot_mask)
    return query, values


def _of_all(latents: Tensor, batch: int, dtype: torch.dtype) -> Tensor:
    """latents (h, k, d) for each text: (B, h, k, d)."""
    return latents.to(dtype).expand(batch, -1, -1, -1)
