"""Which heads are alike."""

import pytest
import torch
from reference.spectrum import reference_map_cosine
from tiny_families import FAMILIES
from transformers import AutoConfig, AutoModel

from longform.errors import InputError
from longform_lab.spectrum.heads import head_similarity, inside_and_across

TEXTS = [torch.arange(5, 12), torch.arange(20, 29)]


def test_similarity_is_the_mean_cosine_of_maps(opened):
    found = head_similarity(opened.model, TEXTS)
    expected = torch.zeros(6, 6)
    for ids in TEXTS:
        maps = torch.cat(opened.model(input_ids=ids[None], output_attentions=True).attentions, dim=1)[0].detach()
        expected += torch.tensor([[reference_map_cosine(a, b) for b in maps] for a in maps]) / 2
    torch.testing.assert_close(found, expected.double(), atol=1e-5, rtol=0)
    inside, across = inside_and_across(expected, 3)
    assert float(inside[1]) == pytest.approx(float(expected[3, 4] + expected[3, 5] + expected[4, 5]) / 3)
    assert across == pytest.approx(float(expected[:3, 3:].mean()))


@pytest.mark.parametrize("model_type", [*FAMILIES, "convbert"])
def test_heads_of_every_family_are_compared(model_type):
    sizes = FAMILIES.get(model_type, FAMILIES["bert"])
    model = AutoModel.from_config(AutoConfig.for_model(model_type, **sizes), attn_implementation="eager").eval()
    found = head_similarity(model, TEXTS)
    assert torch.equal(found, found.T)
    torch.testing.assert_close(found.diagonal(), torch.ones(len(found), dtype=torch.float64))


def test_no_text_to_compare_on(opened):
    with pytest.raises(InputError, match="no text"):
        head_similarity(opened.model, [])
