"""What every attention layer has: queries, keys and values by head, from four projections, and checks of its input.

Axes: B batch, n tokens, D hidden, h heads, g heads of keys and values, d head dimension.
"""

from abc import ABC

import torch
from torch import Tensor, nn

from longform.errors import InputError
from longform.functional.masks import blank_padding, checked_mask
from longform.functional.positions.rotary import Rotation, rotated
from longform.layers.geometry import check_key_value_heads, head_size
from longform.layers.linear import Linear, is_affine
from longform.layers.memory import by_head
from longform.layers.short_convolution import ShortConvolution


class SelfAttention(nn.Module, ABC):
    """``hidden_size`` D and ``num_heads`` h; ``head_dim`` d, None for D / h: together the heads may be narrower or
    wider than D; ``num_key_value_heads`` g <= h of keys and values, each for h / g heads of queries; ``bias``: of the
    four projections; ``max_length``: the most tokens.

    Raises ConfigurationError where g does not divide h, and without ``head_dim`` where h does not divide D.
    """

    adds_residual = True  # ``forward`` takes ``residual``
    convolution: ShortConvolution | None = None  # what meets the input first, padding zero, and gives the like

    def __init__(
        self, hidden_size: int, num_heads: int, *, head_dim: int | None, num_key_value_heads: int | None,
        max_length: int, bias: bool,
    ) -> None:  # fmt: skip
        super().__init__()
        check_key_value_heads(num_heads, num_key_value_heads)
        self.hidden_size, self.num_heads, self.max_length = hidden_size, num_heads, max_length
        self.num_key_value_heads = num_key_value_heads or num_heads
        self.head_dim = head_size(hidden_size, num_heads, head_dim)
        width, narrow = (self.head_dim * heads for heads in (num_heads, self.num_key_value_heads))
        self.query = Linear(hidden_size, width, bias=bias)
        self.key, self.value = (Linear(hidden_size, narrow, bias=bias) for _ in range(2))
        self.output = Linear(width, hidden_size, bias=bias)

    def checked(self, hidden_states: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Hidden states (B, n, D) with padding blanked, rounded once where products under autocast would, and a bool
        mask.

        Raises InputError on a longer input or a mask of another shape.
        """
        batch, length, _ = hidden_states.shape
        if length > self.max_length:
            raise InputError(f"the input has n={length} tokens, this layer takes at most max_length={self.max_length}")
        if mask is not None and (mask.dtype != torch.bool or mask.shape != (batch, length)):
            mask = checked_mask(mask, batch=batch, length=length)
        hidden, device = blank_padding(hidden_states, mask), hidden_states.device.type
        if hidden.dtype == torch.float32 and torch.is_autocast_enabled(device) and self._is_affine():
            hidden = hidden.to(torch.get_autocast_dtype(device))
        return hidden if self.convolution is None else self.convolved(hidden, mask), mask

    def convolved(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """Hidden states (B, n, D), padding blanked, after the short convolution: (B, n, D)."""
        assert self.convolution is not None
        return self.convolution(hidden, mask)

    def _is_affine(self) -> bool:
        """Whether hidden states meet products alone: the layers are their weights, and no adapter beside them."""
        return all(is_affine(layer) for layer in (self.query, self.key, self.value))

    def queries(self, hidden: Tensor, rotation: Rotation | None = None) -> Tensor:
        """hidden (B, n, D) -> (B, n, h, d), turned by ``rotation``."""
        return rotated(by_head(self.query(hidden), self.num_heads), rotation)

    def keys(self, hidden: Tensor, mask: Tensor | None, rotation: Rotation | None = None) -> Tensor:
        """Of every token, (B, n, h, d), turned by ``rotation``, padding blanked."""
        key = by_head(blank_padding(self.key(hidden), mask), self.num_key_value_heads)
        return self._of_all_heads(rotated(key, rotation))

    def values(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """Of every token, (B, n, h, d), padding blanked."""
        return self._of_all_heads(by_head(blank_padding(self.value(hidden), mask), self.num_key_value_heads))

    def _of_all_heads(self, x: Tensor) -> Tensor:
        """x (B, n, g, d), each for its heads of queries: (B, n, h, d)."""
        times = self.num_heads // self.num_key_value_heads
        return x if times == 1 else x.repeat_interleave(times, dim=2)
