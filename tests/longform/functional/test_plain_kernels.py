"""Operations whose function says which kernel it takes, against float64: forward, gradient, gradient of gradients."""

from collections.abc import Callable

import pytest
import torch
from gradients import assert_near, gradients_of_gradients
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, linear, pad

from longform.functional.linear import linear_with_gelu
from longform.functional.norm import layer_norm as longform_norm
from longform.functional.slots import make_runs, mean_pool
from longform.layers.short_convolution import add_shifted, short_convolution
from strategies import generator, normal
from tolerances import assert_close

HALF, WIDE, EXACT = torch.bfloat16, torch.float32, torch.float64
Function = Callable[..., Tensor]


def convolved(x: Tensor, taps: Tensor) -> Tensor:
    return x + (pad(x, (0, 0, 4, 0)).unfold(1, 5, 1) * taps.T).sum(dim=3)  # (B, n, D, c)


def means(x: Tensor) -> Tensor:
    rest = (torch.arange(30) >= 2).expand(2, -1)
    slots = make_runs(None, rest, batch=2, length=30, device=x.device, sizes=(4,), slots=8)
    return mean_pool(x, runs=slots, limit=8, counted=rest)[0]


def exact_means(x: Tensor) -> Tensor:
    runs = torch.cat([x[:, :2] * 0, x[:, 2:], x.new_zeros(2, 2, x.shape[2])], dim=1).unflatten(1, (8, 4))
    return runs.sum(dim=2) / torch.tensor([2, *[4] * 6, 2]).to(x)[:, None]


def by_shifts(x: Tensor, taps: Tensor) -> Tensor:
    return add_shifted(x, x, taps, axis=1, before=4)


# The function, the same as it is written, shapes of its inputs, and their dtype.
CASES: dict[str, tuple[Function, Function, list[tuple[int, ...]], torch.dtype]] = {
    "norm": (lambda *x: longform_norm(*x, epsilon=1e-5), lambda x, *rest: layer_norm(x, (64,), *rest),
             [(2, 9, 64), (64,), (64,)], EXACT),
    "means": (means, exact_means, [(2, 30, 64)], EXACT),
    "convolution": (lambda *x: short_convolution(*x, before=4), convolved, [(2, 30, 16), (5, 16)], EXACT),
    "convolution, shifted": (by_shifts, convolved, [(2, 30, 16), (5, 16)], WIDE),
    "convolution, oneDNN": (lambda *x: short_convolution(*x, before=4), convolved, [(2, 30, 16), (5, 16)], WIDE),
    "linear with GELU": (linear_with_gelu, lambda *x: gelu(linear(*x)), [(2, 33, 64), (96, 64), (96,)], EXACT),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_forward_and_gradients_equal_float64(case):
    call, exact, shapes, dtype = CASES[case]
    source = generator(5)
    leaves = [normal(source, *shape, dtype=dtype) / (8 if len(shape) < 3 else 1) for shape in shapes]
    wide = [x.double().requires_grad_() for x in leaves]
    out = call(*(x.requires_grad_() for x in leaves))
    assert out.dtype == dtype
    assert_close(out, exact(*wide), scope="model")
    assert_near(gradients_of_gradients(out, leaves, dtype), gradients_of_gradients(exact(*wide), wide, dtype), dtype)


def test_a_convolution_is_not_rounded_under_autocast():
    source = generator(6)
    x, taps = normal(source, 2, 30, 16, dtype=WIDE), normal(source, 5, 16, dtype=WIDE)
    with torch.autocast("cpu", dtype=HALF):
        out = short_convolution(x, taps, before=2)
    assert torch.equal(out, short_convolution(x, taps, before=2))
    assert_close(out, short_convolution(x.double(), taps.double(), before=2))
