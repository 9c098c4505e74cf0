"""Every kernel of every table against the float64 twin of its operation: forward, gradient, gradient of gradients."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from gradients import assert_near, gradients_of_gradients
from kernel_tables import UNITS, only
from torch import Tensor
from window_cases import Inputs

from longform.functional import dispatch
from longform.functional.attention import slot_attention
from longform.functional.slots import Slots, make_runs
from longform.functional.window import windowed_attention
from strategies import Text, generator, normal
from tolerances import assert_close

HALF, WIDE = torch.bfloat16, torch.float32
BF16 = {"compiled", "compiled_training"}
FLOAT = {"triton"}  # which takes no float64; its interpreter computes here
WITHOUT_GRADIENT = {"compiled", "single_tokens", "documents", "sdpa"}
KERNELS = [(operation, kernel.name) for operation, kernels in dispatch.OPERATIONS.items() for kernel in kernels]
TRAINED = [
    (operation, kernel)
    for operation, kernel in KERNELS
    if operation != "document" and (kernel not in WITHOUT_GRADIENT or (operation, kernel) == ("attention", "sdpa"))
]


SELECTING = [
    (operation, kernel.name)
    for operation in ("window", "document")
    for kernel in dispatch.OPERATIONS[operation]
    if kernel.name not in ("single_tokens", "compiled_training")
]


def with_selection(kernels: list[tuple[str, str]]) -> list[tuple[str, str, str, int]]:
    """``kernels`` as they are, and those that take selected slots with two of these; compiled ones with each units."""
    rows = [*((*pair, 0) for pair in kernels), *((*pair, 2) for pair in kernels if pair in SELECTING)]
    return [(units, *row) for row in rows for units in (UNITS if row[1] in BF16 else UNITS[:1])]


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
    mask = (torch.arange(50) < torch.tensor([[50], [33]])).long()
    inputs = Inputs((8, 4, True, 13, Text(2, 50, mask)), 3, dtype, sinks=1, selected=selected)

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
    slots = make_runs(None, batch=2, length=40, device=torch.device("cpu"), sizes=(1,), slots=40)
    options = {"window": 8, "memory_budget": 5.0, "slots_are_tokens": True}
    return _by_formula(leaves, lambda *x: windowed_attention(*x, lambda: Slots(*x[1:], None, slots), **options)[0])


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


def case_of(operation: str, kernel: str, dtype: torch.dtype, selected: int = 0) -> Case:
    if (operation, kernel) == ("window", "single_tokens"):
        return single_tokens_case(dtype)
    if operation in ("window", "document"):
        wide_heads = operation == "document" or kernel == "compiled_training"
        return (document_case if wide_heads else window_case)(dtype, selected)
    return attention_case(dtype)


def dtype_of(kernel: str) -> torch.dtype:
    return HALF if kernel in BF16 else WIDE if kernel in FLOAT else torch.float64


@pytest.mark.parametrize(("units", "operation", "kernel", "selected"), with_selection(KERNELS), indirect=["units"])
def test_forward_and_gradient_equal_the_twin(units, operation, kernel, selected):
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


@pytest.mark.parametrize("grad_mode", [False, True])
@pytest.mark.parametrize(("operation", "kernel"), TRAINED)
def test_saved_tensors_are_asked_for_once(operation, kernel, grad_mode):
    """As checkpointing has it; and copies do, of which none is a view. ``grad_mode``: of the backward pass."""
    case = case_of(operation, kernel, dtype_of(kernel))
    leaves = [x.detach().requires_grad_() for x in case.leaves]
    d_out = normal(generator(10), *case.call(*leaves).shape, dtype=dtype_of(kernel))
    found = []
    for pack, unpack in (
        (lambda x: x, lambda x: x),
        (lambda x: [x.detach().clone(memory_format=torch.contiguous_format)], list.pop),
    ):
        with only(**{operation: kernel}), torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            out = case.call(*leaves)
        found.append(torch.autograd.grad(out, leaves, d_out, create_graph=grad_mode))
    assert_near(found[1], [x.double() for x in found[0]], dtype_of(kernel))


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize(
    ("units", "operation", "kernel", "selected"),
    with_selection([pair for pair in TRAINED if pair != ("window", "formula")]),
    indirect=["units"],
)
def test_gradients_of_gradients_equal_the_twin(units, operation, kernel, selected, autocast):
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
