"""load_linformer beside the packages themselves: n at its most, shorter, masked; what each means by sharing."""

import pytest
import torch
from linformer import Linformer as Lucidrains
from linformer import LinformerLM
from linformer.linformer import LinformerSelfAttention
from linformer_pytorch import Linformer as Tatp22

from longform import load_linformer
from longform.errors import CheckpointError
from strategies import randomised
from tolerances import assert_close

LENGTH = 50


@torch.no_grad()
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"k": 64},
        {"one_kv_head": True},
        {"share_kv": True},
        {"dim_head": 5},
        {"share_kv": True, "one_kv_head": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("length", [LENGTH, LENGTH - 1, 20, 3])
def test_lucidrains(options, length):
    theirs = randomised(Lucidrains(**{"dim": 16, "seq_len": LENGTH, "depth": 2, "heads": 4, "k": 12} | options))
    hidden = torch.randn(2, length, 16)
    assert_close(load_linformer(theirs, package="lucidrains").eval()(hidden), theirs(hidden), scope="model")
    attention = theirs.net.layers[0][0].fn
    ours, mask = load_linformer(attention, package="lucidrains"), torch.rand(2, length) > 0.4
    assert_close(ours(hidden, mask)[mask], attention(hidden * mask[..., None])[mask])
    query = torch.randn(2, 70, 16)
    assert_close(ours(query, context=hidden), attention(query, context=hidden))


@torch.no_grad()
@pytest.mark.parametrize("sharing", ["layerwise", "kv", "headwise", "none"])
@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_tatp22(sharing, activation):
    """With the biases of E and F that the paper has not."""
    theirs = Tatp22(LENGTH, 16, 12, nhead=4, depth=2, parameter_sharing=sharing, dim_ff=32, activation=activation)
    ours = load_linformer(randomised(theirs), package="tatp22", activation=activation).eval()
    hidden, mask = torch.randn(2, LENGTH, 16), torch.rand(2, LENGTH) > 0.4
    assert_close(ours(hidden), theirs(hidden), scope="model")
    assert_close(ours(hidden, mask)[mask], theirs(hidden, input_mask=mask)[mask], scope="model")
    assert (ours.shared_projection is not None) == (sharing == "layerwise")


def test_the_stack_of_a_language_model_by_its_state_dict():
    theirs = LinformerLM(30, 16, LENGTH, 2, k=12, heads=4).eval()
    hidden = torch.randn(2, LENGTH, 16)
    ours = load_linformer(theirs.state_dict(), package="lucidrains", num_heads=4)
    assert_close(ours(hidden), theirs.linformer(hidden), scope="model")


@pytest.mark.parametrize(
    ("theirs", "package", "said"),
    [
        (lambda: Lucidrains(16, LENGTH, 2, reversible=True), "lucidrains", "reversible"),
        (lambda: LinformerSelfAttention(16, LENGTH), "tatp22", "have a 'to_q.0.weight'|have a 'heads"),
        (lambda: Tatp22(48, 16, 12, method="convolution"), "tatp22", "a dense convolution"),
        (lambda: Tatp22(48, 16, 12, include_ff=False, depth=2), "tatp22", "without feed-forward"),
    ],
    ids=["reversible", "of another", "convolution", "attention alone"],
)
def test_what_is_not_loaded(theirs, package, said):
    with pytest.raises(CheckpointError, match=said):
        load_linformer(theirs(), package=package)
