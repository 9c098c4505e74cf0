"""Stacks and attention layers of other Linformer packages, as ours: with the same outputs.

What differs is told apart here and nowhere else: which norms come first, whose keys are values too, what E is called
and which way round it stands, and biases that come after E, which a key's softmax does not see and a value's output
bias takes. Rows of E are not rescaled for shorter texts (``Projection.rescale``), since these packages do not.

Axes: D width, h heads, g heads of keys, k slots, N longest text.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from longform.errors import CheckpointError, ConfigurationError
from longform.layers.attention import LinformerAttention
from longform.layers.encoder import LinformerEncoder
from longform.layers.options import Projection
from longform.layers.sequence_projection import DenseProjection, SequenceProjection

Part = Mapping[str, Tensor]  # the weights of one layer, by their names in it
Linear = tuple[Tensor, Tensor | None]
PARTS = ("weight", "bias")


@dataclass
class Attention:
    """Weights of one attention layer: each (outputs, inputs) and a bias; ``matrices``: E, and F where it is not E, each
    (1 or h, k, N), with a bias (1 or h, k) or None.
    """

    query: Linear
    key: Linear
    value: Linear
    output: Linear
    matrices: list[Linear]
    heads: int


@dataclass(frozen=True)
class Package:
    """``layer``: a pattern that ends where a layer's own names begin, or that of a half of one, and finds its number.

    ``attention``: reads the weights of a layer's attention, of so many heads where they are said; ``rest``: names in a
    layer of the norm of its attention, of its feed-forward layers and of their norm.
    """

    layer: str
    attention: Callable[[Part, int | None], Attention]
    rest: tuple[str, str, str, str]
    pre_norm: bool
    epsilon: float = 1e-5


def load_linformer(
    source: nn.Module | Mapping[str, Tensor] | str | Path,
    *,
    package: str,
    num_heads: int | None = None,
    activation: str = "gelu",
) -> LinformerEncoder | LinformerAttention:
    """A LinformerEncoder with the outputs of another package's stack, or a LinformerAttention with those of its layer.

    ``source``: a module, a state_dict, or a file of one (safetensors, or read with ``weights_only``). ``package``:
    "lucidrains" (linformer) or "tatp22" (linformer-pytorch). ``num_heads``: where a state_dict does not tell.
    Embeddings and heads of a language model are left to the caller: the stack takes vectors.

    Raises CheckpointError for weights of another package, of another shape, or of what we have not (reversible layers,
    convolutions with a bias).
    """
    if package not in PACKAGES:
        raise CheckpointError(f"package={package!r} is not known; choose one of {', '.join(map(repr, PACKAGES))}")
    kind, weights = PACKAGES[package], _weights(source)
    num_heads = num_heads or _heads_of(source)
    layers = _layers(kind, weights)
    try:
        if not layers:
            return _attention(kind.attention(weights, num_heads))
        found = [kind.attention(layer, num_heads) for layer in layers]
        return _stack(kind, found, layers, activation)
    except KeyError as error:
        names = ", ".join(list(layers[0] if layers else weights)[:6])
        raise CheckpointError(
            f"weights of package={package!r} have a {error.args[0]!r} in each layer, and these have {names}, ...: is "
            "it another package, or a kind of layer (reversible, decoder, without feed-forward) that is not loaded?"
        ) from None
    except (RuntimeError, ConfigurationError) as error:
        raise CheckpointError(f"weights of package={package!r} have other shapes than ours: {error}") from error


def _heads_of(source: Any) -> int | None:
    if isinstance(source, nn.Module):
        names = ("num_heads", "heads", "nhead")
        found = (getattr(part, name, None) for part in source.modules() for name in names)
        return next((value for value in found if isinstance(value, int)), None)
    return None


def _weights(source: Any) -> dict[str, Tensor]:
    if isinstance(source, nn.Module):
        return dict(source.state_dict())
    if isinstance(source, Mapping):
        return dict(source)
    path = Path(source)
    if not path.is_file():
        raise CheckpointError(f'"{path}" is no file of weights (.safetensors, .bin or .pt)')
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(path)
    try:
        return dict(torch.load(path, map_location="cpu", weights_only=True))
    except Exception as error:  # torch raises of many kinds
        raise CheckpointError(f'"{path}" is not a file of weights alone (torch.load, weights_only): {error}') from error


def _layers(kind: Package, weights: Part) -> list[dict[str, Tensor]]:
    layers: dict[int, dict[str, Tensor]] = {}
    for name, x in weights.items():
        found = re.search(kind.layer, name)
        if found:
            layers.setdefault(int(found[1]), {})[name[found.start(1) + len(found[1]) + 1 :]] = x
    if kind is PACKAGES["tatp22"]:  # attention and feed-forward take turns
        halves = [layers[number] for number in sorted(layers)]
        first = [{f"0.{name}": x for name, x in half.items()} for half in halves[::2]]
        return [a | {f"1.{name}": x for name, x in b.items()} for a, b in zip(first, halves[1::2], strict=True)]
    return [layers[number] for number in sorted(layers)]


def _stack(kind: Package, found: list[Attention], layers: list[dict[str, Tensor]], activation: str) -> LinformerEncoder:
    norm, inner, outer, last = kind.rest
    first = found[0]
    every = [matrix for layer in found for matrix, _ in layer.matrices]
    one = all(len(layer.matrices) == 1 for layer in found) and all(torch.equal(x, every[0]) for x in every)
    layerwise = one and len(found) > 1 and len(every[0]) == 1
    sizes = _options(first, layerwise=layerwise)
    made = LinformerEncoder(
        first.query[0].shape[1], len(found), first.heads, short_convolution=0, activation=activation,
        intermediate_size=len(layers[0][f"{inner}.weight"]), pre_norm=kind.pre_norm, final_norm=False,
        norm_epsilon=kind.epsilon, **sizes,
    )  # fmt: skip
    for block, attention, layer in zip(made.layers, found, layers, strict=True):
        parts: Any = block
        _fill(parts.attention, attention)
        targets = (
            (norm, parts.attention_norm),
            (inner, parts.feed_forward.intermediate),
            (outer, parts.feed_forward.output),
            (last, parts.feed_forward_norm),
        )
        for name, target in targets:
            target.load_state_dict({"weight": layer[f"{name}.weight"], "bias": layer[f"{name}.bias"]})
    if layerwise and made.shared_projection is not None:
        _fill_matrices(made.shared_projection, first)
    return made.to(first.query[0].dtype)


def _attention(found: Attention) -> LinformerAttention:
    made = LinformerAttention(found.query[0].shape[1], found.heads, **_options(found))
    _fill(made, found)
    return made.to(found.query[0].dtype)


def _options(found: Attention, *, layerwise: bool = False) -> dict[str, Any]:
    matrix, bias = found.matrices[0]
    sharing = "none" if len(matrix) > 1 else "headwise" if len(found.matrices) > 1 else "key_value"
    head_dim = len(found.query[0]) // found.heads
    return {
        "max_length": matrix.shape[2],
        "projected_length": matrix.shape[1],
        "head_dim": head_dim,
        "num_key_value_heads": len(found.key[0]) // head_dim,
        "share_kv": found.value[0] is found.key[0],
        "projection": Projection(
            "linear", "layerwise" if layerwise else sharing, "normal", rescale=False, bias=bias is not None
        ),
    }


@torch.no_grad()
def _fill(layer: LinformerAttention, found: Attention) -> None:
    for own, (weight, bias) in (
        (layer.query, found.query),
        (layer.key, found.key),
        (layer.value, found.value),
        (layer.output, found.output),
    ):
        own.load_state_dict({"weight": weight, "bias": torch.zeros(len(weight)) if bias is None else bias})
    for projection in layer.groups:
        _fill_matrices(projection, found)


@torch.no_grad()
def _fill_matrices(projection: Any, found: Attention) -> None:
    assert isinstance(projection, SequenceProjection)
    assert isinstance(projection, DenseProjection)
    sides = projection.key_projection, projection.value_projection
    for own, (matrix, _) in zip((side for side in sides if side is not None), found.matrices, strict=True):
        own.matrix = nn.Parameter(matrix.clone())  # k may be more than N, which ours would not begin with
    for own, (_, bias) in ((projection.key_bias, found.matrices[0]), (projection.value_bias, found.matrices[-1])):
        if own is not None and bias is not None:
            own.data = bias.clone()


def _lucidrains(layer: Part, heads: int | None) -> Attention:
    names = {name.removeprefix("0.fn."): x for name, x in layer.items()}
    query, key = names["to_q.weight"], names["to_k.weight"]
    value = names.get("to_v.weight", key)  # share_kv: values are keys, and F is E
    matrices = [names["proj_k"], *([names["proj_v"]] if "proj_v" in names else [])]
    return Attention(
        (query, None),
        (key, None),
        (value, None),
        (names["to_out.weight"], names["to_out.bias"]),
        [(matrix.T[None], None) for matrix in matrices],
        _said(heads),
    )


def _stacked(names: Mapping[str, Tensor], side: str, heads: int) -> Linear:
    """E or F of all heads, of the first alone where they are equal, with biases."""
    matrices = [names[f"heads.{head}.{side}.weight"] for head in range(heads)]
    biases = [names[f"heads.{head}.{side}.bias"] for head in range(heads)]
    used = slice(None) if any(not torch.equal(x, matrices[0]) for x in matrices) else slice(1)
    return torch.stack(matrices[used]), torch.stack(biases[used])


def _tatp22(layer: Part, heads: int | None) -> Attention:
    names = {name.removeprefix("0.fn."): x for name, x in layer.items()}
    count = len([name for name in names if re.fullmatch(r"to_q\.\d+\.weight", name)])
    each = range(max(count, 1))  # a first head that is missing is told by name
    q, k, v = (torch.cat([names[f"to_{side}.{head}.weight"] for head in each]) for side in "qkv")
    if names["heads.0.E.weight"].dim() == 3:
        raise CheckpointError(
            "a dense convolution (method='convolution') is none of ours; only 'learnable' E is loaded"
        )
    sides = [_stacked(names, side, len(each)) for side in ("E", "F")]
    same = len(sides[0][0]) == 1 and all(torch.equal(names[f"heads.0.E.{x}"], names[f"heads.0.F.{x}"]) for x in PARTS)
    kept = sides[:1] if same else sides
    return Attention((q, None), (k, None), (v, None), (names["w_o.weight"], names["w_o.bias"]), kept, count)


def _said(heads: int | None) -> int:
    if heads is None:
        raise CheckpointError("these weights do not tell how many heads they have: say num_heads=")
    return heads


PACKAGES = {
    "lucidrains": Package(
        r"(?:^|\.)net\.layers\.(\d+)\.", _lucidrains, ("0.norm", "1.fn.w1", "1.fn.w2", "1.norm"), pre_norm=True
    ),
    "tatp22": Package(r"(?:^|\.)seq\.(\d+)\.", _tatp22, ("0.norm", "1.fn.w_1", "1.fn.w_2", "1.norm"), pre_norm=False),
}
