"""Every mistake in a configuration: an error with names, values and the way out."""

import re

import pytest
import torch
from huggingface_hub.errors import StrictDataclassFieldValidationError

from longform import LinformerAttention, LinformerConfig
from longform.errors import ConfigurationError, LongformError
from longform.layers.options import Projection

WINDOW = {"projection": "mean", "attention_window": 8}
WRONG = [
    ({"projected_length": 33}, r"projected_length=33 must be .* 1 to max_position_embeddings=32"),
    ({"projected_length": 8, "tokens_per_slot": 4}, r"projected_length=8 and tokens_per_slot=4 both say .*: give one"),
    ({"projected_length": 0}, r"projected_length=0 must be"),
    ({"projected_length": [8]}, r"lists 1 layers, the model has num_hidden_layers=2"),
    ({"projected_length": [8, 8, 8]}, r"lists 3 layers, the model has num_hidden_layers=2"),
    ({"projected_length": [[8, 4], [8]], "projection_sharing": "none"}, r"lists 1 values for a layer of 2 heads"),
    ({"projected_length": [[8, 4], [8, 4]]}, r"differs between heads \(\[4, 8\]\).*projection_sharing='none'"),
    ({"projected_length": [8, 4], "projection_sharing": "layerwise"}, r"differs between layers.*use 'headwise'"),
    ({"projection": "median"}, r"projection='median' is not known; choose one of 'linear', 'weighted_mean', 'mean'"),
    ({"projection_sharing": "all"}, r"projection_sharing='all' is not known; choose one of 'none', 'headwise'"),
    ({"position_init": "zero"}, r"position_init='zero' is not known; choose one of 'normal', 'sinusoidal'"),
    ({"projection_init": "zero"}, r"projection_init='zero' is not known; choose one of 'normal', 'block_mean'"),
    ({"projection": "mean", "projection_sharing": "layerwise"}, r"has no E and F to share.*at 'headwise'"),
    ({"projection": "max", "projection_sharing": "key_value"}, r"has no E and F to share.*at 'headwise'"),
    ({"hidden_size": 9}, r"hidden_size=9 is not a multiple of num_attention_heads=2"),
    ({"attention_window": 8}, r"attention_window=8 needs .*'linear'.*use projection in .*or attention_window=None"),
    ({"attention_window": 8, "projection": "random"}, r"'random' does not give"),
    (WINDOW | {"attention_window": 0}, r"attention_window=0 must be a whole number of tokens, at least 1, or None"),
    (WINDOW | {"attention_window": 6}, r"attention_window=6 is not a multiple of the 4 tokens .*attention_window=8"),
    (WINDOW | {"memory_budget": 0}, r"memory_budget=0 must be a number of tokens above 0, or None"),
    (WINDOW | {"memory_budget": -3.0}, r"memory_budget=-3.0 must be"),
    ({"memory_budget": -5}, r"memory_budget=-5 must be a number of tokens above 0, or None"),
    (WINDOW | {"selected_slots": -1}, r"selected_slots=-1 must be a whole number from 0 on; .*or selected_slots=0"),
    ({"selected_slots": 2, "projection": "mean"}, r"selected_slots=2 .* needs attention_window \(here None\)"),
    ({"selected_slots": 2}, r"selected_slots=2 .*'mean'.*, here 'linear'"),
    ({"selected_slots": 2, "projection": "random"}, r"selected_slots=2 .* here 'random'"),
    (WINDOW | {"selected_slots": 2, "causal": True}, r"selected_slots=2 .* causal=False \(here True\)"),
    ({"sink_tokens": 8}, r"sink_tokens=8 must be at least 0 and less than projected_length=8"),
    ({"sink_tokens": -1}, r"sink_tokens=-1 must be at least 0"),
    ({"normalization": "both"}, r"normalization='both' is not known; choose one of 'post', 'pre'"),
    ({"classifier_pooling": "max"}, r"classifier_pooling='max' is not known; choose one of 'cls', 'mean'"),
    ({"classifier_activation": "sine"}, r"classifier_activation='sine' is not known; choose one of 'tanh'"),
    ({"max_position_embeddings": 0}, r"max_position_embeddings=0 must be at least 1"),
    ({"rope_parameters": {"full_attention": None}}, r"rope_parameters of full_attention is None: give it rope_type"),
    *(
        ({"rope_parameters": {"rope_theta": 1e4, "factor": 2.0, "rope_type": kind} | given},
         rf"{re.escape(said)} of full_attention, in rope_parameters, must be a number above 0 for rope_type='{kind}'")
        for kind, given, said in (
            ("default", {"partial_rotary_factor": "0.5"}, "partial_rotary_factor='0.5'"),
            ("linear", {"factor": None}, "factor=None"), ("linear", {"factor": "2"}, "factor='2'"),
            ("linear", {"factor": 0}, "factor=0"), ("yarn", {"factor": None}, "factor=None"),
            ("yarn", {"beta_fast": True}, "beta_fast=True"), ("llama3", {}, "low_freq_factor=None"),
        )
    ),
    ({"vocab_size": 0}, r"vocab_size=0 must be at least 1"),
    ({"num_hidden_layers": -1}, r"num_hidden_layers=-1 must be at least 0"),
    ({"position_offset": -2}, r"position_offset=-2 must be at least 0"),
    ({"type_vocab_size": -1}, r"type_vocab_size=-1 must be at least 0"),
    ({"hidden_size": 0}, r"hidden_size=0 must be at least 1"),
    ({"num_attention_heads": 0}, r"num_attention_heads=0 must be at least 1"),
    ({"num_attention_heads": -2}, r"num_attention_heads=-2 must be at least 1"),
    ({"intermediate_size": 0}, r"intermediate_size=0 must be at least 1"),
    ({"embedding_size": 0}, r"embedding_size=0 must be at least 1, or None for hidden_size"),
    ({"pad_token_id": 50}, r"pad_token_id=50 is not a token of vocab_size=40; use one from 0 to 39, .*=None"),
    ({"pad_token_id": -1}, r"pad_token_id=-1 is not a token of vocab_size=40"),
    ({"hidden_act": "foo"}, r"hidden_act='foo' is not known; choose one of .*'gelu'"),
    ({"hidden_dropout_prob": 1.5}, r"hidden_dropout_prob=1.5 is a probability: it must be from 0 to 1"),
    ({"attention_probs_dropout_prob": -0.1}, r"attention_probs_dropout_prob=-0.1 is a probability"),
    ({"classifier_dropout": float("nan")}, r"classifier_dropout=nan is a probability"),
]  # fmt: skip


