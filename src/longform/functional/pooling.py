"""Pooling: the hidden states of all tokens to one vector (CLS, mean, or a mean in which early tokens weigh more), or to
two of these side by side.

Axes: B batch, n tokens, D features.
"""

import torch
from torch import Tensor

from longform.errors import InputError
from longform.functional.masks import blank_padding, masked_mean

LEAD = 64  # the position whose weight is half of the first token's


def lead_mean(hidden: Tensor, mask: Tensor | None) -> Tensor:
    """Weighted mean of ``hidden`` (B, n, D) -> (B, D), each token's weight 1 / (1 + position / 64).

    The beginning of a document says most about what kind it is: of 4,096 tokens the first 512 have half of the weight,
    in the plain mean an eighth. ``mask`` bool (B, n) or None, padding on the right; a row of padding alone gives zeros.
    """
    dtype = torch.float64 if hidden.dtype == torch.float64 else torch.float32
    position = torch.arange(hidden.shape[1], device=hidden.device, dtype=dtype)
    weight = (LEAD / (LEAD + position)).expand(hidden.shape[:2])
    if mask is not None:
        weight = torch.where(mask, weight, 0.0)
    share = weight / weight.sum(dim=1, keepdim=True).clamp(min=torch.finfo(dtype).tiny)
    return (blank_padding(hidden, mask) * share[..., None]).sum(dim=1).to(hidden.dtype)


def first_state(hidden: Tensor, mask: Tensor | None) -> Tensor:
    """The first token's state (CLS): hidden (B, n, D), bool mask (B, n) or None -> (B, D).

    A row of padding alone gives zeros. Raises InputError where padding stands before a text; a compiled graph does not
    check that.
    """
    if mask is not None and not torch.compiler.is_compiling() and bool((mask.any(dim=1) & ~mask[:, 0]).any()):
        raise InputError("padding stands before a text: give it on the right (tokenizer.padding_side = 'right')")
    return blank_padding(hidden[:, :1], None if mask is None else mask[:, :1])[:, 0]


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
