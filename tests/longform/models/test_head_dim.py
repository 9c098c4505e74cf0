"""Heads that together have fewer features than the hidden states, or more: every path gives one result."""

import copy
from pathlib import Path

import pytest
import torch
from model_kinds import model, text

import longform
from longform import LinformerConfig, LinformerModel
from longform.errors import ConfigurationError
from longform.layers.embeddings import RotaryPositions
from longform.layers.local_attention import LocalAttention
from longform.models.text_reader import make_attention, rotary_positions
from tolerances import assert_close

ROPES = {
    "default": {}, "linear": {"factor": 2.0}, "yarn": {"factor": 2.0},
    "llama3": {"factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32},
}  # fmt: skip
SIZES = {"hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
LONG = {"max_position_embeddings": 4_608, "projected_length": 36, "projection": "mean", "attention_window": 128}
LONG |= {"short_convolution": 0}


def test_the_default_is_an_even_part_of_the_hidden_size(tmp_path: Path) -> None:
    torch.manual_seed(0)
    default = model("mean-window")
    given = LinformerModel(LinformerConfig.from_dict(default.config.to_dict() | {"head_dim": 4})).eval()
    given.load_state_dict(default.state_dict())
    ids = text(2, 30)
    torch.testing.assert_close(given(**ids).last_hidden_state, default(**ids).last_hidden_state, rtol=0, atol=0)
    default.save_pretrained(tmp_path)
    assert '"head_dim": ' not in (tmp_path / "config.json").read_text().replace('"head_dim": null', "")
    assert default.config.head_dim is None
    assert default.config.head_size == 4


@pytest.mark.parametrize("head_dim", [16, 32])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.no_grad()
def test_long_texts_in_parts_packed_and_padded_give_what_a_gradient_is_taken_of(
    head_dim: int, dtype: torch.dtype
) -> None:
    """Native kernels of inference beside those of float64, in which layers have all tokens at once."""
    torch.manual_seed(1)
    made = LinformerModel(LinformerConfig(vocab_size=40, head_dim=head_dim, initializer_range=0.1, **SIZES, **LONG))
    made, ids = made.eval().to(dtype), text(2, 4_300)
    ids["attention_mask"][1, 300:] = 0
    whole = copy.deepcopy(made).double()
    whole.encoder.layers[0].attention_norm.register_forward_hook(lambda *_: None)  # hooked: not in parts
    expected = whole(**ids).last_hidden_state
    packed = longform.pack_weights(copy.deepcopy(made))
    alone = {name: x[1:, :300] for name, x in ids.items()}
    for found in (made, packed):
        out = found(**ids).last_hidden_state
        assert_close(out[0], expected[0], scope="model")
        assert_close(out[1, :300], expected[1, :300], scope="model")
        assert_close(found(**alone).last_hidden_state[0], expected[1, :300], scope="model")


def test_local_layers_have_it_too() -> None:
    config = LinformerConfig(
        **SIZES, head_dim=10, layer_types=["sliding_attention", "full_attention"], sliding_window=4, projection="mean"
    )
    local = make_attention(config, config.layer_options()[0], "sliding_attention")
    assert isinstance(local, LocalAttention)
    assert local.query.weight.shape == (40, 96)
    assert local(torch.randn(1, 7, 96)).shape == (1, 7, 96)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head_dim": 0}, "head_dim=0 must be at least 1, or None for hidden_size / num_attention_heads"),
        ({"num_attention_heads": 5}, "hidden_size=96 is not a multiple .* unless head_dim says how many"),
        ({"head_dim": 7, "rope_theta": 9.0}, "a head of 7 features .* gives 7 to turn"),
    ],
)
def test_what_cannot_be_is_said(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        LinformerConfig(**SIZES | options)
    assert LinformerConfig(**SIZES | {"num_attention_heads": 5, "head_dim": 7}).head_size == 7


@pytest.mark.parametrize("kind", ROPES)
@pytest.mark.parametrize("share", [None, 1.0, 0.5])
def test_rotary_positions_of_every_kind_turn_a_part_of_the_default_head(kind: str, share: float | None) -> None:
    def rotary(head_dim: int | None, factor: float | None) -> RotaryPositions:
        given = {"rope_type": kind, "rope_theta": 50.0, "partial_rotary_factor": factor, **ROPES[kind]}
        config = LinformerConfig(**SIZES, head_dim=head_dim, rope_parameters=given)
        assert config.head_dim == head_dim
        return rotary_positions(config, "full_attention")

    found, right = rotary(None, share), rotary(24, share or 1.0)
    assert (found.frequencies, found.scaling) == (right.frequencies, right.scaling)
    assert len(found.frequencies) == 24 * (share or 1.0) / 2


def test_null_for_older_names_of_rotary_positions_is_none() -> None:
    config = LinformerConfig(**SIZES, rope_scaling=None, rope_theta=None)  # as many a config.json has them
    assert config.rope_parameters is None
