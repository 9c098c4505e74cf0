"""Every kernel of every table against the float64 twin of its operation: forward, gradient, gradient of gradients."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import pytest
import torch
from kernel_tables import only
from torch import Tensor
from torch.nn.functional import gelu, layer_norm
from torch.nn.functional import linear as exact_linear
from window_cases import Inputs

from longform.functional import dispatch
from longform.functional.attention import slot_attention
from longform.functional.linear import onednn, pack, packed_linear, trained_feed_forward, trained_linear
from longform.functional.linear.amx import tiled
from longform.functional.norm import layer_norm as longform_norm
from longform.functional.short_convolution import short_convolution
from longform.functional.slots import Memory, make_slots, mean_pool
from longform.functional.window import windowed_attention
from longform.functional.window.call import NO_SELECTION
from strategies import Text, generator, normal
from tolerances import assert_close

HALF, WIDE = torch.bfloat16, torch.float32
BF16 = {"amx", "amx_training", "compiled", "compiled_training"}
FLOAT = {"triton", "channels_last"}  # which take no float64; Triton's interpreter computes here
ONEDNN = {"onednn"}  # in bfloat16 on machines that multiply it
WITHOUT_GRADIENT = {"amx", "compiled", "onednn", "single_tokens", "documents", "sdpa"}
ON_A_GPU = {("linear", "epilogue")}  # tests/device
KERNELS = [
    (operation, kernel.name)
    for operation, kernels in dispatch.OPERATIONS.items()
    for kernel in kernels
    if (operation, kernel.name) not in ON_A_GPU
]
TRAINED = [
    (operation, kernel)
    for operation, kernel in KERNELS
    if operation != "document"
    and (operation, kernel) not in {("norm", "triton"), ("slot_means", "triton")}
    and (kernel not in WITHOUT_GRADIENT or (operation, kernel) == ("attention", "sdpa"))
]


SELECTING = [
    (operation, kernel.name)
    for operation in ("window", "document")
    for kernel in dispatch.OPERATIONS[operation]
    if kernel.name != "single_tokens" and NO_SELECTION not in kernel.needs
]


def with_selection(kernels: list[tuple[str, str]]) -> list[tuple[str, str, int]]:
    """``kernels`` as they are, and those that take selected slots with two of these."""
    return [*((*pair, 0) for pair in kernels), *((*pair, 2) for pair in kernels if pair in SELECTING)]


class Case(NamedTuple):
    """Leaves, the operation on them, and the same in float64."""

    leaves: list[Tensor]
    call: Callable[..., Tensor]
    exact: Callable[..., Tensor]


def attention_case(dtype: torch.dtype) -> Case:
    source = generator(1)
    leaves = [normal(source, 2, 3, n, 32, dtype=dtype) for n in (40, 50, 50)]
    mask = torch.arange(50) < torch.tensor([[50], [30]])

    def exact(query, key, value):
        logits = query @ key.transpose(-1, -2) / 32**0.5
        return logits.masked_fill(~mask[:, None, None], -torch.inf).softmax(dim=-1) @ value

    return Case(leaves, lambda *x: slot_attention(*x, slot_mask=mask)[0], exact)


def window_case(dtype: torch.dtype, selected: int) -> Case:
    """Held against the twin of tests/reference, key by key; the other cases of a window against its formula."""
    mask = (torch.arange(90) < torch.tensor([[90], [61]])).long()
    inputs = Inputs((8, 4, True, 23, Text(2, 90, mask)), 3, dtype, sinks=1, selected=selected)

    def exact(*x):
        inputs.heads, inputs.memory = list(x[:3]), list(x[3:])
        return torch.where(inputs.defined, inputs.twin(20.0), 0.0)

    return Case([*inputs.heads, *inputs.memory], _windowed(inputs), exact)


def document_case(dtype: torch.dtype, selected: int) -> Case:
    source = generator(4)
    shapes = [(2, 2, n, 32) for n in (200, 200, 200, 51, 51)]
    mask = (torch.arange(200) < torch.tensor([[200], [61]])).long()
    inputs = Inputs((16, 4, True, 50, Text(2, 200, mask)), 3, torch.float64, sinks=1, selected=selected)
    return _by_formula([normal(source, *shape, dtype=dtype) for shape in shapes], _windowed(inputs))


def single_tokens_case(dtype: torch.dtype) -> Case:
    source = generator(2)
    leaves = [normal(source, 2, 2, 40, 32, dtype=dtype) for _ in range(3)]
    slots = make_slots(None, batch=2, length=40, device=torch.device("cpu"), sizes=(1,), slots=40)
    options = {"window": 8, "memory_budget": 5.0, "slots_are_tokens": True}
    return _by_formula(leaves, lambda *x: windowed_attention(*x, lambda: Memory(*x[1:], None, slots), **options)[0])


def _windowed(inputs: Inputs) -> Callable[..., Tensor]:
    """Attention with a window of query, key, value, and the keys and values of slots; the rest as in ``inputs``."""

    def call(*x):
        inputs.heads, inputs.memory = list(x[:3]), list(x[3:])
        return inputs.fast("sdpa", 20.0)[0]

    return call


def _by_formula(leaves: list[Tensor], call: Callable[..., Tensor]) -> Case:
    def exact(*x):
        with only(window="formula"):
            return call(*x)

    return Case(leaves, call, exact)


def linear_case(dtype: torch.dtype, *, kernel: str) -> Case:
    source = generator(5)
    x, weight = normal(source, 2, 33, 64, dtype=dtype), (normal(source, 96, 64, dtype=WIDE) / 8).to(dtype)
    bias, residual = normal(source, 96, dtype=WIDE).to(dtype), normal(source, 2, 33, 96, dtype=dtype)
    if kernel in ("torch", "amx_training"):
        layer = (weight.to(WIDE), bias.to(WIDE)) if dtype == HALF else (weight, bias)
        return Case([x, *layer], trained_linear, exact_linear)
    given = pack(weight, kernel="onednn") if kernel == "onednn" else tiled(weight)
    return Case(
        [x, bias, residual],
        lambda x, b, r: packed_linear(x, given, b, residual=r),
        lambda x, b, r: exact_linear(x, weight.double(), b) + r,
    )


def feed_forward_case(dtype: torch.dtype) -> Case:
    source = generator(6)
    leaves = [normal(source, 2, 33, 64, dtype=dtype)]
    wide = WIDE if dtype == HALF else dtype
    leaves += [normal(source, *shape, dtype=wide) / 8 for shape in ((96, 64), (96,), (32, 96), (32,))]
    return Case(leaves, trained_feed_forward, lambda x, w, b, v, c: exact_linear(gelu(exact_linear(x, w, b)), v, c))


def norm_case(dtype: torch.dtype) -> Case:
    source = generator(7)
    leaves = [normal(source, *shape, dtype=dtype) for shape in ((2, 9, 64), (64,), (64,))]
    return Case(leaves, lambda *x: longform_norm(*x, epsilon=1e-5), lambda x, w, b: layer_norm(x, (64,), w, b, 1e-5))


def means_case(dtype: torch.dtype) -> Case:
    x = normal(generator(9), 2, 30, 64, dtype=dtype)
    slots = make_slots(None, batch=2, length=30, device=x.device, sizes=(4,), slots=8, sinks=2)

    def exact(x):
        kept = torch.cat([x[:, :2] * 0, x[:, 2:], x.new_zeros(2, 2, 64)], dim=1).unflatten(1, (8, 4)).sum(dim=2)
        return kept / slots.count.clamp(min=1).double()[..., None]

    return Case([x], lambda x: mean_pool(x, slots=slots, limit=8, sinks=2)[0], exact)


def convolution_case(dtype: torch.dtype) -> Case:
    source = generator(11)
    leaves = [normal(source, 2, 30, 16, dtype=dtype), normal(source, 5, 16, dtype=dtype)]

    def exact(x, taps):
        around = torch.nn.functional.pad(x, (0, 0, 4, 0)).unfold(1, 5, 1)  # (B, n, D, c)
        return x + (around * taps.T).sum(dim=3)

    return Case(leaves, lambda *x: short_convolution(*x, causal=True), exact)


def case_of(operation: str, kernel: str, dtype: torch.dtype, selected: int = 0) -> Case:
    if (operation, kernel) == ("window", "single_tokens"):
        return single_tokens_case(dtype)
    if operation == "linear":
        return linear_case(dtype, kernel=kernel)
    if operation in ("window", "document"):
        wide_heads = operation == "document" or kernel == "compiled_training"
        return (document_case if wide_heads else window_case)(dtype, selected)
    made = {
        "attention": attention_case, "norm": norm_case, "feed_forward": feed_forward_case, "slot_means": means_case,
        "short_convolution": convolution_case,
    }  # fmt: skip
    return made[operation](dtype)


def dtype_of(kernel: str) -> torch.dtype:
    if kernel in ONEDNN:
        return onednn.supported_dtypes()[-1]
    return HALF if kernel in BF16 else WIDE if kernel in FLOAT else torch.float64


@pytest.mark.usefixtures("units")
@pytest.mark.parametrize(("operation", "kernel", "selected"), with_selection(KERNELS))
def test_forward_and_gradient_equal_the_twin(operation, kernel, selected):
    dtype = dtype_of(kernel)
    case = case_of(operation, kernel, dtype, selected)
    kept = (operation, kernel) in TRAINED
    leaves = [x.detach().requires_grad_(kept) for x in case.leaves]
    wide = [x.detach().double().requires_grad_(kept) for x in case.leaves]
    with only(**{operation: kernel}), torch.set_grad_enabled(kept):
        out = case.call(*leaves)
    expected = case.exact(*wide)
    assert_close(out, expected, scope="model")
    if not kept:
        return
    d_out = normal(generator(10), *out.shape, dtype=out.dtype)
    found = torch.autograd.grad(out, leaves, d_out)
    assert_near(found, torch.autograd.grad(expected, wide, d_out.double()), dtype)


def assert_near(found: Iterable[Tensor], expected: Iterable[Tensor], dtype: torch.dtype) -> None:
    bound = {torch.float64: 1e-10, WIDE: 1e-5}.get(dtype, 0.03)
    for one, other in zip(found, expected, strict=True):
        assert (one.double() - other).norm() <= bound * other.norm() + 1e-12


@pytest.mark.usefixtures("units")
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize(
    ("operation", "kernel", "selected"), with_selection([pair for pair in TRAINED if pair != ("window", "formula")])
)
def test_gradients_of_gradients_equal_the_twin(operation, kernel, selected, autocast):
    """Of all inputs and of the output's gradient; ``autocast``: around the backward pass. A window by its formula."""
    dtype = dtype_of(kernel)
    case = document_case(dtype, selected) if operation == "window" else case_of(operation, kernel, dtype)
    leaves = [x.detach().requires_grad_() for x in case.leaves]
    wide = [x.detach().double().requires_grad_() for x in case.leaves]
    with only(**{operation: kernel}):
        out = case.call(*leaves)
    with torch.autocast("cpu", dtype=HALF, enabled=autocast):
        found = gradients_of_gradients(out, leaves, dtype)
    rounded = HALF if autocast and kernel in FLOAT else dtype  # products of float32 are, in the second backward pass
    assert_near(found, gradients_of_gradients(case.exact(*wide), wide, dtype), rounded)


def gradients_of_gradients(out: Tensor, leaves: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """The gradients of a sum of gradients with random weights, after these; ``dtype``: to which both are rounded."""
    source = generator(10)
    d_out = normal(source, *out.shape, dtype=dtype).to(out.dtype).requires_grad_()
    first = torch.autograd.grad(out, leaves, d_out, create_graph=True)
    along = (normal(source, *x.shape, dtype=dtype).to(x.dtype) for x in first)
    total = sum((x * y).sum() for x, y in zip(first, along, strict=True))
    second = torch.autograd.grad(total, (d_out, *leaves), allow_unused=True, materialize_grads=True)
    return [*first, *second]
