"""Captured attention is what the models say themselves; what has none is refused."""

import pytest
import torch
from tiny_families import FAMILIES, SIZES
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

from longform import LinformerConfig
from longform.errors import ConfigurationError, InputError
from longform.models.effective_maps import effective_maps
from longform_lab.spectrum.capture import captured_layers


def tiny(model_type, auto=AutoModel, *, attention="eager", **more):
    config = AutoConfig.for_model(model_type, **FAMILIES[model_type], **more)
    return auto.from_config(config, attn_implementation=attention).eval()


def batch():
    mask = torch.tensor([[1] * 11, [1] * 7 + [0] * 4])
    return torch.randint(3, 50, (2, 11)) * mask + (1 - mask), mask


@pytest.mark.parametrize("model_type", FAMILIES)
def test_probabilities_are_the_models_own(model_type):
    model = tiny(model_type)
    ids, mask = batch()
    expected = model(input_ids=ids, attention_mask=mask, output_attentions=True).attentions
    layers = list(captured_layers(model, ids, mask))
    assert [layer.layer for layer in layers] == [0, 1]
    for layer, weights in zip(layers, expected, strict=True):
        torch.testing.assert_close(layer.probabilities, weights)


@pytest.mark.parametrize("model_type", ["bert", "distilbert", "roberta", "electra"])
def test_logits_and_values_are_those_behind_the_probabilities(model_type):
    model = tiny(model_type)
    ids, mask = batch()
    seen = []
    linear = dict(model.named_modules())[
        "transformer.layer.1.attention.v_lin" if model_type == "distilbert" else "encoder.layer.1.attention.self.value"
    ]
    linear.register_forward_hook(lambda module, args, output: seen.append(output))
    last = list(captured_layers(model, ids, mask))[-1]
    hidden = last.logits.masked_fill(mask[:, None, None] == 0, -torch.inf)
    torch.testing.assert_close(hidden.softmax(-1), last.probabilities)
    torch.testing.assert_close(last.values.transpose(1, 2).flatten(2), seen[0])


def test_rotary_positions_have_no_plain_logits():
    sizes = {**SIZES, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
    model = AutoModel.from_config(AutoConfig.for_model("modernbert", **sizes), attn_implementation="eager").eval()
    ids, mask = batch()
    expected = model(input_ids=ids, attention_mask=mask, output_attentions=True).attentions
    for layer, weights in zip(captured_layers(model, ids, mask), expected, strict=True):
        torch.testing.assert_close(layer.probabilities, weights)
        assert layer.logits is None


def test_keys_and_values_that_serve_several_heads():
    model = tiny("eurobert")
    seen = []
    model.layers[1].self_attn.o_proj.register_forward_hook(lambda module, args, output: seen.append(args[0]))
    last = list(captured_layers(model, *batch()))[-1]
    torch.testing.assert_close((last.probabilities @ last.values).transpose(1, 2).flatten(2), seen[0])


def test_our_layers_give_the_map_they_imply():
    config = LinformerConfig(**SIZES, projection="linear", projected_length=5, projection_sharing="layerwise")
    model = AutoModel.from_config(config).eval()
    ids, mask = batch()
    layers = list(captured_layers(model, ids, mask))
    for layer, expected in zip(layers, effective_maps(model, input_ids=ids, attention_mask=mask), strict=True):
        torch.testing.assert_close(layer.probabilities, expected)


def test_a_head_does_not_matter_and_the_model_is_left_as_it_was():
    model = tiny("bert", AutoModelForSequenceClassification).train()
    ids, mask = batch()
    before = model(input_ids=ids, attention_mask=mask, output_attentions=True).attentions
    hooks = sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())
    for layer in captured_layers(model, ids, mask):
        assert layer.probabilities.shape == before[layer.layer].shape
    assert model.base_model.training
    assert hooks == sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


def test_models_without_weights_and_decoders_are_refused():
    ids, mask = batch()
    with pytest.raises(ConfigurationError, match=r"attn_implementation=\"eager\""):
        captured_layers(tiny("bert", attention="sdpa"), ids, mask)
    with pytest.raises(ConfigurationError, match="is a decoder"):
        captured_layers(tiny("bert", is_decoder=True), ids, mask)
    gpt = AutoModel.from_config(
        AutoConfig.for_model("gpt2", vocab_size=50, n_embd=24, n_layer=1, n_head=3, n_positions=20),
        attn_implementation="eager",
    )
    with pytest.raises(ConfigurationError, match="causal"):
        captured_layers(gpt, ids, mask)
    with pytest.raises(ConfigurationError, match=r"is a decoder \(causal=True"):
        captured_layers(tiny("xlm", causal=True), ids, mask)
    fnet = AutoModel.from_config(AutoConfig.for_model("fnet", vocab_size=50, hidden_size=24, num_hidden_layers=1))
    with pytest.raises(ConfigurationError, match="no map of all pairs"):
        captured_layers(fnet, ids, mask)


def test_weights_that_are_not_finite_are_named_with_their_layer():
    ours = AutoModel.from_config(LinformerConfig(**SIZES, projection="linear", projected_length=5)).eval()
    for model in (tiny("bert"), ours):
        query = next(module for name, module in model.named_modules() if "1.attention" in name and "query" in name)
        query.weight.data[0, 0] = torch.nan
        layers = captured_layers(model, *batch())
        next(layers)
        with pytest.raises(ConfigurationError, match="not finite in layer 2"):
            next(layers)


def test_rows_of_padding_may_be_anything():
    model = tiny("bert")
    ids, mask = batch()
    padding = (mask == 0)[:, None, :, None]
    for layer in model.encoder.layer:
        layer.attention.self.register_forward_hook(
            lambda module, args, output: (output[0], output[1].masked_fill(padding, torch.nan))
        )
    for layer in captured_layers(model, ids, mask):
        assert bool(layer.probabilities[1, :, 7:].isnan().all())
        assert bool(layer.probabilities.masked_select(~padding).isfinite().all())


def test_padding_may_stand_on_the_left():
    model = tiny("bert")
    ids, mask = (x.flip(1) for x in batch())
    for layer in captured_layers(model, ids, mask):
        assert layer.logits is not None


def test_an_error_of_the_model_reaches_the_caller():
    model = tiny("bert")
    with pytest.raises(InputError):
        captured_layers(model, torch.ones(1, 4, dtype=torch.long), torch.tensor([[1, 2, 1, 0]]))
    with pytest.raises(IndexError):
        list(captured_layers(model, torch.full((1, 4), 60), torch.ones(1, 4, dtype=torch.long)))
