"""Other packages' implementations of Linformer (extra ``peers``), at the same width, depth and k."""

from functools import partial

from torch import nn

from longform.errors import require
from longform_lab.speed.competitor import Competitor
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


COMPETITORS = (
    Competitor(
        name="lucidrains",
        label="lucidrains/linformer",
        family="peer",
        build=partial(lucidrains, share_kv=False),
        packages=("linformer",),
    ),
    Competitor(
        name="lucidrains-share-kv",
        label="lucidrains/linformer, values = keys",
        family="peer",
        build=partial(lucidrains, share_kv=True),
        packages=("linformer",),
    ),
    Competitor(
        name="tatp22",
        label="tatp22/linformer-pytorch",
        family="peer",
        build=tatp22,
        packages=("linformer_pytorch",),
    ),
)
