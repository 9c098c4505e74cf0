"""Captured attention is what the models say themselves; what has none is refused."""

import pytest
import torch
from tiny_families import FAMILIES, SIZES
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

from longform import LinformerConfig
from longform.errors import ConfigurationError, InputError
from longform_lab.spectrum.capture import captured_maps
from longform_lab.spectrum.effective_maps import effective_maps


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
    torch.testing.assert_close(captured_maps(model, ids, mask), list(expected))


def test_rotary_positions():
    sizes = {**SIZES, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
    model = AutoModel.from_config(AutoConfig.for_model("modernbert", **sizes), attn_implementation="eager").eval()
    ids, mask = batch()
    expected = model(input_ids=ids, attention_mask=mask, output_attentions=True).attentions
    torch.testing.assert_close(captured_maps(model, ids, mask), list(expected))


def test_our_layers_give_the_map_they_imply():
    config = LinformerConfig(**SIZES, projection="linear", projected_length=5, projection_sharing="layerwise")
    model = AutoModel.from_config(config).eval()
    ids, mask = batch()
    expected = effective_maps(model, input_ids=ids, attention_mask=mask)
    torch.testing.assert_close(captured_maps(model, ids, mask), list(expected))


def test_a_head_does_not_matter_and_the_model_is_left_as_it_was():
    model = tiny("bert", AutoModelForSequenceClassification).train()
    ids, mask = batch()
    before = model(input_ids=ids, attention_mask=mask, output_attentions=True).attentions
    assert [maps.shape for maps in captured_maps(model, ids, mask)] == [maps.shape for maps in before]
    assert model.base_model.training


def test_models_without_weights_and_decoders_are_refused():
    ids, mask = batch()
    with pytest.raises(ConfigurationError, match=r"attn_implementation=\"eager\""):
        captured_maps(tiny("bert", attention="sdpa"), ids, mask)
    with pytest.raises(ConfigurationError, match="is a decoder"):
        captured_maps(tiny("bert", is_decoder=True), ids, mask)
    gpt = AutoModel.from_config(
        AutoConfig.for_model("gpt2", vocab_size=50, n_embd=24, n_layer=1, n_head=3, n_positions=20),
        attn_implementation="eager",
    )
    with pytest.raises(ConfigurationError, match="causal"):
        captured_maps(gpt, ids, mask)
    with pytest.raises(ConfigurationError, match=r"is a decoder \(causal=True"):
        captured_maps(tiny("xlm", causal=True), ids, mask)
    fnet = AutoModel.from_config(AutoConfig.for_model("fnet", vocab_size=50, hidden_size=24, num_hidden_layers=1))
    with pytest.raises(ConfigurationError, match="no map of all pairs"):
        captured_maps(fnet, ids, mask)


def test_weights_that_are_not_finite_are_named_with_their_layer():
    ours = AutoModel.from_config(LinformerConfig(**SIZES, projection="linear", projected_length=5)).eval()
    for model in (tiny("bert"), ours):
        query = next(module for name, module in model.named_modules() if "1.attention" in name and "query" in name)
        query.weight.data[0, 0] = torch.nan
        with pytest.raises(ConfigurationError, match="not finite in layer 2"):
            captured_maps(model, *batch())


def test_rows_of_padding_may_be_anything():
    model = tiny("bert")
    ids, mask = batch()
    padding = (mask == 0)[:, None, :, None]
    for layer in model.encoder.layer:
        layer.attention.self.register_forward_hook(
            lambda module, args, output: (output[0], output[1].masked_fill(padding, torch.nan))
        )
    for maps in captured_maps(model, ids, mask):
        assert bool(maps[1, :, 7:].isnan().all())
        assert bool(maps.masked_select(~padding).isfinite().all())


def test_an_error_of_the_model_reaches_the_caller():
    model = tiny("bert")
    with pytest.raises(InputError):
        captured_maps(model, torch.ones(1, 4, dtype=torch.long), torch.tensor([[1, 2, 1, 0]]))
    with pytest.raises(IndexError):
        captured_maps(model, torch.full((1, 4), 60), torch.ones(1, 4, dtype=torch.long))
