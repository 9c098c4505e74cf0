"""The stack for vectors: options, masks, lengths, what a module of torch should survive."""

import copy
import pickle
import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from longform import LinformerAttention, LinformerEncoder, parameter_groups
from longform.errors import ConfigurationError, InputError
from longform.layers.options import Projection
from strategies import randomised
from tolerances import assert_close

OPTIONS = [
    {},
    {"projection": "linear", "max_length": 90, "projected_length": "auto"},
    {"projection": Projection("linear", "layerwise"), "max_length": 90, "projected_length": 16, "short_convolution": 0},
    {"positions": "sine"},
    {"positions": "rotary", "projection": "convolution", "tokens_per_slot": 3},
    {"positions": "learned", "max_length": 90, "projection": "max"},
    {"attention_window": 8, "norm": "rms_norm", "gated": True, "activation": "silu", "pre_norm": False},
    {"attention_window": 4, "selected_slots": 2, "positions": "rotary", "num_key_value_heads": 2},
    {"attention_window": 8, "selected_slots": 1, "max_length": 90, "projected_length": 45, "projection": "max"},
    {"num_key_value_heads": 1, "head_dim": 5, "activation": torch.relu, "final_norm": False},
    {"max_length": 90, "projected_length": 200, "bias": False},
]


def made(options, *, seed=0):
    torch.manual_seed(seed)
    return randomised(LinformerEncoder(16, 2, 4, **options), seed)


@pytest.mark.parametrize("options", OPTIONS)
def test_options_masks_and_outputs(options):
    encoder, hidden, mask = made(options), torch.randn(3, 33, 16), torch.ones(3, 33)
    mask[1, 20:], mask[2, 3:6] = 0, 0
    valid = mask.bool()
    out = encoder(hidden, mask)
    assert out.shape == hidden.shape
    assert_close(out[1, :20], encoder(hidden[1:2, :20])[0], scope="model")
    assert torch.equal(encoder(hidden, key_padding_mask=~valid), out)
    assert_close(encoder(torch.where(valid[..., None], hidden, torch.nan), mask)[valid], out[valid], scope="model")
    with torch.no_grad():
        assert_close(encoder(hidden, mask)[valid], out[valid], scope="model")
    more = encoder(hidden, mask, output_hidden_states=True, output_attentions=True)
    assert len(more.hidden_states) == 3
    assert len(more.attentions) == 2
    assert_close(more.last_hidden_state[valid], out[valid], scope="model")
    assert torch.equal(pickle.loads(pickle.dumps(copy.deepcopy(encoder)))(hidden, mask), out)


@pytest.mark.parametrize("options", OPTIONS)
def test_training_with_and_without_recomputation(options):
    hidden, gradients = torch.randn(2, 33, 16), []
    for recompute in (False, True):
        encoder = made(options | {"gradient_checkpointing": recompute}).train()
        encoder(hidden).square().sum().backward()
        gradients.append([parameter.grad for parameter in encoder.parameters()])
    for one, other in zip(*gradients, strict=True):
        assert (one is None) == (other is None)  # as that of the scores of runs of one token
        assert_close(one if one is not None else hidden, other if other is not None else hidden, scope="model")
    assert sum(len(group["params"]) for group in parameter_groups(encoder, lr=1e-3)) == len(gradients[0])


def test_the_stack_is_the_models():
    from longform import LinformerConfig, LinformerModel

    shape = {"projected_length": 8, "projection": "weighted_mean", "short_convolution": 5, "attention_window": 8}
    config = LinformerConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, max_position_embeddings=64,
        vocab_size=9, layer_norm_eps=1e-5, **shape,
    )  # fmt: skip
    model = LinformerModel(config).eval()
    stack = LinformerEncoder(16, 2, 4, 64, pre_norm=False, **shape).eval()
    stack.load_state_dict(model.encoder.state_dict())
    embeds = torch.randn(2, 50, 16)
    assert torch.equal(stack(model.embeddings(inputs_embeds=embeds)), model(inputs_embeds=embeds).last_hidden_state)


