"""A short text's window and memory where each slot is a token: full attention with a bias for the far ones, on a CPU.

Axes: n tokens of one document, h heads, d head dimension, w block, b blocks, g = 1 or h.
"""

import torch
from torch import Tensor

from longform.functional.window.document import Far, Part, far_shares

_attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


def attend_single_tokens(part: Part, far: Far, out: Tensor) -> None:
    """Write the context of all queries into ``out`` (n, h, d), by torch's fused attention, without gradients."""
    bias = single_token_bias(part, far)
    mask = None if bias is None else bias[None]
    found, _ = _attention(part.query[None], part.key[None], part.value[None], attn_mask=mask)
    out.copy_(found[0].transpose(0, 1))


def single_token_bias(part: Part, far: Far) -> Tensor | None:
    """What is added to the logit of each query and token: (g, n, n), None for nothing."""
    weighed = single_token_bias_of_blocks(part, far)
    return None if weighed is None else weighed[:, torch.arange(part.length) // part.window]


def single_token_bias_of_blocks(part: Part, far: Far) -> Tensor | None:
    """What is added to the logit of each token, for the queries of each block: (g, b, n), None for nothing."""
    shares = far_shares(far, part.all_blocks(), part.window)
    if not any(shares) and (far.bias is None or not far.bias.any()):
        return None
    blocks, own = torch.arange(part.length) // part.window, torch.arange(part.all_blocks())[:, None]
    share = torch.tensor(shares, dtype=far.count.dtype)[:, None]
    weight = torch.where(torch.arange(part.length) < far.sinks, 0.0, share)[None]
    if far.bias is not None:
        weight = weight + far.bias.to(weight.dtype)[:, None, None]
    return torch.where((own - blocks).abs() <= 1, 0.0, weight)
