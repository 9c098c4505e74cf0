"""An encoder whose attention maps are the best ones of rank k: what a k would give if a projection found the SVD.

Axes: h heads, n tokens, d head dimension.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from longform.spectrum.capture import attention_modules
from longform_lab.spectrum.shared_maps import last_states


def best_maps(maps: Tensor, ranks: Sequence[int]) -> Tensor:
    """The nearest map of rank k to each of ``maps`` (1, h, n, n), with a k each.

    P V Vᵀ with V the first k right singular vectors, the last eigenvectors of PᵀP: half the time of an SVD.
    """
    vectors = torch.linalg.eigh(maps.mT @ maps).eigenvectors
    place = torch.arange(maps.shape[-1])
    kept = place >= maps.shape[-1] - torch.tensor(ranks)[:, None]
    vectors = vectors * kept[:, None]
    return (maps @ vectors) @ vectors.mT


@contextmanager
def rank_k(model: Any, chosen: Sequence[int | Sequence[int]]) -> Generator[None]:
    """Inside, the maps of a BERT encoder have the ranks ``chosen``: a k a layer, or one a head of it."""
    handles: list[Any] = []
    for (module, _), k in zip(attention_modules(model), chosen, strict=True):
        heads = model.config.num_attention_heads
        handles += _hooks(module, [k] * heads if isinstance(k, int) else k)
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _hooks(module: Any, ranks: Sequence[int]) -> list[Any]:
    values: list[Tensor] = []

    def after(module: nn.Module, args: Any, output: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        low = best_maps(output[1], ranks)
        value = values.pop().unflatten(2, (len(ranks), -1)).transpose(1, 2)
        return (low @ value).transpose(1, 2).flatten(2), low

    kept = module.value.register_forward_hook(lambda _module, _args, output: values.append(output))
    return [kept, module.register_forward_hook(after)]


@torch.no_grad()
def rank_k_cosines(model: Any, texts: Sequence[Tensor], chosen: Sequence[int | Sequence[int]]) -> list[float]:
    """Cosine of the mean-pooled embedding with maps of the ranks ``chosen`` to the model's own, on each text (m,)."""
    cosines = []
    for ids, own in zip(texts, last_states(model, texts), strict=True):
        with rank_k(model, chosen):
            low = last_states(model, [ids])[0]
        cosines.append(float(cosine_similarity(own.mean(1), low.mean(1)).mean()))
    return cosines
