"""Which heads are alike, who follows whom, and the output when maps are shared."""

import pytest
import torch
from reference.spectrum import reference_map_cosine
from tiny_families import FAMILIES
from transformers import AutoConfig, AutoModel

from longform import LinformerConfig
from longform.errors import ConfigurationError, InputError
from longform_lab.spectrum.heads import followers, head_similarity, inside_and_across, leaders_of, random_followers
from longform_lab.spectrum.run import compare_heads
from longform_lab.spectrum.settings import OpenedModel
from longform_lab.spectrum.shared_maps import last_states, shared_maps, sharing_fidelity

DISTILBERT = {"vocab_size": 50, "dim": 24, "n_layers": 2, "n_heads": 3, "hidden_dim": 40, "max_position_embeddings": 20}
EXCHANGED = ("bert", "roberta", "xlm-roberta", "electra", "distilbert")
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


def test_the_most_alike_follow_first_and_leaders_stand_earlier():
    similarity = torch.eye(6)
    for first, second, value in ((0, 1, 0.5), (3, 5, 0.9), (1, 4, 0.95), (2, 3, 0.4)):
        similarity[first, second] = similarity[second, first] = value
    assert followers(similarity, 3, across=False)[:2] == [(5, 3), (1, 0)]
    across = followers(similarity, 3, across=True)
    assert across[:4] == [(4, 1), (5, 3), (1, 0), (3, 2)]
    assert leaders_of(across[:4], 6) == [0, 0, 2, 2, 0, 2]  # who followed follows the leader's leader
    assert len(across) == 5  # one head is left
    inside = random_followers(6, 3, seed=1)
    assert len(inside) == 4
    assert all(follower // 3 == leader // 3 and leader < follower for follower, leader in inside)


def test_sharing_is_what_a_loop_does(opened):
    """One map for all heads of layer 2 and, across, head 1 of layer 1 for the last: context by hand."""
    model = opened.model
    leaders = [0, 1, 2, 3, 3, 1]
    ids = TEXTS[0][None]
    maps = torch.cat(model(input_ids=ids, output_attentions=True).attentions, dim=1)[0].detach()
    attention = model.encoder.layer[1].attention.self
    seen = {}
    handle = attention.register_forward_hook(lambda module, args, output: seen.update(hidden=args[0]))
    model(input_ids=ids)
    handle.remove()
    values = attention.value(seen["hidden"])[0].unflatten(1, (3, -1))
    expected = torch.cat([maps[leader] @ values[:, head] for head, leader in enumerate(leaders[3:])], dim=1)
    with shared_maps(model, leaders):
        handle = attention.register_forward_hook(lambda module, args, output: seen.update(context=output[0]))
        model(input_ids=ids)
        handle.remove()
    torch.testing.assert_close(seen["context"][0], expected)


@pytest.mark.parametrize("model_type", ["bert", "distilbert"])
def test_heads_that_keep_their_own_maps_change_nothing(opened, model_type):
    model = opened.model
    if model_type == "distilbert":
        config = AutoConfig.for_model("distilbert", **DISTILBERT, initializer_range=0.5)
        model = AutoModel.from_config(config, attn_implementation="eager").eval()
    own = last_states(model, TEXTS)
    same = sharing_fidelity(model, TEXTS, own, list(range(6)))
    assert same.cosine == pytest.approx(1.0, abs=1e-5)
    assert same.error == pytest.approx(0.0, abs=1e-5)
    shared = sharing_fidelity(model, TEXTS, own, [0, 0, 0, 3, 3, 3])
    assert shared.error > 1e-3
    assert sharing_fidelity(model, TEXTS, own, list(range(6))) == same  # nothing is left behind


@pytest.mark.parametrize("model_type", [*FAMILIES, "convbert"])
def test_heads_of_every_family_are_compared_and_share_maps_where_that_is_exact(model_type):
    sizes = FAMILIES.get(model_type, FAMILIES["bert"])
    model = AutoModel.from_config(AutoConfig.for_model(model_type, **sizes), attn_implementation="eager").eval()
    found, notes = compare_heads(OpenedModel(model, None, 20), TEXTS, 3)
    assert torch.equal(found.similarity, found.similarity.T)
    assert bool(found.fidelity) == (model_type in EXCHANGED) == (not notes)
    if found.fidelity:
        own = last_states(model, TEXTS)
        assert sharing_fidelity(model, TEXTS, own, list(range(6))).error < 1e-5


def test_models_whose_maps_cannot_be_exchanged():
    sizes = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 40,
             "vocab_size": 50}  # fmt: skip
    ours = AutoModel.from_config(LinformerConfig(**sizes, max_position_embeddings=16, projected_length=4))
    albert = AutoModel.from_config(AutoConfig.for_model("albert", **sizes), attn_implementation="eager")
    for model in (ours, albert):
        with pytest.raises(ConfigurationError, match=f"model_type '{model.config.model_type}' cannot be exchanged"):
            sharing_fidelity(model, TEXTS, last_states(model, TEXTS), [0, 0, 0])


def test_no_text_to_compare_on(opened):
    with pytest.raises(InputError, match="no text"):
        head_similarity(opened.model, [])
