"""Against `linformer` 0.2.3 (lucidrains), an independent implementation: same weights, full length, no padding.

Its linear layers have no bias except the last; its E is stored as (N, k).
"""

import pytest
import torch
from linformer.linformer import LinformerSelfAttention

from longform.functional.dense import project_first_is_cheaper
from longform.layers.attention import LinformerAttention
from longform.layers.options import Projection
from tolerances import assert_close

LENGTH, LENGTH_LONG, SLOTS, HEADS, WIDTH = 24, 64, 7, 3, 15


def peer(*, length: int = LENGTH, slots: int = SLOTS, **options: bool) -> LinformerSelfAttention:
    """With dropout 0, in float64, and a last bias that is not zero."""
    made = LinformerSelfAttention(WIDTH, length, k=slots, heads=HEADS, **options).double()
    torch.nn.init.normal_(made.to_out.bias)
    return made


@torch.no_grad()
def ours(peer: LinformerSelfAttention, *, sharing: str) -> LinformerAttention:
    """Our layer with the peer's weights; where it makes values from keys (share_kv), so do our weights."""
    options = {"projected_length": peer.k, "projection": Projection("linear", sharing=sharing)}
    layer = LinformerAttention(WIDTH, HEADS, max_length=peer.seq_len, **options).double()
    to_v = peer.to_k if peer.share_kv else peer.to_v
    repeats = layer.query.out_features // peer.to_k.out_features  # one_kv_head: all heads have the same keys
    for own, weight in ((layer.query, peer.to_q.weight), (layer.output, peer.to_out.weight)):
        own.weight.copy_(weight)
    for own, weight in ((layer.key, peer.to_k.weight), (layer.value, to_v.weight)):
        own.weight.copy_(weight.repeat(repeats, 1))
    for own in (layer.query, layer.key, layer.value):
        own.bias.zero_()
    layer.output.bias.copy_(peer.to_out.bias)
    matrices = [peer.proj_k] if peer.share_kv else [peer.proj_k, peer.proj_v]
    if sharing == "none":
        matrices = [m[None].expand(HEADS, -1, -1) for m in matrices]
    for group in layer.groups:
        for own, matrix in zip(group.tensors(), matrices, strict=True):
            own.copy_(matrix.transpose(-1, -2))
    return layer


CASES = [
    pytest.param({}, "headwise", id="headwise"),
    pytest.param({}, "none", id="one E for each head, all alike"),
    pytest.param({"one_kv_head": True}, "headwise", id="one head of keys"),
    pytest.param({"share_kv": True}, "key_value", id="key_value"),
    pytest.param({"share_kv": True, "one_kv_head": True}, "key_value", id="key_value, one head of keys"),
]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize(("options", "sharing"), CASES)
def test_same_weights_same_output_and_gradient(options, sharing, dtype):
    other = peer(**options).to(dtype)
    layer = ours(other, sharing=sharing).to(dtype)
    hidden = torch.randn(4, LENGTH, WIDTH, dtype=dtype)
    cotangent = torch.randn(4, LENGTH, WIDTH, dtype=dtype)
    results = []
    for model in (layer, other):
        given = hidden.clone().requires_grad_()
        out = model(given)
        results.append((out, *torch.autograd.grad((out * cotangent).sum() / WIDTH, given)))
    for own, others in zip(*results, strict=True):
        assert_close(own, others)


@pytest.mark.parametrize(("slots", "e_first"), [(2, True), (60, False)])
def test_both_orders_of_products_are_the_peers(slots, e_first):
    """The order is chosen by counting operations; with an E for each head, many slots make W first cheaper."""
    assert project_first_is_cheaper(n=LENGTH_LONG, k=slots, hidden=WIDTH, heads=HEADS, per_head=True) == e_first
    other = peer(length=LENGTH_LONG, slots=slots)
    layer = ours(other, sharing="none")
    hidden = torch.randn(2, LENGTH_LONG, WIDTH, dtype=torch.float64)
    assert_close(layer(hidden), other(hidden))


def test_a_wrong_weight_shows():
    other = peer()
    layer = ours(other, sharing="headwise")
    with torch.no_grad():
        layer.groups[0].tensors()[1][0, 3, 5] += 1e-3
    hidden = torch.randn(4, LENGTH, WIDTH, dtype=torch.float64)
    with pytest.raises(AssertionError):
        assert_close(layer(hidden), other(hidden))
