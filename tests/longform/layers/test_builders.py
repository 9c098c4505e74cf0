"""What people who build networks ask of the stack: torch's calls, other packages' options, recipes of the guide."""

import copy

import pytest
import torch
from linformer import Linformer
from torch import Tensor, nn

import longform
from longform import (
    LinformerAttention,
    LinformerEncoder,
    LinformerEncoderLayer,
    LinformerMultiheadAttention,
    Projection,
    effective_attention,
    load_linformer,
    parameter_groups,
)
from longform.errors import ConfigurationError, InputError
from longform.layers.local_attention import LocalAttention
from strategies import randomised
from tolerances import assert_close

BY_PLACE = ("by_place", "content_and_place")


def encoder(*given, **options) -> LinformerEncoder:
    return randomised(LinformerEncoder(16, 2, 4, *given, **options)).eval()


@pytest.mark.parametrize("causal", [False, True])
def test_the_call_of_nn_transformer_encoder(causal):
    stack = encoder(causal=causal)
    x, text = torch.randn(2, 40, 16), torch.arange(40) < torch.tensor([[40], [29]])
    mask = nn.Transformer.generate_square_subsequent_mask(40) if causal else None
    out = stack(x, mask=mask, src_key_padding_mask=~text, is_causal=causal)
    assert_close(out[text], stack(x, text)[text])


@pytest.mark.parametrize("more", [{"mask": torch.zeros(40, 40)}, {"is_causal": True}], ids=["mask", "is_causal"])
def test_a_mask_of_pairs_is_refused_by_name_with_the_way_out(more):
    with pytest.raises(InputError, match=r"causal=True and attention_window= .*src_key_padding_mask.*full attention"):
        encoder()(torch.randn(2, 40, 16), **more)


def test_one_text_and_sequence_first():
    stack, x = encoder(positions="sine"), torch.randn(2, 40, 16)
    text = torch.arange(40) < torch.tensor([[40], [29]])
    out = stack(x, text, output_hidden_states=True, output_attentions=True)
    one = stack(x[1], text[1], output_hidden_states=True, output_attentions=True)
    assert_close(one.last_hidden_state[:29], out.last_hidden_state[1, :29])
    assert [y.shape for y in one.hidden_states] == [(40, 16)] * 3
    assert one.attentions[0].shape == out.attentions[0][1].shape
    first = LinformerEncoder(16, 2, 4, positions="sine", batch_first=False).eval()
    first.load_state_dict(stack.state_dict())
    assert_close(first(x.transpose(0, 1), src_key_padding_mask=~text).transpose(0, 1)[text], out[0][text])


def test_channels_first_is_told():
    with pytest.raises(InputError, match=r"channels stand last here: x\.movedim\(1, -1\)"):
        encoder()(torch.randn(2, 16, 40))


GUESSES = {
    "d_model": "hidden_size", "nhead": "num_heads", "dim": "hidden_size", "depth": "num_layers", "heads": "num_heads",
    "k": "projected_length", "seq_len": "max_length", "dim_feedforward": "intermediate_size",
    "norm_first": "pre_norm", "one_kv_head": "num_key_value_heads", "dropuot": "dropout", "reversible": "checkpoint",
}  # fmt: skip


@pytest.mark.parametrize(("name", "here"), GUESSES.items())
def test_a_guessed_name_ends_in_a_hint(name, here):
    with pytest.raises(ConfigurationError, match=rf"^LinformerEncoder has no option '{name}'.*{here}"):
        LinformerEncoder(**{name: 1})


@pytest.mark.parametrize(
    "made", [LinformerEncoder, LinformerAttention, LinformerMultiheadAttention, LinformerEncoderLayer]
)
def test_a_wrong_option_is_refused_in_the_name_of_the_class(made):
    with pytest.raises(ConfigurationError, match=rf'^{made.__name__} has no option \'tokens_per_slto\'.*"tokens_per_s'):
        made(16, 4, tokens_per_slto=2)


def test_names_of_other_packages():
    for name, here in (("Linformer", "LinformerEncoder"), ("LinformerSelfAttention", "LinformerAttention")):
        with pytest.raises(AttributeError, match=here):
            getattr(longform, name)
    for given in ("conv", None):
        with pytest.raises(ConfigurationError, match=f"projection={given!r} is not known; choose one of 'linear'"):
            LinformerEncoder(16, 2, 4, projection=given)


