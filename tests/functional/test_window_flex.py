"""FlexAttention's path on a CPU: uncompiled, against the twin and against the plain path; and when it is taken."""

import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode
from window_cases import DTYPES, HEADS, Inputs, cases, taking

from longform import LinformerAttention
from longform.errors import ConfigurationError
from longform.functional import dispatch, window
from longform.functional.attention import fused
from longform.functional.conditions import NO_DROPOUT
from longform.functional.window import flex as window_flex
from longform.functional.window.call import WindowCall
from longform.layers.geometry import Projection
from strategies import Text, gradients, seeds
from tolerances import assert_close


@settings(max_examples=20)
@given(cases(), seeds, DTYPES, st.sampled_from([None, 1.0, 3.5, 1e4]), st.sampled_from([0, 0, 1, 3]))
def test_output_and_gradients_equal_the_twin(case, seed, dtype, budget, sinks):
    inputs = Inputs(case, seed, dtype, sinks)
    out, _ = inputs.fast("flex", budget)
    assert (out[~inputs.defined.expand_as(out)] == 0).all()
    expected = torch.where(inputs.defined, inputs.twin(budget), 0.0)
    assert_close(out, expected)
    found = gradients(out, inputs.cotangent, inputs.leaves)
    for one, other in zip(found, gradients(expected, inputs.cotangent, inputs.leaves), strict=True):
        assert_close(one, other)


@pytest.mark.parametrize("size", [4, 16, 24, 64])
@pytest.mark.parametrize("kind", ["full", "right", "holes", "empty"])
def test_longer_texts_equal_the_plain_path(size, kind):
    """Forward and backward; rows of different lengths, windows that do not divide the tiles of 128."""
    for dtype in (torch.float64, torch.float32):
        length = 300 if kind == "right" else 193
        mask = torch.ones(3, length).long()
        if kind == "right":
            mask = (torch.arange(length) < torch.tensor([[length], [150], [17]])).long()
        if kind in ("holes", "empty"):
            mask = (torch.rand(3, length) < 0.7).long()
            mask[1] = 0 if kind == "empty" else mask[1]
        inputs = Inputs((size, 4, True, 100, Text(3, length, None if kind == "full" else mask)), 3, dtype, sinks=2)
        results = []
        for path in ("flex", "compiled"):
            out, _ = inputs.fast(path, 20.0)
            results.append([out, *gradients(out, inputs.cotangent, inputs.leaves)])
            assert all(torch.isfinite(x).all() for x in results[-1])
        for one, other in zip(*results, strict=True):
            assert_close(one, other)


@pytest.mark.parametrize("projection", ["mean", "max", "convolution"])
def test_the_layer_gives_the_same(projection):
    made = LinformerAttention(32, 2, max_length=64, projected_length=16, projection=projection, attention_window=8)
    made.train()
    hidden = torch.randn(2, 45, 32, requires_grad=True)
    mask = torch.arange(45) < torch.tensor([[45], [30]])
    leaves = [hidden, *made.parameters()]
    results = []
    for path in ("flex", "sdpa"):
        with taking(path):
            out = made(hidden, mask)
        results.append([out, *gradients(out, torch.ones_like(out), leaves)])
    for one, other in zip(*results, strict=True):
        assert_close(one, other)


class Device(torch.Tensor):
    """A tensor that says it lies on a GPU."""

    device = torch.device("cuda")
    is_cuda, is_cpu = True, False


