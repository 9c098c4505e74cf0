"""Other packages' implementations of Linformer (extra ``peers``), at the same width, depth and k."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from longform.errors import require
from longform.layers.attention import LinformerAttention
from longform.layers.geometry import Projection
from longform.layers.self_attention import Shared
from longform.layers.sequence_projection import make_projection
from longform_lab.speed.checks import PEER_ERROR, require_equal
from longform_lab.speed.competitor import Competitor
from longform_lab.speed.floor import dense_floor
from longform_lab.speed.shapes import Shape


def lucidrains(shape: Shape, *, share_kv: bool) -> nn.Module:
    """lucidrains/linformer. ``share_kv``: also uses the keys as values, which no longer is the paper's attention."""
    size = shape.size
    return require("linformer", extra="peers").Linformer(
        dim=size.hidden, seq_len=shape.length, depth=size.layers, k=shape.slots, heads=size.heads, share_kv=share_kv
    )


def tatp22(shape: Shape) -> nn.Module:
    """tatp22/linformer-pytorch, one E for all layers (its default)."""
    size = shape.size
    return require("linformer_pytorch", extra="peers").Linformer(
        shape.length,
        size.hidden,
        shape.slots,
        dim_ff=size.intermediate,
        depth=size.layers,
        nhead=size.heads,
        dropout=0.0,
        dropout_ff=0.0,
        parameter_sharing="layerwise",
    )


@torch.no_grad()
def verify_lucidrains(shape: Shape, *, share_kv: bool) -> None:
    """Its first attention layer, with its weights copied into ours, gives the same. Raises WrongOutput."""
    stack: Any = lucidrains(shape, share_kv=share_kv)
    peer = stack.net.layers[0][0].fn
    layer = _ours(shape, sharing="key_value" if share_kv else "headwise")
    value = peer.to_k if share_kv else peer.to_v
    _copy(layer, peer.to_q.weight, peer.to_k.weight, value.weight, peer.to_out)
    matrices = [peer.proj_k] if share_kv else [peer.proj_k, peer.proj_v]
    _copy_matrices(layer.groups[0], [matrix.t() for matrix in matrices])
    _require_same(layer, peer, shape)


@torch.no_grad()
def verify_tatp22(shape: Shape) -> None:
    """Its first attention layer, with its weights copied into ours, gives the same. Raises WrongOutput.

    Its E has a bias, which the paper's has not; it is set to 0 for the comparison.
    """
    stack: Any = tatp22(shape)
    peer = stack.seq[0].fn
    nn.init.zeros_(peer.heads[0].E.bias)
    layer = _ours(shape, sharing="layerwise")
    sides = (torch.cat([head.weight for head in side]) for side in (peer.to_q, peer.to_k, peer.to_v))
    _copy(layer, *sides, peer.w_o)
    shared = make_projection(
        Projection(sharing="layerwise"),
        hidden_size=shape.size.hidden,
        heads=shape.size.heads,
        head_dim=shape.size.head_dim,
        max_length=shape.length,
        slots=shape.slots,
    )
    _copy_matrices(shared, [peer.heads[0].E.weight])
    _require_same(partial(layer, shared=Shared(projection=shared)), peer, shape)


def _ours(shape: Shape, *, sharing: str) -> LinformerAttention:
    return LinformerAttention(
        shape.size.hidden,
        shape.size.heads,
        max_length=shape.length,
        projected_length=shape.slots,
        projection=Projection(sharing=sharing),
    )


def _copy(layer: LinformerAttention, query: Tensor, key: Tensor, value: Tensor, output: nn.Module) -> None:
    for own, weight in ((layer.query, query), (layer.key, key), (layer.value, value)):
        own.weight.copy_(weight)
        own.bias.zero_()
    layer.output.load_state_dict(output.state_dict())


def _copy_matrices(projection: Any, matrices: list[Tensor]) -> None:
    for own, matrix in zip(projection.matrices(), matrices, strict=True):
        own.copy_(matrix)


def _require_same(layer: Any, peer: nn.Module, shape: Shape) -> None:
    hidden = torch.randn(2, shape.length, shape.size.hidden)
    require_equal(peer(hidden), layer(hidden), PEER_ERROR, "Longform's layer with the same weights")


def itself(model: nn.Module, hidden: Tensor) -> Tensor:
    """The model's own output (B, n, D): what is checked is the dtype and the compiler."""
    return model(hidden)


COMPETITORS = (
    Competitor(
        name="lucidrains", label="lucidrains/linformer", family="peer", build=partial(lucidrains, share_kv=False),
        expected=itself, verify=partial(verify_lucidrains, share_kv=False), packages=("linformer",),
        floor=partial(dense_floor, sharing="headwise"),
    ),
    Competitor(
        name="lucidrains-share-kv", label="lucidrains/linformer, values = keys", family="peer",
        build=partial(lucidrains, share_kv=True), expected=itself, verify=partial(verify_lucidrains, share_kv=True),
        packages=("linformer",), floor=partial(dense_floor, sharing="key_value"),
    ),
    Competitor(
        name="tatp22", label="tatp22/linformer-pytorch", family="peer", build=tatp22, expected=itself,
        verify=verify_tatp22, packages=("linformer_pytorch",), floor=partial(dense_floor, sharing="layerwise"),
    ),
)  # fmt: skip