def make(options) -> LinformerConfig:
    settings = {"vocab_size": 40, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    settings |= {"intermediate_size": 12, "max_position_embeddings": 32, "projected_length": 8, "projection": "linear"}
    return LinformerConfig(**(settings | options))


@pytest.mark.parametrize(("options", "message"), WRONG, ids=str)
def test_what_does_not_go_together(options, message):
    with pytest.raises(ConfigurationError, match=message) as caught:
        make(options)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, LongformError)


@pytest.mark.parametrize(
    "options",
    [
        {"projected_length": 32},
        {"projected_length": None},
        {"projected_length": None, "tokens_per_slot": 2, "projection": "mean"},
        {"projected_length": 5},  # k does not divide n
        {"projected_length": [8, 4]},
        {"projected_length": [8, 8], "projection_sharing": "layerwise"},
        {"projected_length": [[8, 4], [4, 8]], "projection_sharing": "none"},
        WINDOW,
        WINDOW | {"attention_window": 40},  # larger than n
        WINDOW | {"selected_slots": 10**9},  # more than there are
        WINDOW | {"attention_window": 16, "projection": "convolution", "projection_sharing": "layerwise"},
        {"type_vocab_size": 0},
        {"num_hidden_layers": 0},
        {"pad_token_id": None},
        {"pad_token_id": 39, "hidden_dropout_prob": 1.0, "classifier_dropout": 0.0, "memory_budget": 5},
    ],
    ids=str,
)
def test_what_goes_together(options):
    made = make(options)
    assert LinformerConfig(**made.to_dict()).to_dict() == made.to_dict()


@pytest.mark.parametrize(
    ("name", "wrong"), [("projected_length", 8.5), *(("selected_slots", x) for x in ("8", 8.5, None))], ids=repr
)
def test_wrong_types_are_refused(name, wrong):
    with pytest.raises(StrictDataclassFieldValidationError, match=rf"{name}.*expected|{name}.*{wrong!r}"):
        make({name: wrong})


@pytest.mark.parametrize("wrong", ["2", 1.5, True, None, -1], ids=repr)
def test_the_layer_selects_whole_numbers_of_slots(wrong):
    with pytest.raises(ConfigurationError, match=f"selected_slots={wrong!r} must be a whole number from 0 on"):
        LinformerAttention(8, 2, max_length=32, projection="mean", attention_window=8, selected_slots=wrong)


@pytest.mark.parametrize("options", [{"tokens_per_slot": 4}, {"tile": (2, 2)}], ids=str)
def test_without_a_window_nothing_is_selected(options):
    with pytest.raises(ConfigurationError, match=r"selected_slots=1 .* needs attention_window \(here None\)"):
        LinformerAttention(8, 2, projection="mean", selected_slots=1, **options)


def test_the_layer_checks_the_same_relations():
    with pytest.raises(ConfigurationError, match="hidden_size=10 is not a multiple of num_heads=4"):
        LinformerAttention(10, 4, max_length=16, projected_length=4)
    with pytest.raises(ConfigurationError, match="num_heads=0 must be at least 1"):
        LinformerAttention(8, 0, max_length=16, projected_length=[4])
    with pytest.raises(ConfigurationError, match="projected_length=0 must be a whole number from 1 to"):
        LinformerAttention(8, 4, max_length=16, projected_length=0)
    capped = LinformerAttention(8, 4, max_length=16, projected_length=17, projection="linear")
    assert capped.groups[0].tensors()[0].shape == (1, 16, 16)
    with pytest.raises(ConfigurationError, match="lists 3 values for a layer of 4 heads"):
        LinformerAttention(8, 4, max_length=16, projected_length=[4, 4, 4])
    chosen = Projection("linear", sharing="layerwise")
    layer = LinformerAttention(8, 4, max_length=16, projected_length=4, projection=chosen)
    with pytest.raises(ConfigurationError, match="needs the projection of all layers"):
        layer(torch.zeros(1, 3, 8))
