"""The floor of a pass, run: the plan's products and attention calls alone, at its shapes, dtype and threads.

Each layer has weights of its own, as in a model, so that they come from memory and not from a cache. Results are
written over buffers that exist, so that no time goes into getting memory; on a CPU a product with a weight is oneDNN's
or our own kernel's, packed beforehand, whichever is faster. In training the backward products follow.
"""

from collections.abc import Callable
from functools import partial
from timeit import repeat

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from longform.functional.linear import can_pack, linear, pack
from longform_lab.speed.floor import Attention, Floor, Product
from longform_lab.speed.precision import wait


class TimedFloor:
    """Calling it runs the products of all layers once. ``dtype``: "float32" or "bfloat16"."""

    def __init__(self, plan: Floor, *, dtype: str, work: str, device: torch.device) -> None:
        self.dtype = torch.bfloat16 if dtype == "bfloat16" else torch.float32
        self.work, self.device = work, device
        self.buffers: dict[tuple[object, ...], Tensor] = {}
        self.chosen: dict[Product, int] = {}
        self.steps: list[Callable[[], object]] = []
        for layer in range(plan.layers):
            for index, product in enumerate(plan.products):
                self.steps += self._product(product, (layer, index))
            for call in plan.attention:
                self.steps += self._attention(call)

    @torch.no_grad()
    def __call__(self) -> None:
        """One pass, to its end on a GPU too."""
        for step in self.steps:
            step()
        wait(self.device.type)

    def _made(self, *shape: int, name: object) -> Tensor:
        """A tensor of this shape; one with the same name is the same tensor."""
        if (shape, name) not in self.buffers:
            self.buffers[shape, name] = torch.randn(shape, device=self.device).mul_(0.1).to(self.dtype)
        return self.buffers[shape, name]

    def _product(self, product: Product, place: tuple[int, int]) -> list[Callable[[], object]]:
        rows, inner, columns, count, left = product
        if left:
            return self._shortening(product, place)
        x, out = self._made(rows, inner, name="in"), self._made(rows, columns, name="out")
        weight = self._made(columns, inner, name=place)
        steps: list[Callable[[], object]] = [lambda: torch.mm(x, weight.t(), out=out)]
        if self.work == "inference" and self.device.type == "cpu" and can_pack(weight):
            kernels = [partial(linear, x, pack(weight, kernel=kernel), None) for kernel in ("onednn", None)]
            steps = [self._faster(product, [*steps, *kernels])]
        if self.work == "train":
            d_x, d_weight = self._made(rows, inner, name="d in"), self._made(columns, inner, name="d weight")
            steps += [lambda: torch.mm(out, weight, out=d_x), lambda: torch.mm(out.t(), x, out=d_weight)]
        return steps * count

    def _faster(self, product: Product, ways: list[Callable[[], object]]) -> Callable[[], object]:
        """The fastest of the ways to compute ``product``, found out in the first layer."""
        if product not in self.chosen:
            for way in ways:
                way()
            self.chosen[product] = min(range(len(ways)), key=lambda place: min(repeat(ways[place], number=1, repeat=3)))
        return ways[self.chosen[product]]

    def _shortening(self, product: Product, place: tuple[int, int]) -> list[Callable[[], object]]:
        """E X for a text: E (k, n) is the weight."""
        rows, inner, columns, count, _ = product
        matrix, x = self._made(rows, inner, name=place), self._made(inner, columns, name="in")
        out = self._made(rows, columns, name="short")
        steps: list[Callable[[], object]] = [lambda: torch.mm(matrix, x, out=out)]
        if self.work == "train":
            d_x, d_matrix = self._made(inner, columns, name="d in"), self._made(rows, inner, name="d matrix")
            steps += [lambda: torch.mm(matrix.t(), out, out=d_x), lambda: torch.mm(out, x.t(), out=d_matrix)]
        return steps * count

    def _attention(self, call: Attention) -> list[Callable[[], object]]:
        batch, heads, queries, keys, dim = call
        query = self._made(batch, queries, heads, dim, name="query").transpose(1, 2)
        key, value = (self._made(batch, keys, heads, dim, name=side).transpose(1, 2) for side in ("key", "value"))
        if self.work == "inference":
            return [lambda: scaled_dot_product_attention(query, key, value)]
        leaves = tuple(x.detach().requires_grad_() for x in (query, key, value))
        slope = self._made(batch, queries, heads, dim, name="d query").transpose(1, 2)

        def both() -> None:
            with torch.enable_grad():
                out = scaled_dot_product_attention(leaves[0], leaves[1], leaves[2])
                torch.autograd.grad(out, leaves, slope)

        return [both]
