"""The stack for vectors as one graph: text, causal text, grids; in inference and in training."""

import pytest
import torch

from longform import LinformerEncoder
from strategies import randomised
from tolerances import assert_close

KINDS = [
    ({}, (2, 33, 16)),
    pytest.param({"causal": True, "attention_window": 8}, (2, 33, 16), marks=pytest.mark.nightly),
    pytest.param({"tile": (2, 2), "attention_window": (4, 4)}, (2, 9, 7, 16), marks=pytest.mark.nightly),
    pytest.param({"tile": (2, 2), "num_prefix_tokens": 1, "grid": (4, 8)}, (2, 33, 16), marks=pytest.mark.nightly),
    pytest.param(
        {"max_length": 64, "projected_length": 8, "projection": "linear"}, (2, 33, 16), marks=pytest.mark.nightly
    ),
]


@pytest.mark.parametrize(("options", "shape"), KINDS, ids=str)
def test_one_graph(options, shape):
    torch._dynamo.reset()
    encoder = randomised(LinformerEncoder(16, 2, 4, **options))
    compiled = torch.compile(encoder, fullgraph=True, backend="aot_eager")
    hidden, mask, found = torch.randn(shape), torch.ones(shape[:-1]), []
    for module in (compiled, encoder):
        encoder.zero_grad()
        out = module(hidden)
        out.square().sum().backward()
        with torch.no_grad():
            found.append([out, module(hidden), module(hidden, mask), encoder.layers[0].attention.query.weight.grad])
    for one, other in zip(*found, strict=True):
        assert_close(one, other, scope="model")


@pytest.mark.parametrize("kind", ["weighted_mean", "mean", "max"])
def test_where_each_token_is_a_slot_it_is_full_attention(kind):
    """As for the 50 patches of an image with projected_length=64: nothing is shortened, and no scorer is made."""
    torch._dynamo.reset()
    encoder = randomised(LinformerEncoder(16, 2, 4, 50, projected_length=64, projection=kind))
    hidden, mask = torch.randn(2, 50, 16), torch.arange(50) < torch.tensor([[50], [31]])
    compiled = torch.compile(encoder, fullgraph=True, backend="aot_eager")
    for training in (True, False):
        out = compiled.train(training)(hidden, mask)
        assert_close(out, encoder.train(training)(hidden, mask), scope="model")
    out.square().sum().backward()
    assert all(parameter.grad is not None for parameter in encoder.parameters())
    exported = torch.export.export(encoder, (hidden,)).module()
    assert_close(exported(hidden), encoder(hidden), scope="model")
    weights = encoder(hidden, output_attentions=True).attentions[0]
    assert weights.shape == (2, 4, 50, 50)


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")  # torch's attention under vmap
@pytest.mark.parametrize("options", [{}, {"max_length": 64, "projected_length": 8, "projection": "linear"}], ids=str)
def test_a_graph_says_what_a_mask_cannot_hold(options):
    torch._dynamo.reset()
    encoder = randomised(LinformerEncoder(16, 2, 1, **options))
    compiled = torch.compile(encoder, fullgraph=True, backend="aot_eager")
    hidden, text = torch.randn(2, 33, 16), torch.arange(33) < torch.tensor([[33], [20]])
    added = torch.zeros(2, 33).masked_fill(~text, float("-inf"))
    expected = encoder(hidden, text)
    assert_close(compiled(hidden, text.float()), expected, scope="model")
    assert_close(compiled(hidden, key_padding_mask=added), expected, scope="model")
    with pytest.raises(RuntimeError, match="attention_mask holds a number that is neither 0 nor 1"):
        compiled(hidden, text.float() - 0.5)
    with pytest.raises(RuntimeError, match="key_padding_mask holds a number that is neither 0"):
        compiled(hidden, key_padding_mask=added.clamp(min=-1e4))
    with pytest.raises(RuntimeError, match="attention_mask holds a number that is neither 0 nor 1"):
        compiled(hidden, 2 * text.long())
    with pytest.raises(RuntimeError, match="key_padding_mask holds a number that is neither 0 nor 1"):
        compiled(hidden, key_padding_mask=2 * (~text).long())
    rows = torch.stack([hidden, 2 * hidden])
    for mask in (text, text.long(), text.float()):
        of_rows = torch.compile(torch.func.vmap(lambda x, seen=mask: encoder(x, seen)), backend="eager")
        assert_close(of_rows(rows), torch.stack([encoder(x, mask) for x in rows]), scope="model")
