"""Projections E and F fitted to captured attention by gradient descent: as dense matrices, or as convolutions.

Axes: T texts, h heads, n tokens, d head dimension, k slots, C = ceil(n / k) tokens a slot. Every head has its own.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from longform_lab.bounds.attention_samples import AttentionSample
from longform_lab.bounds.random_projection import shortened_weights

WARM_UP = 0.1  # of the steps


class Projections(NamedTuple):
    """E and F (h, k, n), or (k, n) where heads share them."""

    key: Tensor
    value: Tensor


def mean_projections(slots: int, length: int) -> Projections:
    """Means over runs of ceil(n / k) tokens, the last one shorter; slots that no token is left for are dropped."""
    size = math.ceil(length / slots)
    home = torch.arange(length) // size
    inside = (home == torch.arange(math.ceil(length / size))[:, None]).float()
    means = inside / inside.sum(1, keepdim=True)
    return Projections(means, means)


def fitted_dense(sample: AttentionSample, slots: int, *, seed: int, **how: Any) -> Projections:
    """E and F free, starting from the means, with rows of zeros turned random where those are fewer than ``slots``.

    ``how``: objective ("map" or "output"), steps, learning_rate.
    """
    heads, length = sample.logits.shape[1:3]
    start = mean_projections(slots, length).key
    spare = torch.randn(slots - len(start), length, generator=torch.Generator().manual_seed(seed)) / length
    full = torch.cat([start, spare]).to(sample.logits.device)
    matrices = [full.expand(heads, slots, length).clone().requires_grad_() for _ in range(2)]

    return _fitted(sample, lambda: Projections(*matrices), matrices, seed=seed, **how)


def fitted_convolution(sample: AttentionSample, slots: int, **how: Any) -> Projections:
    """E and F whose rows are one kernel of C taps, shifted by C from slot to slot; starting from the means.

    One kernel a head, the same for its d channels: with a kernel a channel there is no one map of n x n.
    ``how``: as in ``fitted_dense``, and seed.
    """
    heads, length = sample.logits.shape[1:3]
    start = mean_projections(slots, length).key.to(sample.logits.device)
    size = math.ceil(length / slots)
    taps = [start.new_full((heads, size), 1.0 / size).requires_grad_() for _ in range(2)]
    support = (start > 0).float()
    place = torch.arange(length, device=start.device) % size

    def made() -> Projections:
        return Projections(*(support * kernel[:, None, place] for kernel in taps))

    return _fitted(sample, made, taps, **how)


def map_error(found: Tensor, exact: Tensor) -> Tensor:
    """‖P~ - P‖ / ‖P‖, Frobenius: (..., n, n) -> (...); also of outputs (..., n, d)."""
    return squared_error(found, exact).sqrt()


def squared_error(found: Tensor, exact: Tensor) -> Tensor:
    """``map_error``'s square, whose gradient is finite where there is no error, as at k = n."""
    return (found - exact).square().sum((-2, -1)) / exact.square().sum((-2, -1))


def _fitted(
    sample: AttentionSample,
    made: Callable[[], Projections],
    parameters: list[Tensor],
    *,
    objective: str,
    steps: int,
    learning_rate: float,
    seed: int,
) -> Projections:
    """Adam on the mean over heads of the squared relative error of "map" or "output", a text a step."""
    optimizer = torch.optim.Adam(parameters, lr=learning_rate)
    warm = max(1, round(WARM_UP * steps))

    def rate(step: int) -> float:
        rise = min(1.0, (step + 1) / warm)
        return rise * 0.5 * (1 + math.cos(math.pi * max(0, step - warm) / max(1, steps - warm)))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    generator = torch.Generator().manual_seed(seed)
    order: list[int] = []
    for _ in range(steps):
        order = order or torch.randperm(len(sample.logits), generator=generator).tolist()
        text = order.pop()
        logits, values = sample.logits[text], sample.values[text]
        exact = logits.softmax(-1)
        key, value = made()
        weights = shortened_weights(logits, key)
        if objective == "map":
            error = squared_error(weights @ value, exact)
        else:
            error = squared_error(weights @ (value @ values), exact @ values)
        optimizer.zero_grad()
        error.mean().backward()
        optimizer.step()
        schedule.step()
    return Projections(*(matrix.detach() for matrix in made()))
