"""Biases on the logits of attention by the distance from query to key: the relative positions of T5 and MPNet.

A head has one number for each bucket of distances. Near distances have a bucket each, farther ones share more and more
of them, and from the reach r on all distances on one side have the same. So a slot whose tokens are at least r away
from a query has one bias, exactly, however many they are.

A bias by distance is a tensor (h, 2 r + 1): of the distances -r to r, key position minus query position; farther ones
have what stands at the end on their side.

Axes: h heads, q queries, m keys.
"""

import math
from functools import lru_cache

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import unset_fake_temporarily


@lru_cache(maxsize=32)
def distance_buckets(num_buckets: int, max_distance: int) -> tuple[int, ...]:
    """The buckets of the distances -r to r, 2 r + 1 of ``num_buckets``; r is at most ``max_distance``.

    Half of them are for keys behind the query, half for those after it. Of each half, one half has a distance each,
    and the others grow by equal factors up to ``max_distance``. In float32 as in Hugging Face, whose roundings count.
    """
    side = num_buckets // 2
    exact = side // 2
    with unset_fake_temporarily():  # which has no values
        distance = torch.arange(max_distance + 1, device="cpu")
        growth = torch.log(distance.float() / exact) / math.log(max_distance / exact)
        wide = (exact + (growth * (side - exact)).clamp(min=0.0).long()).clamp(max=side - 1)
        buckets = torch.where(distance < exact, distance, wide).tolist()
    reach = buckets.index(side - 1)
    ahead = [side + bucket for bucket in buckets[1 : reach + 1]]
    return (*reversed(buckets[: reach + 1]), *ahead)


def saturated_distance(num_buckets: int, max_distance: int) -> int:
    """The reach r: from it on all distances on one side have one bucket."""
    return len(distance_buckets(num_buckets, max_distance)) // 2


def between(bias: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
    """The ``bias`` (h, 2 r + 1) between positions, long (q) and (m): (h, q, m)."""
    reach = bias.shape[1] // 2
    return bias[:, (keys - queries[:, None]).clamp(-reach, reach) + reach]


def beyond(bias: Tensor, before: Tensor) -> Tensor:
    """The ``bias`` (h, 2 r + 1) of keys farther away than r: ``before``, bool (..., S), says which stand before the
    query: (h, ..., S).
    """
    ends = bias.view(bias.shape[0], *(1,) * before.dim(), -1)
    return torch.where(before, ends[..., 0], ends[..., -1])