def on_a_gpu(dim: int = 64, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.zeros(1, 2, 4, dim, dtype=dtype).as_subclass(Device)


def takes(query: torch.Tensor) -> bool:
    """Whether FlexAttention serves such queries where there is no gradient."""
    call = WindowCall(query, query, query, pytest.fail, 4)
    kernel = next(kernel for kernel in dispatch.OPERATIONS["window"] if kernel.name == "flex")
    return all(need.holds(call) for need in kernel.needs)


@pytest.fixture
def _triton(monkeypatch):
    monkeypatch.setattr(window_flex, "can_compile", lambda: True)
    monkeypatch.setattr(window_flex, "_refused", set())


@pytest.mark.usefixtures("_triton")
@pytest.mark.parametrize(
    ("dim", "dtype", "taken"),
    [
        (64, torch.bfloat16, True),
        (64, torch.float16, True),
        (64, torch.float32, True),
        (16, torch.float32, True),
        (80, torch.bfloat16, True),
        (256, torch.bfloat16, True),
        (64, torch.float64, False),
        (15, torch.float32, False),
        (257, torch.bfloat16, False),
    ],
)
def test_what_the_kernels_take(dim, dtype, taken):
    assert takes(on_a_gpu(dim, dtype)) == taken
    assert not takes(torch.zeros(1, 2, 4, dim, dtype=dtype))


@pytest.mark.usefixtures("_triton")
def test_when_the_kernels_are_not_asked(monkeypatch):
    query = on_a_gpu()
    assert takes(query)
    with FlopCounterMode(display=False):
        assert not takes(query)
    torch.func.vmap(lambda x: [pytest.fail("taken") for _ in range(takes(query))] or x)(torch.zeros(2))
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert takes(query)
    monkeypatch.setattr(torch.compiler, "is_exporting", lambda: True)
    assert not takes(query)


def test_without_triton(monkeypatch):
    from torch.utils import _triton

    for present in (False, True):
        monkeypatch.setattr(_triton, "has_triton", lambda present=present: present)
        assert window_flex.can_compile() == present
        assert takes(on_a_gpu()) == present
    monkeypatch.delattr(window_flex.flex, "FlexKernelOptions")  # torch before 2.10
    assert not window_flex.can_compile()


def some_inputs() -> Inputs:
    return Inputs((4, 2, True, 12, Text(2, 23, None)), 7, torch.float32)


@pytest.mark.usefixtures("_triton")
def test_a_kernel_that_does_not_compile_is_not_tried_again(monkeypatch):
    from torch._dynamo.exc import TorchDynamoException

    def broken(*given):
        raise TorchDynamoException("no compiler\nand a long story")

    inputs = some_inputs()
    expected, _ = inputs.fast("compiled", 5.0)
    with taking("flex") as patch:
        patch.setattr(window_flex, "_compiled", lambda: broken)
        flex, formula = dispatch.OPERATIONS["window"]
        patch.setitem(dispatch.OPERATIONS, "window", (flex._replace(needs=(window_flex.COMPILES,)), formula))
        options = {"window": 4, "memory_bias": inputs.bias, "memory_budget": 5.0}
        with pytest.warns(UserWarning, match="slower path serves instead: no compiler$"):
            out, _ = window.windowed_attention(*inputs.heads, inputs.memory_of, **options)
        assert_close(out, expected)
        with warnings.catch_warnings(action="error"):
            out, _ = window.windowed_attention(*inputs.heads, inputs.memory_of, **options)
        assert_close(out, expected)


def test_it_never_runs_uncompiled():
    """Where torch.compile is switched off, the plain path serves."""
    inputs = some_inputs()
    expected, _ = inputs.fast("compiled", None)
    with taking("flex") as patch:
        patch.setattr(window_flex, "_compiled", lambda: window_flex._never_eager)
        patch.setattr(window_flex, "near_and_far", lambda *given: pytest.fail("n x n logits"))
        options = {"window": 4, "memory_bias": inputs.bias}
        out, _ = window.windowed_attention(*inputs.heads, inputs.memory_of, **options)
    assert_close(out, expected)


@pytest.mark.parametrize("options", [{"output_attentions": True}, {"dropout": 0.5}])
def test_weights_and_dropout_go_the_plain_path(monkeypatch, options):
    inputs = some_inputs()
    table = [kernel for kernel in dispatch.OPERATIONS["window"] if kernel.name in ("flex", "formula")]
    flex = table[0]._replace(run=lambda call: pytest.fail("taken"), needs=(NO_DROPOUT,))
    monkeypatch.setitem(dispatch.OPERATIONS, "window", (flex, table[1]))
    out, _ = window.windowed_attention(*inputs.heads, inputs.memory_of, window=4, **options)
    assert out.shape == (2, HEADS, 23, inputs.heads[0].shape[-1])


@pytest.mark.parametrize("options", [{}, {"projection": "mean"}, {"projection": Projection("mean", sink_tokens=2)}])
@pytest.mark.parametrize("padded", [False, True])
def test_fused_attention_gets_a_mask_only_where_something_is_padded(monkeypatch, options, padded):
    """FlashAttention takes none. (A linear E has one for texts below its length too: some rows may have no weight.)"""
    masks = []

    def attend(query, key, value, *, attn_mask, dropout_p):
        masks.append(attn_mask)
        return query

    monkeypatch.setattr(fused, "scaled_dot_product_attention", attend)
    made = LinformerAttention(32, 2, max_length=60, projected_length=15, **options)
    mask = torch.arange(60) < torch.tensor([[60], [30]])
    made(torch.randn(2, 60, 32), mask if padded else None)
    assert [mask is not None for mask in masks] == [padded]


def test_a_second_derivative_is_refused_with_the_way_out():
    inputs = Inputs((4, 2, True, 8, Text(1, 16, None)), 1, torch.float32)
    with taking("flex"):
        out, _ = inputs.fast("flex", None)
    with pytest.raises(ConfigurationError, match=r'kernels.use\(window="formula"\)'):
        torch.autograd.grad(out.sum(), inputs.heads[0], create_graph=True)
    assert torch.autograd.grad(out.sum(), inputs.heads[0])[0].any()