@torch.no_grad()
def test_values_that_are_keys_have_no_layer_and_lucidrains_outputs():
    theirs = randomised(Linformer(16, 50, 2, k=12, heads=4, share_kv=True))
    ours, x = load_linformer(theirs, package="lucidrains").eval(), torch.randn(2, 50, 16)
    assert_close(ours(x), theirs(x), scope="model")
    for layer in ours.layers:
        assert layer.attention.value is layer.attention.key
    fewer = sum(p.numel() for p in LinformerEncoder(16, 2, 4, share_kv=True).parameters())
    assert sum(p.numel() for p in LinformerEncoder(16, 2, 4).parameters()) - fewer == 2 * (16 * 16 + 16)


SHARED_KV = [
    {"projection": Projection("linear", "key_value"), "max_length": 40, "projected_length": 8},
    {"num_key_value_heads": 2, "projection": Projection("linear", "key_value"), "max_length": 40},
    {}, {"projection": "mean"}, {"attention_window": 8},
]  # fmt: skip


@pytest.mark.parametrize("options", SHARED_KV, ids=str)
def test_values_that_are_keys_are_two_layers_of_equal_weights(options):
    shares = randomised(LinformerAttention(16, 4, share_kv=True, **options))
    other = LinformerAttention(16, 4, **options)
    other.load_state_dict(shares.state_dict())
    x = torch.randn(2, 40, 16)
    assert_close(shares(x), other(x))
    twin = copy.deepcopy(shares)
    assert twin.value is twin.key
    with pytest.raises(ConfigurationError, match="use LinformerAttention"):
        LinformerMultiheadAttention(16, 4, share_kv=True)


@pytest.mark.parametrize(
    "options", [{}, {"projection": Projection("linear", "layerwise"), "max_length": 70, "projected_length": 9}], ids=str
)
def test_every_layer_attends_to_the_context(options):
    stack = encoder(context_size=6, **options)
    x, y, text = torch.randn(2, 9, 16), torch.randn(2, 70, 6), torch.arange(70) < torch.tensor([[70], [31]])
    expected = x
    for layer in stack.layers:
        shared = longform.layers.self_attention.Shared(stack.shared_projection)
        normed = layer.attention_norm(expected)
        attended = layer.attention(normed, context=y, context_mask=text, shared=shared)
        expected = layer.after_attention(attended, expected)
    with torch.no_grad():
        found = stack(x, context=y, context_mask=text)
        y[1, 31:] = float("nan")
        assert_close(stack(x, context=y, context_mask=text), found)
    assert_close(found, stack.final_norm(expected))
    with pytest.raises(ConfigurationError, match="without positions='rotary'"):
        encoder(positions="rotary")(x, context=torch.randn(2, 9, 16))


class Conditioned(nn.Module):
    """adaLN: a norm whose scale and shift come from a condition (B, C), and are none at first."""

    def __init__(self, norm: nn.Module, width: int, condition: list[Tensor]) -> None:
        super().__init__()
        self.norm, self.condition = norm, condition
        self.made = nn.Linear(condition[0].shape[1], 2 * width)
        nn.init.zeros_(self.made.weight)
        nn.init.zeros_(self.made.bias)

    def forward(self, x: Tensor) -> Tensor:
        scale, shift = self.made(self.condition[0])[:, None].chunk(2, dim=-1)
        return self.norm(x) * (1 + scale) + shift


def test_norms_that_know_a_condition():
    stack, x, condition = encoder(), torch.randn(2, 40, 16), [torch.randn(2, 5)]
    expected = stack(x)
    for block in stack.layers:
        block.attention_norm = Conditioned(block.attention_norm, 16, condition)
        block.feed_forward_norm = Conditioned(block.feed_forward_norm, 16, condition)
    assert_close(stack(x), expected)
    nn.init.normal_(stack.layers[1].feed_forward_norm.made.weight)
    out = stack(x)
    with torch.no_grad():
        assert_close(stack.eval()(x), out)
    condition[0] = condition[0].flip(0)
    assert_close(stack(x.flip(0)), out.flip(0))


