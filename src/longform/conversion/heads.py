"""Attention heads left out in a conversion, with their parts of the weights; each layer keeps as many as every other.

What a head adds to every token alike, the product of its value's bias with the output's weight, is known without any
text (attention weights sum to 1) and goes to the output's bias.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from longform.conversion.weights import Placement
from longform.errors import ConfigurationError
from longform.layers.geometry import head_size

LAYER = re.compile(r"(.*encoder\.layers\.(\d+)\.attention\.)query\.weight")


@dataclass(frozen=True)
class KeptHeads:
    """The heads that each layer keeps, of ``num_heads`` of ``head_dim`` features that it had.

    ``queries``: a list a layer, ascending; ``keys``: the heads of keys and values that these use, of
    ``num_key_value_heads``.
    """

    queries: list[list[int]]
    keys: list[list[int]]
    num_heads: int
    num_key_value_heads: int
    head_dim: int

    def left_out(self) -> list[list[int]]:
        """The others of each layer."""
        return [[head for head in range(self.num_heads) if head not in kept] for kept in self.queries]


def kept_heads(heads: Sequence[Sequence[int]], options: dict[str, Any]) -> KeptHeads | None:
    """``heads``, a list a layer, of the architecture that LinformerConfig's arguments ``options`` describe; None
    where all stay.

    Raises ConfigurationError for lists of other layers or heads than there are, of different lengths, of some of the
    heads that share keys, and where a bias by distance ties the heads of all layers together.
    """
    had, layers = options["num_attention_heads"], options["num_hidden_layers"]
    sizes = options["hidden_size"], had, options.get("head_dim")
    groups = options.get("num_key_value_heads") or had
    _check(heads, layers, had)
    if len(heads[0]) == had:
        return None
    if options.get("relative_attention_num_buckets") is not None:
        raise ConfigurationError(
            "heads cannot be left out of a model with relative positions (MPNet): its bias by distance is one for the "
            "heads of all layers; convert another encoder"
        )
    queries = [sorted(kept) for kept in heads]
    served = [Counter(head * groups // had for head in kept) for kept in queries]
    if len({times for layer in served for times in layer.values()}) > 1:
        raise ConfigurationError(
            f"heads: every {had // groups} heads share keys and values (num_key_value_heads={groups}), and of each "
            "such group that stays, as many must stay as of any other; keep or leave out whole groups"
        )
    return KeptHeads(queries, [sorted(layer) for layer in served], had, groups, head_size(*sizes))


def _check(heads: Sequence[Sequence[int]], layers: int, had: int) -> None:
    if not isinstance(heads, list | tuple) or not all(isinstance(kept, list | tuple) for kept in heads):
        raise ConfigurationError(f"heads={heads!r} must be a number of heads, or a list a layer of those that stay")
    if len(heads) != layers:
        raise ConfigurationError(f"heads lists {len(heads)} layers, the source has {layers}")
    for number, kept in enumerate(heads):
        if not kept or not all(type(head) is int and 0 <= head < had for head in kept) or len(set(kept)) != len(kept):
            raise ConfigurationError(
                f"heads of layer {number} (the first is 0) are {list(kept)}: they must be from 1 to {had} different "
                f"whole numbers from 0 to {had - 1}, the source's heads"
            )
    counts = sorted(set(map(len, heads)))
    if len(counts) > 1:
        raise ConfigurationError(
            f"heads lists {counts[0]} heads for one layer and {counts[-1]} for another: each layer keeps as many"
        )


def leave_out_heads(placement: Placement, options: dict[str, Any], kept: KeptHeads) -> None:
    """Cut the weights in ``placement``, and the numbers in LinformerConfig's arguments ``options``, in place."""
    for found in filter(None, map(LAYER.fullmatch, list(placement.tensors))):
        if int(found[2]) < len(kept.queries):  # else it is refused, with other tensors that have no layer
            _cut_layer(placement, found[1], int(found[2]), kept)
    options |= {"num_attention_heads": len(kept.queries[0]), "head_dim": kept.head_dim}
    if options.get("num_key_value_heads") is not None:
        options["num_key_value_heads"] = len(kept.keys[0])


def _cut_layer(placement: Placement, name: str, number: int, kept: KeptHeads) -> None:
    queries, keys = kept.queries[number], kept.keys[number]
    _keep_constant(placement, name, kept.left_out()[number], kept)
    for side, heads, had in (
        ("query", queries, kept.num_heads), ("key", keys, kept.num_key_value_heads),
        ("value", keys, kept.num_key_value_heads),
    ):  # fmt: skip
        for part in ("weight", "bias"):
            _cut(placement, f"{name}{side}.{part}", heads, had, axis=0)
    _cut(placement, f"{name}output.weight", queries, kept.num_heads, axis=1)


def _keep_constant(placement: Placement, name: str, left_out: list[int], kept: KeptHeads) -> None:
    """What the heads ``left_out`` add whatever the text is goes to the output's bias, where there are biases."""
    value, bias, weight = (placement.tensors.get(name + x) for x in ("value.bias", "output.bias", "output.weight"))
    if value is None or bias is None or weight is None:
        return
    own = [head * kept.num_key_value_heads // kept.num_heads for head in left_out]
    constant = value.unflatten(0, (kept.num_key_value_heads, -1))[own].flatten().double()
    columns = weight.unflatten(1, (kept.num_heads, -1))[:, left_out].flatten(1).double()
    placement.tensors[f"{name}output.bias"] = (bias.double() + columns @ constant).to(bias.dtype)
    said = f"with what {len(left_out)} heads add to every token"
    placement.cut[f"{name}output.bias"] = (tuple(bias.shape), said)


def _cut(placement: Placement, name: str, heads: list[int], had: int, *, axis: int) -> None:
    tensor: Tensor | None = placement.tensors.get(name)
    if tensor is None or tensor.shape[axis] % had:  # refused later, with other shapes that do not fit
        return
    parts = tensor.unflatten(axis, (had, -1)).index_select(axis, torch.tensor(heads))
    placement.tensors[name] = parts.flatten(axis, axis + 1).contiguous()
    placement.cut[name] = (tuple(tensor.shape), f"{had} -> {len(heads)} heads")