@pytest.mark.parametrize("kind", ["linear", "weighted_mean", "mean", "max", "convolution"])
def test_k_is_the_most_slots_there_are(kind):
    """k > n in the constructor, and shorter inputs, without a word; n tokens or fewer lose nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer = LinformerAttention(16, 4, max_length=50, projected_length=64, projection=kind)
        cut = LinformerAttention(16, 4, max_length=50, projected_length=50, projection=kind)
        cut.load_state_dict(layer.state_dict())
        for length in (50, 7, 1):
            hidden = torch.randn(2, length, 16)
            assert torch.equal(layer(hidden), cut(hidden))
    if kind in ("weighted_mean", "mean", "max"):
        full = nn.MultiheadAttention(16, 4, batch_first=True)
        parts = layer.query, layer.key, layer.value
        full.in_proj_weight.data = torch.cat([part.weight.data for part in parts])
        full.in_proj_bias.data = torch.cat([part.bias.data for part in parts])
        full.out_proj.load_state_dict(layer.output.state_dict())
        assert_close(layer(hidden), full(hidden, hidden, hidden)[0])


def test_lengths_by_ratio_and_auto():
    auto = {n: LinformerAttention(8, 2, max_length=n, projected_length="auto")._slots[0] for n in (40, 400, 4000)}
    assert auto == {40: 40, 400: 100, 4000: 256}
    ratio = LinformerAttention(8, 2, max_length=50, tokens_per_slot=4, projection="linear")
    assert ratio.groups[0].tensors()[0].shape == (1, 13, 50)
    endless = LinformerAttention(8, 2, tokens_per_slot=4, projection="mean")
    for length, slots in ((1, 1), (9, 3), (401, 101)):
        assert endless(torch.randn(1, length, 8), output_attentions=True)[1].shape == (1, 2, length, slots)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_and_scaler(dtype):
    encoder, hidden = LinformerEncoder(16, 2, 4, dropout=0.1), torch.randn(2, 33, 16)
    optimizer, scaler = torch.optim.SGD(encoder.parameters(), lr=0.1), torch.amp.GradScaler("cpu")
    with torch.autocast("cpu", dtype):
        loss = encoder(hidden).float().square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert all(parameter.isfinite().all() for parameter in encoder.parameters())


def test_meta_device_dtype_and_pruning():
    made = LinformerEncoder(16, 1, 4, device="meta", dtype=torch.bfloat16)
    assert all(x.is_meta and x.dtype == torch.bfloat16 for x in made.parameters())
    encoder = LinformerEncoder(16, 1, 4, dtype=torch.float64)
    assert encoder(torch.randn(1, 9, 16).double()).dtype == torch.float64
    prune.l1_unstructured(encoder.layers[0].attention.key, "weight", 0.5)
    encoder(torch.randn(1, 9, 16).double()).sum().backward()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"projection": "conv"}, "projection='conv' is not known"),
        ({"projection": "linear"}, "max_length=None needs tokens_per_slot=, .* not 'linear'"),
        ({"projection": "linear", "tokens_per_slot": 4}, "max_length=None needs"),
        ({"tokens_per_slot": 0}, "tokens_per_slot=0 must be at least 1"),
        ({"max_length": 0}, "max_length=0 must be at least 1"),
        ({"max_length": 8, "projected_length": "all"}, "must be a number of slots, or 'auto'"),
        ({"positions": "learned"}, "needs max_length"),
        ({"positions": "none"}, "positions='none' is not known"),
        ({"activation": "tanh"}, "activation='tanh' is not known"),
        ({"tokens_per_slot": 4, "attention_window": 6}, "divide attention_window=6"),
    ],
    ids=str,
)
def test_options_that_do_not_go_together(options, said):
    with pytest.raises(ConfigurationError, match=said):
        LinformerEncoder(16, 1, 4, **options)


def test_inputs_that_do_not_fit():
    encoder, hidden = LinformerEncoder(16, 1, 4, 20, positions="learned"), torch.zeros(2, 9, 16)
    for given, said in [
        ((torch.zeros(16),), r"hidden_states has shape \(16,\), expected \(batch, tokens, hidden_size\)"),
        ((torch.zeros(2, 9, 15),), r"expected \(batch, tokens, hidden_size\) = \(B, n, 16\)"),
        ((torch.zeros(2, 3, 3, 16),), "needs a layer with tile="),
        ((torch.zeros(2, 21, 16),), "n=21 tokens, this encoder takes at most max_length=20"),
        ((hidden, torch.ones(2, 8)), r"attention_mask has shape \(2, 8\)"),
        ((hidden, torch.full((2, 9), 0.5)), "it takes 1 for text and 0 for padding"),
    ]:
        with pytest.raises(InputError, match=said):
            encoder(*given)
    with pytest.raises(InputError, match="not both"):
        encoder(hidden, torch.ones(2, 9), key_padding_mask=torch.zeros(2, 9))
    layer = LinformerAttention(16, 4, max_length=20, context_size=5)
    for shape in ((9, 16), (1, 3, 3, 16), (16,), (2, 9, 15)):  # the stack takes one text (n, D), the layer none
        with pytest.raises(InputError, match=r"expected \(batch, tokens, hidden_size\) = \(B, n, 16\)"):
            layer(torch.zeros(shape))
    with pytest.raises(InputError, match=r"context has shape .*context_size"):
        layer(hidden, context=hidden)
    with pytest.raises(InputError, match="other batches"):
        layer(hidden, context=torch.zeros(3, 9, 5))
    with pytest.raises(InputError, match="n=21 tokens"):
        layer(hidden, context=torch.zeros(2, 21, 5))


@torch.no_grad()
def test_a_context_of_another_length_and_width_with_a_mask_of_its_own():
    layer = randomised(LinformerAttention(16, 4, max_length=40, projected_length=8, context_size=5, projection="mean"))
    query, context, mask = torch.randn(2, 70, 16), torch.randn(2, 30, 5), torch.ones(2, 30, dtype=torch.long)
    mask[1, 11:] = 0
    out, weights = layer(query, context=context, context_mask=mask, output_attentions=True)
    assert weights.shape[:3] == (2, 4, 70)
    assert_close(out[1], layer(query[1:], context=context[1:, :11])[0])
