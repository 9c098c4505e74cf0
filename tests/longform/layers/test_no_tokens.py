"""No tokens, or no texts, give no states of the same shape, for every kind; a context of no tokens gives nothing."""

import pytest
import torch
from torch import nn

from longform import LinformerAttention, LinformerEncoder, LinformerEncoderLayer, LinformerMultiheadAttention
from longform.choices import POOLED, PROJECTIONS
from strategies import randomised
from tolerances import assert_close

SIZES = {"max_length": 32, "projected_length": 8}
KINDS = [
    *({"projection": p, "short_convolution": taps} | SIZES for p in PROJECTIONS for taps in (0, 3)),
    *({"projection": p, "attention_window": 8} | SIZES for p in POOLED),
    {"projection": "mean", "attention_window": 16} | SIZES,
    *({"projection": p, "causal": True, "attention_window": 8} | SIZES for p in POOLED),
    {"projection": "mean", "num_prefix_tokens": 2} | SIZES,
    {"tokens_per_slot": 4, "projection": "weighted_mean"},
]
SHAPES = [(2, 0, 16), (0, 5, 16), (0, 0, 16)]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("gradient", [False, True])
def test_empty_inputs_have_empty_outputs(kind, shape, gradient):
    x = torch.randn(shape)
    stack = nn.TransformerEncoder(
        LinformerEncoderLayer(16, 4, 32, batch_first=True, **kind), 2, enable_nested_tensor=False
    )
    heads = LinformerMultiheadAttention(16, 4, **kind)
    with torch.set_grad_enabled(gradient):
        for module in (LinformerAttention(16, 4, **kind), LinformerEncoder(16, 2, 4, **kind), stack):
            outs = [module.eval()(x)]
            if module is not stack:
                outs += [module(x, torch.ones(shape[:2])), module(x, output_attentions=True)[0]]
            for out in outs:
                assert out.shape == shape
            if gradient:
                sum(out.sum() for out in outs).backward()
                assert all(p.grad is None or p.grad.isfinite().all() for p in module.parameters())
        for given in (x.transpose(0, 1), x[0] if shape[0] else x.transpose(0, 1)):
            assert heads(given, given, given)[0].shape == given.shape


@pytest.mark.parametrize("positions", [None, "learned", "sine", "rotary"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_of_encoders_with_positions(positions, shape):
    encoder = LinformerEncoder(16, 1, 4, positions=positions, projection="mean", **SIZES)
    assert encoder(torch.randn(shape)).shape == shape


@pytest.mark.parametrize("shape", [(2, 0, 4, 16), (2, 4, 0, 16), (0, 4, 4, 16)], ids=str)
@pytest.mark.parametrize("window", [None, (4, 4)])
def test_grids(shape, window):
    encoder = LinformerEncoder(16, 1, 4, tile=(2, 2), attention_window=window)
    assert encoder(torch.randn(shape), torch.ones(shape[:3])).shape == shape
    prefixed = LinformerEncoder(16, 1, 4, tile=(2, 2), attention_window=window, num_prefix_tokens=3)
    assert prefixed(torch.randn(2, 3, 16), grid=(0, 4)).shape == (2, 3, 16)


@torch.no_grad()
def test_an_empty_piece_changes_no_cache():
    encoder = randomised(LinformerEncoder(16, 2, 4, causal=True, attention_window=8))
    x, cache = torch.randn(2, 20, 16), encoder.new_cache()
    parts = [encoder(piece, cache=cache) for piece in x.split([0, 7, 0, 13, 0], dim=1)]
    assert_close(torch.cat(parts, dim=1), encoder(x), scope="model")


@pytest.mark.parametrize("kind", [{"projection": p} | SIZES for p in PROJECTIONS], ids=str)
def test_a_context_of_no_tokens(kind):
    """Gives what torch's attention to no keys gives: the output's bias."""
    query, none = torch.randn(2, 5, 16), torch.randn(2, 0, 16)
    heads, layer = (randomised(made(16, 4, **kind)) for made in (LinformerMultiheadAttention, LinformerAttention))
    query = query.transpose(0, 1)
    out, weights = heads(query, none.transpose(0, 1), none.transpose(0, 1))
    assert_close(out, heads.out_proj.bias.expand_as(out))
    assert weights.shape == (2, 5, 0)
    assert_close(layer(query, context=query[:, :0]), layer.output.bias.expand_as(query))
