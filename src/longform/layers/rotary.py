"""Rotary positions of an encoder, which its layers' attention turns queries and keys by."""

from torch import Tensor, nn

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
