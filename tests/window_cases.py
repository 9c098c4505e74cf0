"""Random heads, memory and masks for attention with a window, and their twin."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product

import pytest
import torch
from hypothesis import strategies as st
from reference.attention import (
    ReferenceSlots,
    reference_length,
    reference_over_batch,
    reference_ranked_slots,
    reference_slot_size,
    reference_windowed_attention,
)

from longform.functional.slots import Slots, divisors, leading_tokens, make_runs, with_exact_runs
from longform.functional.window import windowed_attention
from strategies import MASK_KINDS, generator, normal, texts

HEADS, DIM = 2, 3
DTYPES = st.sampled_from([torch.float64, torch.float32])
PATHS = ("sdpa", "eager", "compiled", "without a gradient")
SELECTED = st.sampled_from([0, 0, 1, 2, 5, 24])  # far slots that a block sees token by token: none to all


def edges(window: int, longest: int) -> list[int]:
    """Lengths around the borders of blocks."""
    near = {multiple * window + step for multiple in range(6) for step in (-1, 0, 1)}
    return sorted(n for n in near | {1} if 1 <= n <= longest)


@st.composite
def cases(draw: st.DrawFn, kinds: tuple[str, ...] = MASK_KINDS):
    """window w, base slot size C dividing it, fixed or not, k slots, and a text of at most k C tokens."""
    window, base = draw(st.sampled_from([(1, 1), (2, 1), (2, 2), (3, 3), (4, 2), (4, 4), (5, 1), (6, 3), (6, 2)]))
    slots = draw(st.integers(2, 24 // base))
    fixed = draw(st.booleans())
    longest = slots * base
    lengths = st.sampled_from(edges(window, longest)) | st.integers(1, longest)
    return window, base, fixed, slots, draw(texts(lengths=lengths, batch=2, kinds=kinds))


@contextmanager
def taking(path: str) -> Iterator[pytest.MonkeyPatch]:
    """Calls inside go the way of a compiled graph, or of inference, if that is the ``path``."""
    gradient = torch.is_grad_enabled() and path != "without a gradient"
    with pytest.MonkeyPatch.context() as patch, torch.set_grad_enabled(gradient):
        if path == "compiled":
            patch.setattr(torch.compiler, "is_compiling", lambda: True)
        yield patch


class Inputs:
    """Random heads and memory; what an empty slot holds is zeros, as the pools leave it.

    ``reach`` r: distances -r to r have a bias each. ``selected``: far slots that each block sees token by token.
    """

    def __init__(
        self, case, seed: int, dtype: torch.dtype = torch.float64, sinks: int = 0, reach: int = 0, selected: int = 0
    ):
        self.window, base, fixed, limit, self.text = case
        self.sinks, self.selected = min(sinks, self.text.length), selected
        sizes = (base,) if fixed else divisors(base)
        text, source = self.text, generator(seed)
        self.mask = text.checked
        shape = {"batch": text.batch, "length": text.length, "device": torch.device("cpu")}
        self.exact = leading_tokens(self.mask, sinks=self.sinks, **shape) if self.sinks else None
        self.slots = make_runs(self.mask, self.exact and self.exact.rest, sizes=sizes, slots=limit, **shape)
        if self.exact is not None:
            self.slots = with_exact_runs(self.slots, self.exact)
        count = self.slots.count.shape[1]
        shape = (text.batch, HEADS, text.length, DIM)
        blank = text.valid[:, None, :, None]
        self.heads = [torch.where(blank, normal(source, *shape, dtype=dtype), 0.0) for _ in range(3)]
        memory = [normal(source, text.batch, HEADS, count, DIM, dtype=dtype) for _ in range(2)]
        self.memory = [torch.where(self.slots.count[:, None, :, None] > 0, x, 0.0) for x in memory]
        self.bias = normal(source, HEADS, dtype=dtype)
        self.distance_bias = normal(source, HEADS, 2 * reach + 1, dtype=dtype) if reach else None
        leaves = (*self.heads, *self.memory, self.bias, self.distance_bias)
        self.leaves = [x.requires_grad_() for x in leaves if x is not None]
        self.cotangent = normal(source, *shape) * blank
        self.sizes = [
            base if fixed else reference_slot_size(reference_length(row), base_size=base, slots=limit)
            for row in text.valid.tolist()
        ]

    def fast(self, path: str, budget: float | None):
        options = {"window": self.window, "memory_budget": budget, "mask": self.mask, "memory_bias": self.bias}
        options |= {"exact": self.exact, "distance_bias": self.distance_bias, "selected": self.selected}
        options["output_attentions"] = path == "eager"
        with taking(path):
            return windowed_attention(*self.heads, self.memory_of, **options)

    def memory_of(self) -> Slots:
        return Slots(*self.memory, None, self.slots)

    def reference_slots(self, x, b: int, i: int) -> ReferenceSlots:
        made, size, valid = self.slots.count.shape[1], self.sizes[b], self.text.valid[b].tolist()
        first, rest = list(range(self.sinks)), [size * j for j in range(made - self.sinks)]
        stops = [*(t + 1 for t in first), *(start + size for start in rest)]
        count = [int(valid[t]) for t in first]
        count += [sum(valid[t] for t in range(s, min(s + size, len(valid))) if t >= self.sinks) for s in rest]
        vectors = [x[b, i, j] if count[j] else None for j in range(made)]
        return ReferenceSlots(vectors, count, first + rest, stops)

    def twin(self, budget: float | None):
        def one(b, i):
            q, k, v = (list(x[b, i]) for x in self.heads)
            memory = [self.reference_slots(x, b, i) for x in self.memory]
            options = {"window": self.window, "memory_bias": self.bias[i].double(), "memory_budget": budget}
            options |= {"exact": range(self.sinks), "selected": self.selected}
            options["distance_bias"] = None if self.distance_bias is None else self.distance_bias[i]
            return reference_windowed_attention(q, k, v, self.text.valid[b].tolist(), *memory, **options)

        return reference_over_batch(one, self.text.batch, HEADS)

    @property
    def decided(self) -> bool:
        """Whether no difference of products that decides which slots are selected is as small as float32's rounding."""
        found = [math.inf]
        for b, i in product(range(self.text.batch), range(HEADS)):
            keys, valid = self.reference_slots(self.memory[0], b, i), self.text.valid[b].tolist()
            for block in range(-(-self.text.length // self.window)):
                where = {"block": block, "window": self.window, "exact": range(self.sinks)}
                ranked = reference_ranked_slots(list(self.heads[0][b, i]), valid, keys, **where)
                if 0 < self.selected < len(ranked):
                    found.append(ranked[self.selected - 1][0] - ranked[self.selected][0])
        return min(found) > 1e-5

    @property
    def defined(self):
        """Valid positions, (B, 1, n, 1)."""
        return self.text.valid[:, None, :, None]
