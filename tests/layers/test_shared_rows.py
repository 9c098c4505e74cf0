"""A dense projection whose rows were computed for some texts gives what it gives without."""

import pytest
import torch

from longform.layers.attention import LinformerAttention
from longform.layers.sequence_projection import make_projection
from strategies import generator, normal

KINDS = ("linear", "random", "convolution")


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_equals_the_projection_itself(kind, padded):
    torch.manual_seed(0)
    projection = make_projection(kind, heads=2, head_dim=5, max_length=13, slots=4, sharing="layerwise")
    layer = LinformerAttention(10, 2, max_length=13, projected_length=4, projection=kind, sharing="layerwise").eval()
    x, mask = normal(generator(1), 3, 11, 10, dtype=torch.float32), None
    if padded:
        mask = torch.arange(11) < torch.tensor([[11], [4], [7]])
    prepared = projection.for_texts(mask, 11)
    expected = layer(x, mask, shared_projection=projection)
    assert torch.equal(layer(x, mask, shared_projection=prepared), expected)
    # Texts that it was not made for.
    assert torch.equal(
        layer(x[:, :6], None, shared_projection=prepared), layer(x[:, :6], None, shared_projection=projection)
    )


def test_a_gradient_reaches_the_matrix():
    projection = make_projection("linear", heads=2, head_dim=5, max_length=13, slots=4, sharing="layerwise")
    assert projection.for_texts(None, 13) is projection
    with torch.no_grad():
        prepared = projection.for_texts(None, 13)
        assert prepared is not projection
        assert prepared.matrices()[0] is projection.matrices()[0]
