"""Rough edges that a reading of 44 public programs found, and what is there instead."""

import warnings

import pytest
import torch
from model_kinds import model
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.utils._pytree import tree_map

from longform import LinformerAttention, LinformerEncoder, LinformerModel, Projection
from longform.choices import PROJECTION_KINDS
from longform.errors import ConfigurationError
from longform.functional import attention
from longform.layers.sequence_projection import CLASSES, RunProjection, make_projection
from strategies import randomised
from tolerances import assert_close

KINDS = ["linear", "weighted_mean", "mean"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("masked", [False, True])
def test_export_with_a_dynamic_length(kind, masked):
    """With a learned E and without a mask too; at n = max and below."""
    encoder = randomised(LinformerEncoder(16, 1, 4, 64, projected_length=8, projection=kind))
    length, given = torch.export.Dim("length", min=2, max=64), (torch.randn(2, 33, 16), torch.ones(2, 33))
    given = given if masked else given[:1]
    shapes = tree_map(lambda x: {1: length}, given)
    with torch.no_grad():
        program = torch.export.export(encoder, given, dynamic_shapes=(*shapes, None)[: len(given)], strict=False)
        for n in (64, 33, 5):
            again = (torch.randn(2, n, 16), torch.ones(2, n))[: len(given)]
            assert_close(program.module()(*again), encoder(*again), scope="model")


def test_dynamic_quantisation_finds_the_layers():
    """Which torch looks up by their exact type."""
    encoder, hidden = randomised(LinformerEncoder(32, 1, 4)), torch.randn(1, 20, 32)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, of quantize_dynamic itself
        small = torch.ao.quantization.quantize_dynamic(encoder, {nn.Linear}, dtype=torch.qint8)
        kept = [name for name, part in small.named_modules() if type(part) is nn.Linear]
        assert not [name for name in kept if "scores" not in name]
        assert (small(hidden) - encoder(hidden)).abs().max() < 0.5


@pytest.mark.parametrize(
    "options",
    [
        {"projected_length": 0}, {"hidden_size": 10}, {"attention_window": 5, "projection": "mean"}, {"max_length": 0},
        {"attention_window": 4, "projection": "linear"}, {"head_dim": 0}, {"num_key_value_heads": 3},
        {"projected_length": [1, 2]},
    ],
    ids=str,
)  # fmt: skip
def test_messages_have_the_arguments_of_the_layer(options):
    """And none of a configuration's or of the command line's."""
    given = {"hidden_size": 16, "num_heads": 4, "max_length": 16, "projected_length": 4} | options
    with pytest.raises(ConfigurationError) as refused:
        LinformerAttention(**given)
    for other in ("max_position_embeddings", "num_attention_heads", "num_hidden_layers", "--", "projection_"):
        assert other not in str(refused.value)


@pytest.mark.parametrize("dtype", [torch.bool, torch.long, torch.float32])
def test_masks_of_any_dtype_under_vmap(dtype):
    """A gradient of each text, under its own mask."""
    layer, hidden = randomised(LinformerAttention(16, 4, max_length=16, projected_length=4)), torch.randn(3, 16, 16)
    mask = (torch.arange(16) < torch.tensor([16, 9, 4])[:, None]).to(dtype)
    weights = {name: weight.detach() for name, weight in layer.named_parameters()}

    def loss(given, text, valid):
        return functional_call(layer, given, (text[None], valid[None])).square().sum()

    found = vmap(grad(loss), in_dims=(None, 0, 0))(weights, hidden, mask)
    for i in range(3):
        one = grad(loss)(weights, hidden[i], mask[i])
        for name, x in one.items():
            assert_close(found[name][i], x, scope="model")


def test_positions_that_were_taken_out_stay_out(tmp_path):
    """A new random table in their place would be another model."""
    made = model("mean-window", LinformerModel)
    made.embeddings.position_embeddings = None
    made.save_pretrained(tmp_path)
    again, ids = LinformerModel.from_pretrained(tmp_path), torch.ones(1, 9, dtype=torch.long)
    assert again.embeddings.position_embeddings is None
    assert torch.equal(again.eval()(ids).last_hidden_state, made.eval()(ids).last_hidden_state)


@pytest.mark.parametrize("options", [{}, {"projection": "mean"}, {"projection": Projection("mean", sink_tokens=2)}])
@pytest.mark.parametrize("padded", [False, True])
def test_fused_attention_gets_a_mask_only_where_something_is_padded(monkeypatch, options, padded):
    """FlashAttention takes none. (A linear E has one for texts below its length too: some rows may have no weight.)"""
    masks = []

    def attend(query, key, value, *, attn_mask, dropout_p):
        masks.append(attn_mask)
        return query

    monkeypatch.setattr(attention, "scaled_dot_product_attention", attend)
    made = LinformerAttention(32, 2, max_length=60, projected_length=15, **options)
    mask = torch.arange(60) < torch.tensor([[60], [30]])
    made(torch.randn(2, 60, 32), mask if padded else None)
    assert [mask is not None for mask in masks] == [padded]


def test_every_kind_of_projection_has_a_class():
    named = [kind for each in CLASSES for kind in each.kinds]
    assert sorted(named) == sorted(PROJECTION_KINDS)
    for kind, facts in PROJECTION_KINDS.items():
        made = make_projection(kind, hidden_size=8, heads=2, head_dim=4, max_length=16, slots=4)
        assert isinstance(made, RunProjection) == facts.covers_runs
        assert bool([name for name, _ in made.named_parameters() if "_projection" in name]) == (
            facts.has_matrices and kind != "random"
        )
