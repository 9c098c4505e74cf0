"""The paths that CUDA takes, against the plain path on the same GPU."""

import copy

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import longform
from longform import LinformerAttention
from longform.functional import window
from longform.functional.dispatch import listening, use
from longform.functional.slots import Slots, leading_tokens, make_runs, with_exact_runs
from strategies import generator, normal
from tolerances import assert_close

HEADS, DIM = 3, 64
GPU = torch.device("cuda")


def given(length: int, sinks: int, dtype: torch.dtype, mask: torch.Tensor | None):
    """query, key, value, memory and bias as leaves, and the slots of 8 tokens behind ``sinks`` of one."""
    source = generator(5)
    exact = leading_tokens(mask, batch=2, length=length, device=GPU, sinks=sinks)
    slots = make_runs(mask, exact.rest, batch=2, length=length, device=GPU, sizes=(8,), slots=-(-length // 8))
    slots = with_exact_runs(slots, exact)
    lengths = (length, length, length, slots.count.shape[1], slots.count.shape[1])
    leaves = [normal(source, 2, HEADS, n, DIM, dtype=dtype).to(GPU).requires_grad_() for n in lengths]
    return [*leaves, normal(source, HEADS).float().to(GPU).requires_grad_()], slots, exact


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("selected", [0, 4])
@pytest.mark.parametrize(
    ("length", "size", "sinks", "budget"),
    [(100, 16, 0, 30.0), (1000, 128, 2, 30.0), (1024, 256, 0, None), (777, 24, 1, 9.0)],
)
def test_kernels_of_a_window_equal_the_plain_path(length, size, sinks, budget, selected, padded, dtype):
    mask = (torch.arange(length) < torch.tensor([[length], [length // 3]])).to(GPU) if padded else None
    results = []
    for forced in ({}, {"window": "formula"}):
        leaves, slots, exact = given(length, sinks, dtype, mask)
        memory = Slots(*leaves[3:5], None, slots)
        options = {"window": size, "memory_bias": leaves[5], "memory_budget": budget, "mask": mask, "exact": exact}
        options["selected"] = selected
        with use(**forced), listening() as heard:
            out, _ = window.windowed_attention(*leaves[:3], lambda memory=memory: memory, **options)
        assert [choice.kernel for choice in heard] == [forced.get("window", "triton")]
        results.append([out, *torch.autograd.grad(out.sum(), leaves)])
    assert_near(*results, dtype)


def assert_near(found, expected, dtype):
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        assert torch.isfinite(one).all()
        error = (one - other).double().norm() / other.double().norm()
        assert error < (1e-4 if dtype == torch.float32 else 2e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("dim", [16, 40, 128, 256])
@pytest.mark.parametrize("reach", [0, 20])
def test_triton_takes_heads_of_all_widths(dim, dtype, reach):
    source, length = generator(6), 500
    slots = make_runs(None, batch=1, length=length, device=GPU, sizes=(4,), slots=125)
    shapes = [(1, HEADS, n, dim) for n in (length, length, length, 125, 125)]
    results = []
    made = [normal(source, *shape, dtype=dtype) for shape in shapes]
    made += [normal(source, HEADS).float(), normal(source, HEADS, 2 * reach + 1).float()]
    for kernel in ("triton", "formula"):
        leaves = [x.to(GPU).requires_grad_() for x in made[: 7 if reach else 6]]
        memory, distances = Slots(*leaves[3:5], None, slots), leaves[6] if reach else None
        options = {"window": 32, "memory_bias": leaves[5], "memory_budget": 60.0, "distance_bias": distances}
        with use(window=kernel):
            out, _ = window.windowed_attention(*leaves[:3], lambda memory=memory: memory, **options)
        results.append([out, *torch.autograd.grad(out, leaves, torch.ones_like(out) / 8)])
    assert_near(*results, dtype)


@pytest.mark.parametrize(
    "options", [{}, {"projection": "mean"}, {"projection": longform.Projection("mean", sink_tokens=2)}]
)
def test_without_padding_attention_is_flash_attention(options):
    made = LinformerAttention(128, 2, max_length=1024, projected_length=64, **options).to(GPU, torch.bfloat16).eval()
    hidden = torch.randn(2, 1024, 128, device=GPU, dtype=torch.bfloat16)
    with torch.no_grad(), sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        assert torch.isfinite(made(hidden)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("pre_norm", [False, True])
def test_what_follows_a_product_is_computed_with_it(pre_norm, dtype):
    options = {"max_length": 512, "pre_norm": pre_norm, "projection": "linear", "projected_length": 64}
    made = longform.LinformerEncoder(96, 2, 2, **options).eval()
    hidden, mask = normal(generator(9), 2, 500, 96), torch.arange(500) < torch.tensor([[500], [321]])
    with torch.no_grad():
        expected = copy.deepcopy(made).double()(hidden.double(), mask)
        packed = longform.pack_weights(made.to(GPU, dtype))
        out = packed(hidden.to(GPU, dtype), mask.to(GPU)).cpu()
    assert_close(out[mask], expected[mask], scope="model")
