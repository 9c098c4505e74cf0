"""The benchmark's peers run, and its comparison with copied weights notices a difference."""

import pytest
import torch

from longform_lab.speed import peers
from longform_lab.speed.checks import WrongOutput, verify
from longform_lab.speed.competitors import all_competitors
from longform_lab.speed.shapes import SIZES, Shape

SHAPE = Shape(SIZES["tiny"], 48, 16)


@pytest.mark.parametrize("name", ["lucidrains", "lucidrains-share-kv", "tatp22"])
def test_a_peer_is_verified_against_our_layer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    competitor = all_competitors()[name]
    verify(competitor, SHAPE)
    hidden = torch.randn(2, SHAPE.length, SHAPE.size.hidden)
    assert competitor.build(SHAPE).eval()(hidden).shape == hidden.shape
    copied = peers._copy_matrices
    monkeypatch.setattr(
        peers, "_copy_matrices", lambda projection, given: copied(projection, [m * 1.01 for m in given])
    )
    with pytest.raises(WrongOutput, match="Longform's layer"):
        verify(competitor, SHAPE)
