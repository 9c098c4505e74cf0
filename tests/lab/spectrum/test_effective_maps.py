"""The maps that a model's layers imply rebuild what the layers give."""

import pytest
import torch
from model_kinds import model, text

from longform import LinformerForMaskedLM
from longform.errors import InputError
from longform.layers.self_attention import Shared
from longform_lab.spectrum.effective_maps import effective_maps
from tolerances import assert_close


@pytest.mark.parametrize("kind", ["linear", "linear-layerwise", "random", "k of each head", "mean-window-sinks"])
def test_effective_maps_of_a_model(kind):
    made, given = model(kind, LinformerForMaskedLM).double(), text(2, 21)
    maps = effective_maps(made, **given)
    assert [m.shape for m in maps] == [(2, 2, 21, 21)] * 2
    base = made.linformer
    states = base(**given, output_hidden_states=True).hidden_states
    kept = given["attention_mask"].bool()
    for layer, state, found in zip(base.encoder.layers, states[:-1], maps, strict=True):
        state = torch.where(kept[..., None], state, 0.0)
        values = layer.attention.value(state).unflatten(2, (2, -1)).transpose(1, 2)
        rebuilt = layer.attention.output((found @ values).transpose(1, 2).flatten(2))
        out = layer.attention(state, kept, shared=Shared(base.encoder.shared_projection))
        assert_close(rebuilt[kept], out[kept], scope="model")
    made.train()
    assert_close(effective_maps(made, **given)[0], maps[0])
    assert made.training


def test_no_map_of_maxima():
    with pytest.raises(InputError, match="MaxProjection has no n x n map"):
        effective_maps(model("max"), **text(1, 29))


PADDING = [(0, 21), (5, 13)]  # tokens in front of a text, and of the text


@pytest.mark.parametrize("kind", ["linear", "k of each head", "mean-window-sinks", "window over everything"])
def test_they_are_in_the_places_of_the_caller(kind):
    place = torch.arange(21)
    mask = torch.stack([(place >= before) & (place < before + tokens) for before, tokens in PADDING])
    made, given = model(kind), {"input_ids": torch.randint(5, 40, mask.shape) * mask, "attention_mask": mask.long()}
    for row, (before, tokens) in enumerate(PADDING):
        kept = slice(before, before + tokens)
        alone = effective_maps(made, input_ids=given["input_ids"][row : row + 1, kept])
        for found, expected in zip(effective_maps(made, **given), alone, strict=True):
            assert_close(found[row, :, kept, kept], expected[0], scope="model")
