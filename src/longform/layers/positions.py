"""Positions that an encoder owns and hands to the attention of its layers: rotary angles, and a bias by distance.

Axes: h heads, r the distance from which on all are one.
"""

from torch import Tensor, nn

from longform.functional.one_pass import constant
from longform.functional.positions.distances import distance_buckets
from longform.functional.positions.rotary import Rotation, rotation_at


class RotaryPositions(nn.Module):
    """The angles of tokens, by ``frequencies``: radians a token for each pair of features that turns.

    The encoder owns it and hands what it gives to the attention of its layers (``rotation``). ``scaling``: a factor of
    all rotated features (YaRN's attention factor). There is nothing to learn and nothing to save.
    """

    def __init__(self, frequencies: tuple[float, ...], *, scaling: float = 1.0) -> None:
        super().__init__()
        self.frequencies, self.scaling = frequencies, scaling

    def forward(self, positions: Tensor) -> Rotation:
        """Angles of ``positions`` long (n), (1, n) or (B, n), counted from 0."""
        return rotation_at(positions, self.frequencies, self.scaling)


class RelativeAttentionBias(nn.Embedding):
    """A bias for each of ``num_buckets`` buckets of distances and each of ``num_heads`` heads, as in MPNet and T5.

    Distances of ``max_distance`` tokens and more have one bucket on each side. The encoder owns it, and hands what it
    gives to the attention of its layers (``distance_bias``).
    """

    def __init__(self, num_buckets: int, num_heads: int, *, max_distance: int) -> None:
        super().__init__(num_buckets, num_heads)
        self.buckets = distance_buckets(num_buckets, max_distance)

    def forward(self) -> Tensor:  # ty: ignore[incompatible-method-override]  which distances is known
        """The bias of the distances -r to r: (h, 2 r + 1)."""
        return super().forward(constant(self.buckets, self.weight.device)).T
