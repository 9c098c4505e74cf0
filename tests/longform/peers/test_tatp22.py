"""Against `linformer_pytorch` 0.19.3 (tatp22), an independent implementation: same weights, full length, no padding.

It has one linear layer a head without bias; its E and F are linear layers whose bias, not in the paper, is set to 0.
"""

import pytest
import torch
from linformer_pytorch.linformer_pytorch import Linformer

from longform.layers.attention import LinformerAttention
from longform.layers.options import Projection
from longform.layers.self_attention import Shared
from longform.layers.sequence_projection import make_projection
from tolerances import assert_close

LENGTH, SLOTS, HEADS, WIDTH = 24, 7, 3, 15
SHARINGS = {"none": "none", "headwise": "headwise", "kv": "key_value", "layerwise": "layerwise"}


def peer_layers(parameter_sharing: str, *, depth: int = 2):
    """The attention layers of a stack, without dropout."""
    options = {"nhead": HEADS, "depth": depth, "dropout": 0.0, "include_ff": False}
    stack = Linformer(LENGTH, WIDTH, SLOTS, parameter_sharing=parameter_sharing, **options).double()
    attentions = [residual.fn for residual in stack.seq]
    assert len(attentions) == depth
    for attention in attentions:
        torch.nn.init.normal_(attention.w_o.bias)
        for head in attention.heads:
            for side in (head.E, head.F):
                torch.nn.init.zeros_(side.bias)
    return attentions


@torch.no_grad()
def ours(peer, sharing: str) -> tuple[LinformerAttention, list[torch.Tensor]]:
    """Our layer with the peer's weights, and E (and F) as (g, k, N)."""
    options = {"max_length": LENGTH, "projected_length": SLOTS, "projection": Projection("linear", sharing=sharing)}
    layer = LinformerAttention(WIDTH, HEADS, **options).double()
    for own, theirs in ((layer.query, peer.to_q), (layer.key, peer.to_k), (layer.value, peer.to_v)):
        own.weight.copy_(torch.cat([head.weight for head in theirs]))
        own.bias.zero_()
    layer.output.load_state_dict(peer.w_o.state_dict())
    used = peer.heads if sharing == "none" else peer.heads[:1]
    sides = [torch.stack([head.E.weight for head in used]), torch.stack([head.F.weight for head in used])]
    if sharing in ("key_value", "layerwise"):
        assert torch.equal(*sides)
        sides = sides[:1]
    for group in layer.groups:
        for own, matrix in zip(group.tensors(), sides, strict=True):
            own.copy_(matrix)
    return layer, sides


@torch.no_grad()
def shared_projection(matrix: torch.Tensor):
    """The one E of all layers."""
    shape = {"hidden_size": WIDTH, "heads": HEADS, "head_dim": WIDTH // HEADS, "max_length": LENGTH, "slots": SLOTS}
    made = make_projection(Projection("linear", sharing="layerwise"), **shape).to(matrix.dtype)
    made.tensors()[0].copy_(matrix)
    return made


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize(("theirs", "sharing"), SHARINGS.items())
def test_same_weights_same_output_and_gradient(theirs, sharing, dtype):
    stack = peer_layers(theirs)
    first, sides = ours(stack[0], sharing)
    shared = shared_projection(sides[0]).to(dtype) if sharing == "layerwise" else None
    for peer, layer in [(stack[0], first), (stack[1], ours(stack[1], sharing)[0])]:
        peer.to(dtype), layer.to(dtype)
        hidden, cotangent = torch.randn(2, 4, LENGTH, WIDTH, dtype=dtype)
        results = []
        for run in (lambda x, layer=layer: layer(x, shared=Shared(projection=shared)), peer):
            given = hidden.clone().requires_grad_()
            out = run(given)
            results.append((out, *torch.autograd.grad((out * cotangent).sum() / WIDTH, given)))
        for own, other in zip(*results, strict=True):
            assert_close(own, other)


def test_the_peers_sharing_is_what_its_name_says():
    """Otherwise the comparison above would compare one mode four times."""
    counts = {}
    for theirs in SHARINGS:
        layers = peer_layers(theirs)
        counts[theirs] = len({id(side.weight) for x in layers for head in x.heads for side in (head.E, head.F)})
    assert counts == {"none": 2 * HEADS * 2, "headwise": 2 * 2, "kv": 2, "layerwise": 1}
