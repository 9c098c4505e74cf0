"""Which attention heads stay: without the others, a layer's output on sample texts changes least.

How alike two heads' maps are does not tell: their values differ, and what is lost is the product of both
(docs/lab/spectrum.md has the measurement).

Axes: h heads, d head dimension, D hidden, n tokens.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from longform.data.batching import tokenize
from longform.data.given import source_of
from longform.data.text import read_documents
from longform.errors import ConfigurationError, ConversionError, DataError

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
