"""Attention to points without an order, as others have it, written from their equations for one backbone.

Axes: B batch, n points, D hidden, h heads, d head dimension, k latents or slices.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm, scaled_dot_product_attention, softmax

STEEP = 1.0  # scale of logits in FLARE: not 1 / sqrt(d)


class _ByHead(nn.Module):
    """A layer whose output has heads: x (B, n, D) -> (B, h, n, d)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.linear = heads, nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, n, D) -> (B, h, n, d)."""
        return self.linear(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)


class _Mixer(nn.Module):
    """``mix`` by heads, then a layer over all of them."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.output = nn.Linear(width, width)

    def mix(self, x: Tensor) -> Tensor:
        """x (B, n, D) -> (B, h, n, d)."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """x (B, n, D) -> (B, n, D)."""
        return self.output(self.mix(x).transpose(1, 2).flatten(2))


class FullAttention(_Mixer):
    """softmax(Q Kᵀ / sqrt(d)) V."""

    def __init__(self, width: int, heads: int, _: int) -> None:
        super().__init__(width, heads)
        self.query, self.key, self.value = (_ByHead(width, heads) for _ in range(3))

    def mix(self, x: Tensor) -> Tensor:
        """x (B, n, D) -> (B, h, n, d)."""
        return scaled_dot_product_attention(self.query(x), self.key(x), self.value(x))


class InducedAttention(_Mixer):
    """Set Transformer's induced blocks (Lee et al., arXiv 1810.00825, equations 9 and 10): k learned points attend to
    all points, and these to what was found. The backbone has the feed-forward parts and norms.
    """

    def __init__(self, width: int, heads: int, slots: int) -> None:
        super().__init__(width, heads)
        self.points = nn.Parameter(0.5 * torch.randn(1, slots, width))
        self.inward, self.outward = (nn.ModuleList(_ByHead(width, heads) for _ in range(3)) for _ in range(2))
        self.found = nn.Linear(width, width)

    def mix(self, x: Tensor) -> Tensor:
        """x (B, n, D) -> (B, h, n, d)."""
        query, key, value = self.inward
        seeking = query(self.points).expand(len(x), -1, -1, -1)
        found = scaled_dot_product_attention(seeking, key(x), value(x))
        found = self.points + self.found(found.transpose(1, 2).flatten(2))
        query, key, value = self.outward
        return scaled_dot_product_attention(query(x), key(found), value(found))


class SliceAttention(_Mixer):
    """Transolver's attention between slices (Wu et al., arXiv 2402.02366, equations 1 to 4): points share themselves
    out to k slices, whose means attend to each other, and each point takes of them as it gave.
    """

    def __init__(self, width: int, heads: int, slots: int) -> None:
        super().__init__(width, heads)
        size = width // heads
        self.shares, self.values = _ByHead(width, heads), _ByHead(width, heads)
        self.slices = nn.Linear(size, slots)
        nn.init.orthogonal_(self.slices.weight)
        self.temperature = nn.Parameter(torch.full((heads, 1, 1), 0.5))
        self.between = nn.ModuleList(nn.Linear(size, size, bias=False) for _ in range(3))

    def mix(self, x: Tensor) -> Tensor:
        """x (B, n, D) -> (B, h, n, d)."""
        weights = softmax(self.slices(self.shares(x)) / self.temperature, dim=-1)  # (B, h, n, k)
        means = weights.transpose(2, 3) @ self.values(x) / (weights.sum(dim=2)[..., None] + 1e-5)
        return weights @ scaled_dot_product_attention(*(layer(means) for layer in self.between))


class Flare(_Mixer):
    """FLARE (Puri et al., arXiv 2508.12594): z = softmax(q Kᵀ) V of k learned latents, y = softmax(K qᵀ) z.

    Its keys and values come from deep layers there, from one linear layer here, as every rival's.
    """

    def __init__(self, width: int, heads: int, slots: int) -> None:
        super().__init__(width, heads)
        self.latents = nn.Parameter(0.5 * torch.randn(heads, slots, width // heads))
        self.key, self.value = _ByHead(width, heads), _ByHead(width, heads)

    def mix(self, x: Tensor) -> Tensor:
        """x (B, n, D) -> (B, h, n, d)."""
        return _gather_and_scatter(self.latents.expand(len(x), -1, -1, -1), self.key(x), self.value(x))


class FlarePlus(Flare):
    """FLARE++ (arXiv 2608.11519): q = q0 + g softmax(q1 K1ᵀ / sqrt(d)) K1, and all that is multiplied has a mean square
    of one, but for learned weights.
    """

    def __init__(self, width: int, heads: int, slots: int) -> None:
        super().__init__(width, heads, slots)
        size = width // heads
        self.seekers = nn.Parameter(0.5 * torch.randn(heads, slots, size))
        self.sought, self.gate = _ByHead(width, heads), nn.Parameter(torch.zeros(heads, 1, 1))
        self.weights = nn.Parameter(torch.ones(3, size))  # of q, K, and q1 with K1

    def mix(self, x: Tensor) -> Tensor:
        """x (B, n, D) -> (B, h, n, d)."""
        seekers, sought = (_unit(each, self.weights[2]) for each in (self.seekers, self.sought(x)))
        found = scaled_dot_product_attention(seekers.expand(len(x), -1, -1, -1), sought, sought)
        latents = _unit(self.latents + self.gate * found, self.weights[0])
        return _gather_and_scatter(latents, _unit(self.key(x), self.weights[1]), self.value(x))


def _unit(x: Tensor, weight: Tensor) -> Tensor:
    return rms_norm(x, x.shape[-1:], weight, 1e-6)


def _gather_and_scatter(latents: Tensor, key: Tensor, value: Tensor) -> Tensor:
    found = scaled_dot_product_attention(latents, key, value, scale=STEEP)
    return scaled_dot_product_attention(key, latents, found, scale=STEEP)


RIVALS: dict[str, Callable[[int, int, int], nn.Module]] = {  # of width, heads and slots
    "full attention": FullAttention,
    "induced points (Set Transformer)": InducedAttention,
    "slices (Transolver)": SliceAttention,
    "FLARE": Flare,
    "FLARE++": FlarePlus,
}
