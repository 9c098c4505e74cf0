"""The arguments of one call of window attention; tensors that only some kernels need are formed at first use.

Axes: B batch, n tokens, S slots, h heads, d head dimension, w block, b = ceil(n / w) blocks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from longform.functional.conditions import ask_gradient
from longform.functional.execution import cached_in_forward
from longform.functional.masks import text_lengths
from longform.functional.slots import Exact, Slots
from longform.functional.window import formula
from longform.functional.window.selection import Selected, block_sums, opened, opened_distances, select


class lazy_property:
    """A property that is found out when first asked for; functools' has a lock, which a compiler cannot trace."""

    def __init__(self, find: Callable[[Any], Any]) -> None:
        self.find, self.__doc__ = find, find.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, call: Any, owner: type | None = None) -> Any:
        found = call.__dict__[self.name] = self.find(call)
        return found


@dataclass(eq=False)
class WindowCall:
    """``query``, ``key``, ``value`` (B, h, n, d), padding blanked; ``form_slots`` gives keys and values (B, h, S, d).

    ``window`` w; ``memory_bias`` (h) or None; ``mask`` bool (B, n) or None; ``exact``: the tokens that have a slot for
    themselves, or None. ``slots_are_tokens``: each slot holds one token's key and value. ``distance_bias`` (h, 2 r + 1)
    or None: see longform.functional.positions.distances; no slot that is seen is nearer than r, which is at most w + 1.
    ``selected``: slots that each block sees token by token instead, see selection.py.
    ``first_block``: where these tokens are a part of the text that the slots cover (longform.distributed), its blocks
    before them; None where they are all of it. ``causal``, ``neighbours`` (b, m): other orders, see formula.py.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    form_slots: Callable[[], Slots]
    window: int
    memory_bias: Tensor | None = None
    memory_budget: float | None = None
    exact: Exact | None = None
    mask: Tensor | None = None
    dropout: float = 0.0
    slots_are_tokens: bool = False
    distance_bias: Tensor | None = None
    first_block: int | None = None
    causal: bool = False
    neighbours: Tensor | None = None
    selected: int = 0

    def __post_init__(self) -> None:
        self.wide = torch.float64 if self.query.dtype == torch.float64 else torch.float32  # the dtype of biases
        self._given = {  # for formula.blocks_of and formula.far_parts
            "length": self.query.shape[2], "window": self.window, "dtype": self.wide,
            "budget": self.memory_budget, "first": self.first_block or 0, "causal": self.causal,
        }  # fmt: skip
        self.wants_gradient = ask_gradient((self.query, self.key, self.value, self.memory_bias, self.distance_bias))
        if torch.is_grad_enabled() and not (self.wants_gradient or self.slots_are_tokens):
            self.wants_gradient = ask_gradient(self.slots[:2])  # a projection may have weights
        if self.causal:
            self.neighbours = cached_in_forward(
                formula.blocks_before, length=self.query.shape[2], window=self.window, device=self.query.device
            )

    @lazy_property
    def slots(self) -> Slots:
        """The slots' keys and values (B, h, S, d), and what they stand for."""
        return self.form_slots()

    @lazy_property
    def lengths(self) -> list[int] | None:
        """Tokens of each text where all padding is on the right, else None."""
        return text_lengths(self.mask, batch=self.query.shape[0], length=self.query.shape[2])

    @lazy_property
    def far_parts(self) -> formula.FarParts:
        """Bias on the logits of slots, taken apart."""
        return cached_in_forward(formula.far_parts, self.slots.runs, neighbours=self.neighbours, **self._given)

    @lazy_property
    def blocks(self) -> formula.Blocks:
        """Tokens and slots that each block sees, with biases."""
        found = cached_in_forward(formula.blocks_of, self.mask, self.slots.runs, self.neighbours, **self._given)
        return opened(found, self.selection) if self.selected else found

    @lazy_property
    def selection(self) -> Selected:
        """The choice of each block, where there is selection."""
        slots = self.slots
        assert slots.runs is not None
        far = cached_in_forward(formula.blocks_of, self.mask, slots.runs, self.neighbours, **self._given).far
        return select(
            block_sums(self.query, self.mask, self.window), slots.key, far, slots.runs, self.counted,
            length=self.query.shape[2], budget=self.memory_budget, most=self.selected,
        )  # fmt: skip

    @property
    def distances(self) -> tuple[Tensor, Tensor] | None:
        """Biases by distance: on the logits of tokens (B or 1, h, b or 1, w, 3 w), or 3 w + t with selection, and of
        slots (B, h, b, S); see formula.py.
        """
        if self.causal:
            near = formula.before_or_at(self.window, dtype=self.wide, device=self.query.device)
            return near[None, :, None], near.new_zeros(1, 1, 1, 1)
        if self.distance_bias is None:
            return None
        bias = self.distance_bias.to(self.wide)
        far = formula.far_distances(
            bias, self.slots.runs, length=self.query.shape[2], window=self.window, first=self.first_block or 0,
        )  # fmt: skip
        near = formula.near_distances(bias, self.window)[None, :, None]
        if self.selected:
            near = opened_distances(near, bias, self.selection.tokens, self.window)
        return near, far

    @property
    def counted(self) -> Tensor | None:
        """The tokens of text that are in slots with others, bool (B, n); None for all."""
        return self.mask if self.exact is None else self.exact.rest

    @property
    def head_bias(self) -> Tensor:
        """``memory_bias`` (h), or zeros."""
        if self.memory_bias is None:
            return torch.zeros(self.query.shape[1], dtype=self.wide, device=self.query.device)
        return self.memory_bias.to(self.wide)

    def blanked(self, out: Tensor) -> Tensor:
        """``out`` (B, h, n, d) with zeros on padding."""
        return out if self.mask is None else torch.where(self.mask[:, None, :, None], out, 0.0)
