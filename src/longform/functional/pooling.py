"""Pooling: the hidden states of all tokens to one vector (CLS, mean, or a mean in which early tokens weigh more), or to
two of these side by side.

Axes: B batch, n tokens, D features.
"""

import torch
from torch import Tensor

from longform.functional.masks import blank_padding, first_token, masked_mean

LEAD = 64  # the position whose weight is half of the first token's


def lead_mean(hidden: Tensor, mask: Tensor | None) -> Tensor:
    """Weighted mean of ``hidden`` (B, n, D) -> (B, D), each token's weight 1 / (1 + position / 64).

    The beginning of a document says most about what kind it is: of 4,096 tokens the first 512 have half of the weight,
    in the plain mean an eighth. ``mask`` bool (B, n) or None, positions count from the first token of text; a row of
    only padding gives zeros.
    """
    dtype = torch.float64 if hidden.dtype == torch.float64 else torch.float32
    share = lead_weights(mask, batch=hidden.shape[0], length=hidden.shape[1], device=hidden.device, dtype=dtype)
    return (blank_padding(hidden, mask) * share[..., None]).sum(dim=1).to(hidden.dtype)


def lead_weights(mask: Tensor | None, *, batch: int, length: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """The weights of ``lead_mean``: (B, n); each row sums to 1, or to 0 where it is only padding."""
    position = torch.arange(length, device=device, dtype=dtype).expand(batch, length)
    if mask is not None:
        position = torch.where(mask, position - first_token(mask)[:, None], torch.inf)
    weight = LEAD / (LEAD + position)
    return weight / weight.sum(dim=1, keepdim=True).clamp(min=torch.finfo(dtype).tiny)


def sublinear_weights(ids: Tensor, mask: Tensor) -> Tensor:
    """Weights float32 (B, n) of token ids (B, n): 1 / sqrt(c) of a token that its text has c times, times what makes
    their mean over the text 1. ``mask`` bool (B, n): padding weighs nothing and is not counted.
    """
    weights = torch.zeros(ids.shape, dtype=torch.float32, device=ids.device)
    for row, (own, real) in enumerate(zip(ids, mask, strict=True)):
        _, place, counts = torch.unique(own[real], return_inverse=True, return_counts=True)
        if len(counts):
            share = counts[place].float().rsqrt()
            weights[row, real] = share / share.mean()
    return weights


def first_state(hidden: Tensor, mask: Tensor | None) -> Tensor:
    """The state of the first token of text (CLS): hidden (B, n, D), bool mask (B, n) or None -> (B, D).

    A row of only padding gives zeros.
    """
    if mask is None:
        return hidden[:, 0]
    first = first_token(mask)[:, None, None].expand(-1, -1, hidden.shape[2])
    return torch.where(mask.any(dim=1, keepdim=True), hidden.gather(1, first)[:, 0], 0.0)


def pooled(hidden: Tensor, mask: Tensor | None, *, kind: str) -> Tensor:
    """The pooled vector: hidden (B, n, D), bool mask (B, n) or None -> (B, D), or (B, 2 D) where ``kind`` names two.

    ``kind``: "cls" (the first token), "mean", "lead" (``lead_mean``), or two of them side by side, "cls_mean" and
    "cls_lead".
    """
    single = {"cls": first_state, "mean": masked_mean, "lead": lead_mean}
    vectors = [single[name](hidden, mask) for name in kind.split("_")]
    return vectors[0] if len(vectors) == 1 else torch.cat(vectors, dim=1)


def pooled_width(kind: str, features: int) -> int:
    """The width of a pooled vector, D or 2 D, where a token's state has ``features`` D."""
    return len(kind.split("_")) * features
