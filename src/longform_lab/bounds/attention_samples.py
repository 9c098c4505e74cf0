"""Samples of attention to try projections on: captured from a model on texts of n tokens, or made at random.

Axes: T texts, h heads, n tokens, d head dimension.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from longform.data.batching import tokenize
from longform.data.text import Document
from longform.errors import ConfigurationError, DataError
from longform_lab.spectrum.capture import captured_layers

ALIGNED = 64  # rows of the sample of that name


class AttentionSample(NamedTuple):
    """Maps under a name: ``logits`` A (T, h, n, n), before the softmax over all n tokens; ``values`` V (T, h, n, d).

    ``layer`` is 0 for the first and None where no model gave them; float32. Some maps have fewer than n rows.
    """

    name: str
    layer: int | None
    logits: Tensor
    values: Tensor


def random_sample(*, length: int, head_size: int, generator: torch.Generator) -> AttentionSample:
    """Four maps with logits N(0, 1), and values N(0, 1)."""
    logits = torch.randn(1, 4, length, length, generator=generator)
    return AttentionSample("random", None, logits, torch.randn(1, 4, length, head_size, generator=generator))


def aligned_sample(*, length: int, head_size: int, generator: torch.Generator) -> AttentionSample:
    """64 peaked rows (logits N(0, 3²)), each a map alone, which every column of its values is too: no pair is harder.

    x RᵀR x is a chi-square variable, with the largest variance, 2/k, that x RᵀR y can have at given norms.
    """
    row = 3.0 * torch.randn(1, ALIGNED, 1, length, generator=generator)
    values = row.softmax(-1).transpose(2, 3).expand(-1, -1, -1, head_size)
    return AttentionSample("aligned", None, row, values.contiguous())


def texts_of_length(tokenizer: Any, documents: Iterable[Document | str], *, length: int, count: int) -> Tensor:
    """Token ids, long (count, n), of the first ``count`` texts of at least ``length`` tokens, cut there.

    Raises DataError where there are fewer.
    """
    rows, seen = [], 0
    for document in documents:
        seen += 1
        ids = tokenize([document], tokenizer, max_length=length)[0].input_ids
        if len(ids) == length:
            rows.append(ids)
        if len(rows) == count:
            return torch.tensor(rows)
    raise DataError(
        f"{len(rows)} of {seen} texts have {length} tokens or more, {count} are needed: give more or longer texts, a "
        "smaller --length, or fewer --fit-texts, --held-out-texts or --trial-texts"
    )


def spread(count: int, wanted: int) -> list[int]:
    """``wanted`` of the numbers 0 to ``count`` - 1, from the first to the last, evenly; all where there are no more."""
    return np.linspace(0, count - 1, min(wanted, count)).round().astype(int).tolist()


def captured_samples(model: Any, ids: Tensor, *, layers: Sequence[int], head_count: int) -> list[AttentionSample]:
    """Logits and values of ``layers`` (0 is the first) on texts ids (T, n), one text in the model at a time.

    All of them are in memory together: T h n² numbers a layer. Raises ConfigurationError for a model that computes
    no logits of its own, and what ``captured_layers`` raises.
    """
    found: dict[int, list[tuple[Tensor, Tensor]]] = {layer: [] for layer in layers}
    for row in ids.to(model.device):
        for captured in captured_layers(model, row[None]):
            if captured.layer in found:
                if captured.logits is None or captured.values is None:
                    raise ConfigurationError(_no_logits(model))
                heads = spread(captured.logits.shape[1], head_count)
                found[captured.layer].append((captured.logits[0, heads], captured.values[0, heads]))
            if captured.layer == max(layers):
                break
    return [
        AttentionSample(f"layer {layer + 1}", layer, *(torch.stack(part) for part in zip(*rows, strict=True)))
        for layer, rows in found.items()
    ]


def _no_logits(model: Any) -> str:
    name = model.config._name_or_path or type(model).__name__
    return (
        f"{name} (model_type {model.config.model_type!r}) does not compute softmax(QKᵀ/√d)V from queries, keys and "
        "values one by one, which the theorems are about: give a BERT, RoBERTa, DistilBERT or ELECTRA encoder"
    )
