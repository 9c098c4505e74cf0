"""Slow twins of rotary positions and of local attention, one token at a time, in float64.

A pair of features is a complex number, and a position turns it: z exp(i p f), f radians a token. Nothing here is
imported by the fast functions, and nothing of theirs is imported here.
"""

import cmath

import torch
from torch import Tensor


def reference_rotated(x: Tensor, positions: list[int], frequencies: list[float]) -> Tensor:
    """x (n, d): features i and i + r are a pair, r = len(frequencies); the features beyond 2 r are left alone."""
    out, pairs = x.double().clone(), len(frequencies)
    for t, position in enumerate(positions):
        for i, frequency in enumerate(frequencies):
            turn = cmath.exp(1j * position * frequency)
            real, imaginary = out[t, i].clone(), out[t, i + pairs].clone()
            out[t, i] = real * turn.real - imaginary * turn.imag
            out[t, i + pairs] = real * turn.imag + imaginary * turn.real
    return out


def reference_local(query: Tensor, key: Tensor, value: Tensor, valid: list[bool], reach: int) -> Tensor:
    """query, key, value (n, d) of one head: each token over the valid ones at most ``reach`` away; zeros where none."""
    query, key, value = (x.double() for x in (query, key, value))
    rows = []
    for t, one in enumerate(query):
        near = [s for s in range(len(key)) if abs(s - t) <= reach and valid[s]]
        if not near:
            rows.append(torch.zeros_like(one))
            continue
        weights = torch.stack([(one * key[s]).sum() / len(one) ** 0.5 for s in near]).softmax(dim=0)
        rows.append(sum(weight * value[s] for weight, s in zip(weights, near, strict=True)))
    return torch.stack(rows)
