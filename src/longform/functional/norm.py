"""Layer normalisation, of a sum if there is one, by torch or in inference by a kernel of csrc/rows.c or of Triton.

Torch's takes 0.39 ms for 2,048 rows of 768 features in bfloat16 on two cores with AVX512-bf16, the kernel 0.29; in
place it also spares the memory of its output, which is in no cache.

Axes: n tokens, F features.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import layer_norm as torch_layer_norm

from longform.functional import dispatch
from longform.functional.conditions import BFLOAT16, EAGER, LIBRARY, NO_GRADIENT, PLAIN, Call
from longform.functional.dispatch import Condition, Kernel
from longform.functional.native.jobs import NormJob, pointer
from longform.functional.native.library import run
from longform.functional.triton_support import DEVICE, DTYPES, HAS_TRITON, OPTIONS, UNSEEN, WANTED_ON_CUDA, attempt

MOST_FEATURES = 4096  # csrc/jobs.h
FEATURE_MULTIPLE = 64


@dataclass(eq=False)
class NormCall(Call):
    """x (..., F), weight and bias (F) or None; ``in_place``: the output may be x's memory; ``residual`` (..., F) or
    None: added to x before.
    """

    x: Tensor
    weight: Tensor | None
    bias: Tensor | None
    epsilon: float
    in_place: bool
    residual: Tensor | None

    def __post_init__(self) -> None:
        given = (self.x, self.weight, self.bias, self.residual)
        self.tensors = tuple(x for x in given if x is not None)
        self.options = tuple(x is None for x in given)


def _summed(call: NormCall) -> Tensor:
    return call.x if call.residual is None else call.residual + call.x


def _by_torch(call: NormCall) -> Tensor:
    x = _summed(call)
    return torch_layer_norm(x, x.shape[-1:], call.weight, call.bias, call.epsilon)


def _by_triton(call: NormCall) -> Tensor:
    from longform.functional import norm_programs as programs

    x, features = call.x, call.x.shape[-1]
    out, rows = torch.empty_like(x), x.numel() // features
    sizes: Any = {"FEATURES": features, "WIDE": 1 << (features - 1).bit_length(), **OPTIONS}

    def run() -> Tensor:
        with torch.cuda.device_of(x):
            programs.normalise[(rows,)](x, call.residual, call.weight, call.bias, out, call.epsilon, **sizes)
        return out

    return attempt(("norm", x.dtype, features), run)


def _compiled(call: NormCall) -> Tensor:
    x, features = _summed(call), call.x.shape[-1]
    out = x if call.in_place or call.residual is not None else torch.empty_like(x)
    run(NormJob(
        x=pointer(x, torch.bfloat16, *x.shape), out=pointer(out, torch.bfloat16, *x.shape),
        weight=pointer(call.weight, torch.bfloat16, features), bias=pointer(call.bias, torch.bfloat16, features),
        rows=x.numel() // features, features=features, epsilon=call.epsilon,
    ))  # fmt: skip
    return out


def _contiguous(call: Any) -> bool:
    for x in call.tensors:  # noqa: SIM110
        if not x.is_contiguous():
            return False
    return True


def _is_affine(call: Any) -> bool:
    return call.weight is not None and call.bias is not None


def _suits_triton(call: Any) -> bool:
    return 0 < call.x.shape[-1] <= MOST_FEATURES and call.x.dtype in DTYPES


def _same_shape(call: Any) -> bool:
    x, other = call.x, call.residual
    return x.numel() > 0 and (other is None or (other.shape == x.shape and other.dtype == x.dtype))


def _no_autocast(call: Any) -> bool:
    return not torch.is_autocast_enabled(call.x.device.type)


EQUAL = Condition("numbers to normalise, and a residual like them", _same_shape)
CONTIGUOUS = Condition("contiguous tensors", _contiguous, of_values=True)

NORM = dispatch.operation(
    "norm",
    Kernel("compiled", _compiled, (
        BFLOAT16, EAGER, PLAIN, NO_GRADIENT,
        Condition("a weight and a bias", _is_affine), CONTIGUOUS, EQUAL,
        Condition(f"a multiple of {FEATURE_MULTIPLE} features, at most {MOST_FEATURES}", lambda call: (
            call.x.shape[-1] % FEATURE_MULTIPLE == 0 and call.x.shape[-1] <= MOST_FEATURES
        )), LIBRARY,
    )),
    Kernel("triton", _by_triton, (
        WANTED_ON_CUDA, NO_GRADIENT, UNSEEN, CONTIGUOUS, EQUAL, Condition("no autocast", _no_autocast, of_values=True),
        Condition(f"1 to {MOST_FEATURES} features in float32, bfloat16 or float16", _suits_triton),
        DEVICE, HAS_TRITON,
    )),
    Kernel("torch", _by_torch),
)  # fmt: skip


def layer_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    *,
    epsilon: float,
    in_place: bool = False,
    residual: Tensor | None = None,
) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) * weight + bias over the last axis: x (..., F), weight, bias (F) -> (...,
    F).

    ``in_place``: nobody needs x afterwards, its memory may be the output's. ``residual`` (..., F): x plus that is
    normalised.
    """
    return dispatch.run(NORM, NormCall(x, weight, bias, epsilon, in_place, residual))
