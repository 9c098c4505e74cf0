"""MPNet beyond what all families have: relative positions past the window, in training, and what is refused."""

import json

import pytest
import torch
from tiny_models import make_sentence_transformer
from torch.testing import assert_close

import longform
from longform import kernels
from longform.errors import ConfigurationError, ConversionError
from longform.layers.self_attention import Shared

EXACT = {"atol": 1e-10, "rtol": 1e-10}
BESIDE = {"max_length": 320, "projected_length": 320, "memory_budget": None}  # slots of one token beside the window


@pytest.mark.parametrize("kernel", ["documents", "formula"])
@pytest.mark.parametrize("sinks", [0, 2])
@torch.no_grad()
def test_slots_beyond_the_window_have_the_sources_bias(make_source, kernel, sinks):
    """Slots of one token each: the source's result at distances on both sides, from the first that is no neighbour."""
    source = make_source("MPNet", max_position_embeddings=322).double()
    made = longform.convert(source, attention_window=90, sink_tokens=sinks, **BESIDE).model
    ids = torch.randint(5, 167, (3, 320), generator=torch.Generator().manual_seed(3))
    mask = torch.arange(320) < torch.tensor([[320], [275], [190]])
    with kernels.use(window=kernel):
        actual, expected = (m(ids, attention_mask=mask.long()).last_hidden_state for m in (made, source))
    assert_close(actual[mask], expected[mask], **EXACT)
    made.encoder.relative_attention_bias.weight[15] += 1.0  # that of tokens far behind
    assert (made(ids, attention_mask=mask.long()).last_hidden_state - expected)[mask].abs().max() > 1e-3


@pytest.mark.parametrize("length", [21, 300])
def test_the_gradient_is_the_sources(make_source, length):
    """Within two blocks, which is full attention, and beyond them."""
    source = make_source("MPNet", "ForMaskedLM", max_position_embeddings=322).double()
    made = longform.convert(source, attention_window=90, **BESIDE).model
    ids = torch.randint(5, 167, (2, length), generator=torch.Generator().manual_seed(3))
    for model in (made, source):
        model(ids).logits.square().mean().backward()
    pairs = [
        ("linformer.encoder.relative_attention_bias", "mpnet.encoder.relative_attention_bias"),
        ("linformer.encoder.layers.0.attention.key", "mpnet.encoder.layer.0.attention.attn.k"),
    ]
    for own, its in pairs:
        found, expected = made.get_submodule(own).weight.grad, source.get_submodule(its).weight.grad
        assert expected.abs().max() > 1e-6
        assert_close(found, expected, **EXACT)


def test_the_window_is_as_wide_as_the_positions_need(make_source):
    config = longform.convert(make_source("MPNet"), max_length=4096).model.config
    assert (config.attention_window, config.projected_length) == (128, 256)
    assert (config.relative_attention_num_buckets, config.relative_attention_max_distance) == (32, 128)
    assert (config.position_offset, config.type_vocab_size) == (2, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attention_window": 64}, "attention_window=64 is too small.*use attention_window=90 or more"),
        ({"attention_window": None}, "keep attention_window=90 or more"),
        ({"projection": "linear"}, "relative positions need a window.*with projection in"),
    ],
)
def test_windows_in_which_a_slot_has_several_biases(make_source, options, message):
    with pytest.raises(ConfigurationError, match=message):
        longform.convert(make_source("MPNet"), max_length=1024, **options)


@pytest.mark.parametrize("changes", [{"relative_attention_num_buckets": 64}, {"pad_token_id": 3}])
def test_what_the_sources_code_does_not_look_at(make_source, changes):
    with pytest.raises(ConversionError, match="whatever it says"):
        longform.convert(make_source("MPNet", **changes))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"relative_attention_num_buckets": 3}, "relative_attention_num_buckets=3 must be an even number from 4"),
        ({"relative_attention_max_distance": 8}, "relative_attention_max_distance=8 must be more than 8"),
    ],
)
def test_buckets_that_cannot_be(options, message):
    with pytest.raises(ConfigurationError, match=message):
        longform.LinformerConfig(**{"relative_attention_num_buckets": 32, "attention_window": 512} | options)


def test_a_layer_of_its_own_refuses_too():
    layer = longform.LinformerAttention(8, 2, max_length=64, projection="mean", projected_length=8, attention_window=8)
    hidden = torch.zeros(1, 20, 8)
    assert layer(hidden, shared=Shared(distance_bias=torch.zeros(2, 19))).shape == hidden.shape
    with pytest.raises(ConfigurationError, match="attention_window=8 is too small"):
        layer(hidden, shared=Shared(distance_bias=torch.zeros(2, 21)))


def test_a_sentence_transformers_folder_under_the_name_of_its_language_model(make_source, tiny_tokenizer, tmp_path):
    """As all-mpnet-base-v2 is: an encoder alone, in whose configuration stands MPNetForMaskedLM."""
    source = make_source("MPNet", vocab_size=len(tiny_tokenizer))
    source.save_pretrained(tmp_path)
    tiny_tokenizer.save_pretrained(tmp_path)
    make_sentence_transformer(tmp_path, pooling={"pooling_mode_mean_tokens": True}, normalise=True)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"architectures": ["MPNetForMaskedLM"]}))
    result = longform.convert(tmp_path, max_length=512)
    assert (result.report.task, result.sentence_folder is not None) == ("encoder", True)
    ids = torch.randint(5, len(tiny_tokenizer), (2, 30), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        actual, expected = (m(ids).last_hidden_state for m in (result.model, source))
    assert_close(actual, expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_longer_still(make_source, tmp_path):
    made = longform.convert(make_source("MPNet"), max_length=300)
    folder = made.save_pretrained(tmp_path / "out")
    longer = longform.convert(folder, max_length=1200).model
    ids = torch.randint(5, 167, (1, 200), generator=torch.Generator().manual_seed(3))
    assert_close(longer(ids).last_hidden_state, made.model(ids).last_hidden_state, atol=1e-5, rtol=1e-5)
    assert torch.equal(longer.encoder.relative_attention_bias.weight, made.model.encoder.relative_attention_bias.weight)
