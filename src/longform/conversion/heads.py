"""Attention heads left out in a conversion, with their parts of the weights, and the choice of those that stay.

What a head adds to every token alike, the product of its value's bias with the output's weight, is known without any
text (attention weights sum to 1) and goes to the output's bias.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from longform.conversion.weights import Placement
from longform.data.batching import tokenize
from longform.data.given import source_of
from longform.data.text import read_documents
from longform.errors import ConfigurationError, ConversionError, DataError
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
        ("query", queries, kept.num_heads),
        ("key", keys, kept.num_key_value_heads),
        ("value", keys, kept.num_key_value_heads),
    ):
        for part in ("weight", "bias"):
            _cut(placement, f"{name}{side}.{part}", heads, had, axis=0)
    _cut(placement, f"{name}output.weight", queries, kept.num_heads, axis=1)


def _keep_constant(placement: Placement, name: str, left_out: list[int], kept: KeptHeads) -> None:
    """Move to the output's bias what the heads ``left_out`` add to every text, where there are biases."""
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


TEXTS = 16  # the first ones are enough: a layer's products are means over thousands of tokens


class _Moments:
    """Sums over tokens of what an output layer is given, (n, h d) at a time, and of its products; float64."""

    def __init__(self, layer: nn.Linear) -> None:
        self.layer, width = layer, layer.in_features
        self.count, self.sum, self.products = 0, torch.zeros(width).double(), torch.zeros(width, width).double()

    def add(self, context: Tensor) -> None:
        x = context.flatten(0, -2).double().cpu()
        self.count, self.sum, self.products = self.count + len(x), self.sum + x.sum(0), self.products + x.T @ x

    def covariance(self) -> Tensor:
        mean = self.sum / self.count
        return self.products / self.count - mean[:, None] * mean


def choose_heads(model: Any, tokenizer: Any, texts: Any, *, keep: int, max_length: int) -> list[list[int]]:
    """The ``keep`` heads of each layer of the Longform ``model`` that stay.

    ``texts``: names of files, or texts in memory, of which the first 16 are read, cut at ``max_length`` tokens. Of
    heads that share keys and values, all stay or none. Raises ConfigurationError for a number that cannot be,
    ConversionError without a tokenizer, DataError for the texts.
    """
    attentions = [layer.attention for layer in model.base_model.encoder.layers]
    heads = model.config.num_attention_heads
    together = heads // (model.config.num_key_value_heads or heads)
    _check_choice(keep, heads, together, texts, tokenizer)
    moments = [_Moments(attention.output) for attention in attentions]
    with ExitStack() as hooks, torch.inference_mode():
        for attention, each in zip(attentions, moments, strict=True):
            handle = attention.output.register_forward_pre_hook(lambda _layer, given, each=each: each.add(given[0]))
            hooks.callback(handle.remove)
        for ids in _sample(texts, tokenizer, max_length):
            model.base_model(input_ids=ids[None].to(model.device))
    products = (
        output_products(each.covariance(), each.layer.weight.detach().double().cpu(), heads) for each in moments
    )
    return [needed_heads(of_layer, keep, together=together) for of_layer in products]


def _check_choice(keep: int, heads: int, together: int, texts: Any, tokenizer: Any) -> None:
    if not 1 <= keep <= heads or keep % together:
        whole = "" if together == 1 else f", and a multiple of the {together} that share keys and values"
        raise ConfigurationError(f"heads={keep} must be from 1 to the source's {heads}{whole}")
    if texts is None:
        raise ConfigurationError(
            f"heads={keep} needs head_texts (--head-texts): sample texts on which the heads that matter least are "
            "found; or give lists of the heads of each layer that stay"
        )
    if tokenizer is None:
        raise ConversionError("the choice of heads reads texts, and the source has no tokenizer: give one (tokenizer=)")


def _sample(texts: Any, tokenizer: Any, max_length: int) -> Iterator[Tensor]:
    documents = list(islice(read_documents(source_of(texts)), TEXTS))
    if not documents:
        raise DataError("head_texts has no text")
    for document in documents:
        yield torch.tensor(tokenize([document], tokenizer, max_length=max_length)[0].input_ids)


def output_products(covariance: Tensor, weight: Tensor, heads: int) -> Tensor:
    """Mean inner product of every two heads' parts of a layer's output, less their means: (h, h).

    ``covariance`` (h d, h d) of the contexts that the output's ``weight`` (D, h d) multiplies.
    """
    products = covariance * (weight.T @ weight)
    return products.unflatten(1, (heads, -1)).sum(2).unflatten(0, (heads, -1)).sum(1)


def needed_heads(products: Tensor, keep: int, *, together: int = 1) -> list[int]:
    """The ``keep`` heads that stay when one after another goes without which the output changes least.

    ``products`` (h, h): the squared change without some heads is the sum of their rows and columns. ``together``: so
    many neighbours go at once.
    """
    products = products.unflatten(1, (-1, together)).sum(2).unflatten(0, (-1, together)).sum(1)
    gone: list[int] = []
    stay = list(range(len(products)))
    while len(stay) * together > keep:
        without = {head: [*gone, head] for head in stay}
        least = min(stay, key=lambda head: float(products[without[head]][:, without[head]].sum()))
        gone.append(least)
        stay.remove(least)
    return [head * together + part for head in stay for part in range(together)]
