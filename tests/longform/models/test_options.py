"""Attention's options: one name and one default at every door, and saved files that mean what they meant."""

import inspect
import json
from dataclasses import fields, replace

import pytest
import torch

import longform
from longform import LinformerConfig, LinformerModel
from longform.errors import ConfigurationError
from longform.layers.options import OF_PROJECTION, OPTIONS, OTHER_NAMES, AttentionOptions, Projection

DOORS = {
    "LinformerAttention": longform.LinformerAttention.__init__,
    "LinformerEncoder": longform.LinformerEncoder.__init__,
    "LinformerEncoderLayer": longform.LinformerEncoderLayer.__init__,
    "LinformerMultiheadAttention": longform.LinformerMultiheadAttention.__init__,
    "LinformerConfig": LinformerConfig,
    "convert": longform.convert,
}
DEFAULTS = {
    "projection": "weighted_mean",
    "projected_length": None,
    "tokens_per_slot": None,
    "projection_sharing": "headwise",
    "projection_init": "block_mean",
    "freeze_projection": False,
    "attention_window": None,
    "selected_slots": 0,
    "memory_budget": None,
    "sink_tokens": 0,
    "short_convolution": None,
}
OTHERWISE = {  # where a door differs, its line says why
    ("LinformerMultiheadAttention", "short_convolution"): 0,  # keys may be another text's
    ("convert", "short_convolution"): 0,  # a copied encoder has no taps
    ("convert", "sink_tokens"): 1,  # it sends much of its attention to its first token
    **{("convert", name): "auto" for name in ("projected_length", "attention_window", "selected_slots")},
    ("convert", "memory_budget"): "auto",  # of the source's length, as the others are
}
SIZES = {"vocab_size": 40, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12}


def test_the_table_has_every_option():
    assert tuple(DEFAULTS) == OPTIONS
    assert {name: getattr(AttentionOptions(), name) for name in OPTIONS} == DEFAULTS


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("door", DOORS)
def test_one_name_and_one_default(door, name):
    assert inspect.signature(DOORS[door]).parameters[name].default == OTHERWISE.get((door, name), DEFAULTS[name])


def test_a_projection_has_the_same_defaults():
    own = {each.name: each.default for each in fields(Projection)}
    assert {name: own[inner] for name, inner in OF_PROJECTION.items()} == {
        name: DEFAULTS[name] for name in OF_PROJECTION
    }
    assert own["kind"] == DEFAULTS["projection"]


def test_all_doors_make_the_same_attention_of_nothing_said():
    config = LinformerConfig(**SIZES, max_position_embeddings=64)
    layers = [
        LinformerModel(config).encoder.layers[0].attention,
        longform.LinformerEncoder(8, 1, 2, 64).layers[0].attention,
        longform.LinformerAttention(8, 2, max_length=64),
        longform.LinformerEncoderLayer(8, 2, max_length=64).self_attn,
        longform.LinformerMultiheadAttention(8, 2, max_length=64, short_convolution=None),
    ]
    for layer in layers:
        [projection] = layer.groups
        assert (type(projection).__name__, projection.slots, projection.sizes) == ("WeightedMeanProjection", 16, (4,))
        assert layer.convolution.weight.shape == (5, 8)
        assert (layer.window, layer.sinks, layer.selected_slots, layer.memory_budget) == (None, 0, 0, None)


@pytest.mark.parametrize("projection", ["linear", Projection("linear", rescale=False)])
def test_a_keyword_and_a_projection_say_the_same(projection):
    said = {"projection_sharing": "key_value", "projection_init": "normal", "freeze_projection": True}
    options = AttentionOptions(projection=projection, sink_tokens=2, memory_budget=5.0, **said)
    inside = replace(Projection.of(projection), sharing="key_value", init="normal", frozen=True)
    assert options.of_projection == replace(inside, sink_tokens=2, memory_budget=5.0)
    assert AttentionOptions(projection=options.of_projection).of_projection == options.of_projection


