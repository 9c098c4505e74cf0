"""Biases by distance: buckets, attention to all tokens, which kernels may be chosen; test_window.py has windows."""

import pytest
import torch
from kernel_tables import machine, only, taken
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

from longform.functional.attention import slot_attention
from longform.functional.attention.formula import AttentionCall
from longform.functional.positions.distances import distance_buckets, saturated_distance
from longform.functional.slots import make_runs
from longform.functional.window.call import WindowCall
from strategies import generator, gradients, normal
from tolerances import assert_close


@pytest.mark.parametrize(("buckets", "longest"), [(32, 128), (8, 8), (8, 4), (4, 8), (64, 300), (32, 64)])
def test_buckets_are_those_of_mpnet(buckets, longest):
    found = torch.tensor(distance_buckets(buckets, longest))
    reach = saturated_distance(buckets, longest)
    distance = torch.arange(-400, 401)
    expected = MPNetEncoder.relative_position_bucket(distance, buckets, longest)
    assert torch.equal(found[distance.clamp(-reach, reach) + reach], expected)
    assert found[-2] != found[-1], "a smaller reach would do"


def test_the_reach_of_mpnet():
    assert saturated_distance(32, 128) == 91


@pytest.mark.parametrize("kernel", ["sdpa", "formula"])
@pytest.mark.parametrize("padded", [False, True])
def test_attention_to_all_tokens(kernel, padded):
    source = generator(3)
    leaves = [x.requires_grad_() for x in (*(normal(source, 2, 3, 9, 4) for _ in range(3)), normal(source, 3, 7))]
    mask = torch.arange(9) < torch.tensor([[9], [5]]) if padded else torch.ones(2, 9, dtype=torch.bool)
    given = {"slot_mask": mask if padded else None, "distance_bias": leaves[3]}
    with only(attention=kernel):
        out, _ = slot_attention(*leaves[:3], **given)
    query, key, value, table = leaves
    bias = torch.stack([torch.stack([table[:, max(-3, min(3, k - q)) + 3] for k in range(9)], 1) for q in range(9)], 1)
    logits = (query @ key.transpose(-1, -2) / 2 + bias).masked_fill(~mask[:, None, None], -torch.inf)
    expected = logits.softmax(dim=-1) @ value
    assert_close(out, expected)
    slope = normal(source, *out.shape)
    found, wanted = (gradients(x, slope, leaves) for x in (out, expected))
    for one, other in zip(found, wanted, strict=True):
        assert_close(one, other)
    _, weights = slot_attention(*leaves[:3], **given, output_attentions=True)
    assert_close(weights, logits.softmax(dim=-1))


@pytest.mark.parametrize("units", ["amx", None])
def test_no_other_kernel_is_chosen(units):
    """In inference and training, with the fastest dtype, for texts of few and of many tokens."""
    bias = torch.zeros(2, 5)
    with machine(units), torch.no_grad():
        heads = [torch.zeros(1, 2, 40, 32, dtype=torch.bfloat16) for _ in range(3)]
        slots = make_runs(None, batch=1, length=40, device=torch.device("cpu"), sizes=(1,), slots=40)
        options = {"slots_are_tokens": True}
        plain = WindowCall(*heads, lambda: pytest.fail("formed"), 8, **options)
        assert taken("window", plain) == "single_tokens"
        assert taken("window", WindowCall(*heads, lambda: slots, 8, distance_bias=bias, **options)) == "documents"
        assert taken("document", AttentionCall(*heads, distance_bias=bias)) == "sdpa"
        assert taken("attention", AttentionCall(*heads, distance_bias=bias)) == "sdpa"
        with torch.enable_grad():
            bias.requires_grad_()
            assert taken("window", WindowCall(*heads, lambda: slots, 8, distance_bias=bias)) == "formula"
            assert taken("attention", AttentionCall(*heads, distance_bias=bias)) == "sdpa"