class Scale(nn.Module):
    """Layer scale: a number a feature."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((width,), 1e-5))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


class DropPath(nn.Module):
    """A branch is left out of some texts."""

    def forward(self, x: Tensor) -> Tensor:
        return x * (torch.rand(len(x), 1, 1) > 0.5) * 2 if self.training else x


def test_layer_scale_and_drop_path():
    stack, x = encoder(final_norm=False), torch.randn(2, 40, 16)
    for block in stack.layers:
        for part in (block.attention, block.feed_forward):
            part.output = nn.Sequential(part.output, Scale(16))
    assert_close(stack(x), x, scope="model")
    with torch.no_grad():
        assert_close(stack(x), x, scope="model")
    stack = encoder(final_norm=False)
    expected = stack(x)
    for block in stack.layers:
        block.dropout = DropPath().eval()
    assert_close(stack(x), expected)
    torch.manual_seed(2)
    rows = {tuple(out.flatten().tolist()) for out in stack.train()(x[:1].expand(64, -1, -1))}
    assert 2 < len(rows) <= 16


@pytest.mark.parametrize("window", [None, (4, 4)])
def test_rotary_positions_on_a_grid(window):
    """Along the rows; tiles of one row and a window over it all are the text that the rows make."""
    grid = encoder(positions="rotary", tile=(1, 2), attention_window=window, short_convolution=0)
    x = torch.randn(2, 3, 8, 16)
    out = grid(x)
    if window is None:
        text = encoder(positions="rotary", tokens_per_slot=2, short_convolution=0)
        text.load_state_dict(grid.state_dict())
        assert_close(out.flatten(1, 2), text(x.flatten(1, 2)))
    prefixed = encoder(positions="rotary", tile=(1, 2), num_prefix_tokens=1)
    assert prefixed(torch.randn(2, 25, 16), grid=(3, 8)).shape == (2, 25, 16)
    assert (grid(x.flip(2)).flip(2) - out).abs().max() > 1e-3


def test_neighbours_only_and_tokens_of_memory():
    stack, x = encoder(), torch.randn(1, 40, 16)
    for block in stack.layers:
        block.attention = LocalAttention(16, 4, max_length=40, reach=3).eval()
    moved = x.clone()
    moved[:, 20] = torch.randn(16)
    changed = (stack(moved) - stack(x)).abs().amax(dim=-1)[0] > 0
    assert changed.nonzero()[[0, -1], 0].tolist() == [14, 26]  # two layers, three tokens each
    memory, stack = torch.randn(3, 16), encoder(num_prefix_tokens=3)
    out = stack(torch.cat([memory.expand(len(x), -1, -1), x], dim=1))[:, 3:]
    assert out.shape == x.shape


@pytest.mark.parametrize("kind", BY_PLACE)
def test_slots_by_place(kind):
    """Padding, shorter texts, the map, and E at the network's rate."""
    stack = encoder(50, projected_length=8, projection=kind)
    x, text = torch.randn(2, 37, 16), torch.arange(37) < torch.tensor([[37], [20]])
    out, dirty = stack(x, text), x.clone()
    dirty[1, 20:] = float("nan")
    assert_close(stack(dirty, text)[text], out[text])
    assert_close(stack(x[1:, :20])[0], out[1, :20], scope="model")
    layer = stack.layers[0].attention
    hidden = layer.convolve(*layer.prepare(x, text))
    values = layer.keys_and_values(hidden, text)[1]
    found = effective_attention(layer, x, text).map @ values
    assert_close(layer.output(found.transpose(1, 2).flatten(2))[text], layer(x, text)[text])
    assert {group["lr"] for group in parameter_groups(stack, lr=0.5)} == {0.5}
    lengths = {1: torch.export.Dim("n", min=2, max=50)}
    exported = torch.export.export(stack, (x,), dynamic_shapes=(lengths,)).module()
    assert_close(exported(x[:, :30]), stack(x[:, :30]), scope="model")
    out.square().mean().backward()
    assert all(parameter.grad is not None for parameter in stack.parameters())


def test_content_and_place_begins_as_content():
    stack = LinformerEncoder(16, 2, 4, 48, projected_length=12, projection="content_and_place")
    plain = LinformerEncoder(16, 2, 4, 48, projected_length=12)
    names = {name.replace(".content.", "."): value for name, value in stack.state_dict().items()}
    plain.load_state_dict({name: names[name] for name in plain.state_dict()})
    x = torch.randn(2, 48, 16)
    assert_close(stack(x), plain(x))
    for wrong in ({"attention_window": 8}, {"tile": (2, 2)}, {"num_prefix_tokens": 1}, {"max_length": None}):
        with pytest.raises(ConfigurationError, match="content_and_place"):
            LinformerEncoder(16, 2, 4, **{"max_length": 48, "projection": "content_and_place"} | wrong)