@pytest.mark.parametrize(("other", "name"), OTHER_NAMES.items())
def test_other_names_are_taken(other, name):
    value = {"projection_sharing": "key_value", "sink_tokens": 2}[name]
    options = {"max_length": 64, "projected_length": 8, "projection": "linear"}
    found, expected = (
        [tuple(x.shape) for x in longform.LinformerAttention(8, 2, **options, **given).parameters()]
        for given in ({other: value}, {name: value})
    )
    assert found == expected
    config = LinformerConfig(**SIZES, projection="linear", **{other: value})
    assert getattr(config, name) == getattr(config, other) == config.to_dict()[name] == value
    assert other not in config.to_dict()
    with pytest.raises(ConfigurationError, match=f"'{other}' is another name of '{name}': give one of them"):
        longform.LinformerAttention(8, 2, **options, **{other: value, name: value})
    with pytest.raises(ConfigurationError, match=f"'{other}' is another name of '{name}'"):
        longform.convert("bundled", **{other: value, name: value})


def test_unknown_options_of_a_conversion_are_named():
    with pytest.raises(ConfigurationError, match=r"convert has no option 'num_slots'; it is called 'projected_length'"):
        longform.convert("bundled", num_slots=3)


BEFORE = {  # as saved before tokens_per_slot, under the default "linear"
    "architectures": ["LinformerModel"], "model_type": "linformer", **SIZES, "max_position_embeddings": 256,
    "projected_length": 128, "projection": "linear", "projection_init": "block_mean", "projection_sharing": "headwise",
    "freeze_projection": False, "memory_budget": None, "selected_slots": 0, "sink_tokens": 0, "short_convolution": 0,
    "attention_window": None, "num_key_value_heads": 2, "causal": False,
}  # fmt: skip
OMITTED = ["projection", "projected_length", "projection_init", "projection_sharing", "freeze_projection"]
OMITTED += ["memory_budget", "selected_slots", "sink_tokens", "short_convolution", "attention_window"]


def from_json_file(folder):
    return LinformerConfig.from_json_file(folder / "config.json")


@pytest.mark.parametrize("left_out", [[], ["short_convolution", "selected_slots"], OMITTED], ids=len)
@pytest.mark.parametrize("read", [LinformerConfig.from_pretrained, from_json_file], ids=["folder", "file"])
def test_saved_files_mean_what_they_meant(left_out, read, tmp_path):
    held = {name: value for name, value in BEFORE.items() if name not in left_out}
    (tmp_path / "config.json").write_text(json.dumps(held))
    config = read(tmp_path)
    assert (config.projection, config.projected_length, config.tokens_per_slot) == ("linear", 128, None)
    assert (config.short_convolution, config.selected_slots, config.attention_window) == (0, 0, None)
    layer = LinformerModel(config).encoder.layers[0].attention
    assert layer.convolution is None
    assert [tuple(x.shape) for x in layer.groups[0].parameters()] == [(1, 128, 256)] * 2


def test_saved_means_without_a_word_of_taps_have_none(tmp_path):
    """All files before taps; what a file of now says nothing of is said when it is saved."""
    held = BEFORE | {"projection": "mean", "projected_length": 16, "attention_window": 32}
    del held["short_convolution"]
    (tmp_path / "config.json").write_text(json.dumps(held))
    config = LinformerConfig.from_pretrained(tmp_path)
    assert LinformerModel(config).encoder.layers[0].attention.convolution is None
    torch.manual_seed(0)
    made = LinformerModel(LinformerConfig(**SIZES, max_position_embeddings=64)).eval()
    made.save_pretrained(tmp_path / "new")
    held = json.loads((tmp_path / "new" / "config.json").read_text())
    assert (held["projection"], held["tokens_per_slot"], held["short_convolution"]) == ("weighted_mean", 4, 5)
    again, ids = LinformerModel.from_pretrained(tmp_path / "new").eval(), torch.randint(1, 40, (2, 50))
    assert torch.equal(made(ids).last_hidden_state, again(ids).last_hidden_state)


@pytest.mark.parametrize("k", [None, 8])
def test_another_length_keeps_the_length_of_a_slot(k):
    made = LinformerModel(LinformerConfig(**SIZES, max_position_embeddings=64, projected_length=k))
    made.resize_sequence_length(128)
    assert made.config.head_slots() == (((32, 32),) if k is None else ((16, 16),))
    made.resize_sequence_length(64, projected_length=4)
    assert (made.config.projected_length, made.config.tokens_per_slot) == (4, None)
    assert made(torch.randint(1, 40, (1, 64))).last_hidden_state.isfinite().all()
