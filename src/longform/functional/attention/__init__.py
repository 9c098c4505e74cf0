"""Linear attention, the paper's equation 7: softmax(Q (E K)ᵀ / sqrt(d)) (F V).

Axes: B batch, n tokens, k slots, h heads, d head dimension.
"""

from torch import Tensor
from torch.nn.functional import dropout as drop
from torch.nn.functional import scaled_dot_product_attention, softmax

from longform.functional.attention.amx import native_attention, native_is_faster
from longform.functional.attention.amx_training import NativeAttention, native_trains_faster
from longform.functional.attention.bmm import attention_by_products, products_are_faster
from longform.functional.attention.bmm_training import ProductAttention, products_train_faster


def usable_slots(slot_mask: Tensor | None) -> Tensor | None:
    """``slot_mask`` bool (B, g, k), with slot 0 opened in rows that have no valid slot, as (B, g, 1, k).

    A row of padding alone then sees one slot of zeros and stays finite.
    """
    if slot_mask is None:
        return None
    nothing = ~slot_mask.any(dim=-1, keepdim=True)
    first = slot_mask.new_zeros(slot_mask.shape[-1])
    first[0] = True
    return (slot_mask | (nothing & first)).unsqueeze(-2)


def compressed_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    slot_mask: Tensor | None = None,
    implementation: str = "sdpa",
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor | None]:
    """softmax(Q Kᵀ / sqrt(d)) V over shortened keys and values.

    query (B, h, n, d); key, value (B, h, k, d); ``slot_mask`` bool (B, k) or (B, g, k), False hides a slot;
    ``implementation`` "sdpa" (fused; our own kernels or plain products where they are faster) or "eager" (returns
    weights). Returns out (B, h, n, d) and the weights (B, h, n, k) in eager, None otherwise. float64, float32, bfloat16
    or float16.
    """
    if slot_mask is not None and slot_mask.dim() == 2:
        slot_mask = slot_mask[:, None]
    usable = usable_slots(slot_mask)
    if implementation == "sdpa":
        if dropout == 0.0:
            if native_is_faster(query, key, value):
                return native_attention(query, key, value, usable), None
            if native_trains_faster(query, key, value):
                return NativeAttention.apply(query, key, value, usable), None
            if products_are_faster(query, key, value):
                return attention_by_products(query, key, value, usable), None
            if products_train_faster(query, key, value):
                return ProductAttention.apply(query, key, value, usable), None
        out = scaled_dot_product_attention(query, key, value, attn_mask=usable, dropout_p=dropout)
        return out, None
    logits = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    if usable is not None:
        logits = logits.masked_fill(~usable, float("-inf"))
    weights = softmax(logits, dim=-1)
    return drop(weights, dropout) @ value, weights
