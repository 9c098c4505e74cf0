"""The Triton kernel of the window by Triton's interpreter, on a CPU: values and gradients of the float64 formula.

test_every_kernel.py holds it against the twin, test_triton_compiles.py compiles it for
GPUs, tests/longform/device runs it on one.
"""

from contextlib import contextmanager
from itertools import cycle

import pytest
import torch
import window_cases
from kernel_tables import only
from window_cases import Inputs

from longform import kernels
from longform.errors import ConfigurationError
from longform.functional import dispatch, triton_support
from longform.functional.window import triton_kernel, windowed_attention
from longform.functional.window.triton_kernel import Tile
from strategies import Text, gradients

FLOAT, HALF, BRAIN = torch.float32, torch.float16, torch.bfloat16
BOUNDS = {FLOAT: 2e-6, HALF: 4e-3, BRAIN: 3e-2}  # digits of the dtype, and two or three roundings of weights
RIGHT, HOLES, LEFT, BLANK = "right", "holes", "left", "blank"
SMALL = Tile(16, 16, 4, 1), Tile(16, 32, 4, 1)
UNEVEN = Tile(32, 16, 4, 1), Tile(32, 16, 4, 1)

# window w, tokens a slot, tokens n, features d, dtype, sinks, reach of a bias by distance, budget, padding, tiles
SHAPES = [
    (16, 4, 1, 16, FLOAT, 0, 0, None, None, SMALL),
    (16, 4, 15, 16, FLOAT, 0, 0, 5.0, None, SMALL),
    (16, 4, 16, 16, FLOAT, 1, 0, 5.0, None, SMALL),
    (16, 4, 32, 16, FLOAT, 1, 0, 5.0, None, SMALL),
    (16, 4, 33, 16, FLOAT, 0, 0, 5.0, None, SMALL),
    (16, 4, 48, 16, FLOAT, 0, 0, None, None, SMALL),
    (16, 4, 49, 16, FLOAT, 2, 0, 5.0, None, SMALL),
    (16, 8, 56, 32, FLOAT, 1, 0, 9.0, None, SMALL),
    (16, 16, 64, 16, FLOAT, 1, 0, 9.0, None, SMALL),
    (32, 8, 65, 16, FLOAT, 1, 0, 9.0, None, SMALL),
    (32, 4, 71, 16, FLOAT, 3, 0, 9.0, None, SMALL),
    (48, 8, 97, 16, FLOAT, 0, 0, 9.0, None, SMALL),
    (1, 1, 20, 16, FLOAT, 0, 0, 5.0, None, SMALL),
    (2, 1, 19, 16, FLOAT, 1, 0, 5.0, None, SMALL),
    (4, 2, 37, 16, FLOAT, 1, 0, 5.0, None, SMALL),
    (5, 1, 41, 16, FLOAT, 0, 0, 5.0, None, SMALL),
    (6, 3, 40, 16, FLOAT, 1, 0, 5.0, None, SMALL),
    (24, 8, 50, 16, FLOAT, 1, 0, 5.0, None, SMALL),
    (20, 4, 43, 16, FLOAT, 1, 0, 5.0, None, SMALL),
    (8, 4, 50, 16, FLOAT, 1, 0, 5.0, None, UNEVEN),
    (64, 8, 129, 16, FLOAT, 1, 0, 5.0, None, UNEVEN),
    (32, 8, 70, 20, FLOAT, 1, 0, 5.0, None, UNEVEN),
    (8, 4, 40, 33, FLOAT, 1, 0, 5.0, None, SMALL),
    (8, 4, 40, 64, FLOAT, 1, 0, 5.0, None, SMALL),
    (8, 4, 40, 80, FLOAT, 1, 0, 5.0, None, SMALL),
    (8, 4, 40, 128, FLOAT, 1, 0, 5.0, None, SMALL),
    (8, 4, 33, 256, FLOAT, 1, 0, 5.0, None, SMALL),
    (16, 4, 45, 16, FLOAT, 0, 0, None, RIGHT, SMALL),
    (16, 4, 45, 16, FLOAT, 1, 0, 5.0, RIGHT, SMALL),
    (12, 4, 45, 16, FLOAT, 2, 0, 5.0, RIGHT, SMALL),
    (16, 4, 45, 16, FLOAT, 1, 0, 5.0, HOLES, SMALL),
    (12, 4, 45, 16, FLOAT, 1, 0, 5.0, HOLES, UNEVEN),
    (16, 4, 45, 16, FLOAT, 1, 0, 5.0, LEFT, SMALL),
    (16, 4, 45, 16, FLOAT, 1, 0, 5.0, BLANK, SMALL),
    (16, 4, 45, 16, FLOAT, 1, 3, 5.0, None, SMALL),
    (16, 4, 45, 16, FLOAT, 1, 17, 5.0, RIGHT, SMALL),
    (12, 4, 45, 24, FLOAT, 0, 13, None, HOLES, UNEVEN),
    (16, 4, 30, 16, FLOAT, 1, 9, 5.0, None, SMALL),
    (16, 4, 45, 16, HALF, 1, 0, 5.0, RIGHT, SMALL),
    (12, 4, 45, 64, HALF, 1, 5, 5.0, None, SMALL),
    (16, 4, 45, 16, BRAIN, 1, 0, 5.0, RIGHT, SMALL),
    (12, 4, 45, 64, BRAIN, 1, 5, 5.0, None, SMALL),
    (16, 4, 45, 96, BRAIN, 1, 0, None, HOLES, SMALL),
]


@pytest.fixture(autouse=True)
def _products_of_bfloat16(monkeypatch):
    """Triton 3.9's interpreter has bfloat16 as 16 bits, and multiplies these as integers."""
    from triton import language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    product = InterpreterBuilder.create_dot

    def create_dot(self, one, other, *rest):
        wide = (
            TensorHandle((x.data.astype("uint32") << 16).view("float32"), tl.float32) if x.dtype == tl.bfloat16 else x
            for x in (one, other)
        )
        return product(self, *wide, *rest)

    monkeypatch.setattr(InterpreterBuilder, "create_dot", create_dot)


def mask_of(kind: str | None, length: int) -> torch.Tensor | None:
    """A text without padding and one with it, long (2, n)."""
    at = torch.arange(length)
    rows = {
        RIGHT: at < length // 2 - 3, HOLES: at % 5 != 2, LEFT: at >= length // 3, BLANK: at < 0,
    }  # fmt: skip
    return None if kind is None else torch.stack([torch.ones(length).bool(), rows[kind]]).long()


def name_of(given) -> str:
    return str(given) if isinstance(given, int) else "-".join(map(str, given[:-1]))


@contextmanager
def tiles_of(pair: tuple[Tile, Tile]):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(triton_kernel, "_tiles", lambda query: pair)
        patch.setattr(triton_kernel, "CHUNK", 2 * pair[1].queries)
        yield


def inputs_of(window, size, length, dim, dtype, sinks, reach, padding) -> Inputs:
    with pytest.MonkeyPatch.context() as patch:
        batch = 1 if padding is None else 2
        patch.setattr(window_cases, "DIM", dim)
        patch.setattr(window_cases, "HEADS", 3 - batch)
        text = Text(batch, length, mask_of(padding, length))
        slots = -(-length // size)
        return Inputs((window, size, True, slots, text), 3, dtype, sinks=sinks, reach=reach)


def results(inputs: Inputs, budget: float | None, kernel: str, **changed) -> list[torch.Tensor]:
    """Values and gradients of all leaves, in float64 by the formula."""
    leaves = [x.detach().to(torch.float64 if kernel == "formula" else x.dtype).requires_grad_() for x in inputs.leaves]
    inputs.heads, inputs.memory, rest = leaves[:3], leaves[3:5], leaves[5:]
    options = {"window": inputs.window, "memory_budget": budget, "mask": inputs.mask, "exact": inputs.exact}
    options |= {"memory_bias": rest[0], "distance_bias": rest[1] if len(rest) > 1 else None} | changed
    with only(window=kernel):
        out, _ = windowed_attention(*leaves[:3], inputs.memory_of, **options)
    assert out.dtype == leaves[0].dtype
    return [out, *gradients(out, inputs.cotangent.to(out.dtype), leaves)]


def assert_equal(found: list[torch.Tensor], expected: list[torch.Tensor], bound: float) -> None:
    largest = max(float(x.norm()) for x in expected[1:])
    for one, other in zip(found, expected, strict=True):
        assert torch.isfinite(one).all()
        error = float((one.double() - other).detach().norm())
        assert error <= bound * max(float(other.detach().norm()), 0.1 * largest)


def by_day(every: int, *others: int) -> list:
    """All shapes, with ``others`` in turn; the interpreter takes a second or two each: one of ``every`` by day."""
    rows = zip(SHAPES, cycle(others)) if others else zip(SHAPES)
    return [pytest.param(*row, marks=[pytest.mark.nightly] if at % every else []) for at, row in enumerate(rows)]


def assert_formula(shape, **options):
    *sizes, budget, padding, tiles = shape
    inputs = inputs_of(*sizes, padding)
    with tiles_of(tiles):
        found = results(inputs, budget, "triton", **options)
    expected = results(inputs, budget, "formula", **options)
    assert_equal(found, expected, BOUNDS[sizes[4]])
    if inputs.mask is not None:
        assert not found[0][~inputs.mask[:, None].expand(found[0].shape[:3])].any()


@pytest.mark.parametrize("shape", by_day(3), ids=name_of)
def test_values_and_gradients(shape):
    assert_formula(shape)


@pytest.mark.parametrize(("shape", "selected"), by_day(7, 1, 3, 100), ids=name_of)
def test_selection(shape, selected):
    """In texts of some blocks more; 100: all far slots there are."""
    window, size, length, *rest = shape
    assert_formula((window, size, length + 2 * window, *rest), selected=selected)


def test_selection_among_slots_of_different_sizes():
    """A text that is short beside the other one has less tokens a slot."""
    mask = torch.arange(90) < torch.tensor([[90], [40]])
    inputs = Inputs((12, 4, False, 23, Text(2, 90, mask.long())), 3, FLOAT, sinks=1)
    inputs.leaves = [torch.randn(*x.shape[:3], 16).requires_grad_() if x.dim() == 4 else x for x in inputs.leaves]
    inputs.cotangent = torch.randn(2, 2, 90, 16) * inputs.defined
    with tiles_of(SMALL):
        found = results(inputs, 5.0, "triton", selected=3)
    assert inputs.slots.size.tolist() == [4, 2]
    assert_equal(found, results(inputs, 5.0, "formula", selected=3), BOUNDS[FLOAT])


@pytest.mark.parametrize("window", [12, 16])
def test_a_part_of_a_text(window):
    """Its blocks come after others (longform.distributed), and slots of the whole text are far from them."""
    inputs = inputs_of(window, 4, 90, 16, FLOAT, 1, 0, None)
    inputs.heads = [x[:, :, : 2 * window] for x in inputs.heads]
    inputs.leaves = [*(x.detach() for x in inputs.heads), *inputs.leaves[3:]]
    inputs.cotangent = inputs.cotangent[:, :, : 2 * window]
    options = {"first_block": 2, "mask": None}
    with tiles_of(SMALL):
        found = results(inputs, 5.0, "triton", **options)
    assert_equal(found, results(inputs, 5.0, "formula", **options), BOUNDS[FLOAT])


@pytest.mark.parametrize(("window", "padding", "tiles"), [(16, None, SMALL), (12, RIGHT, UNEVEN), (32, HOLES, UNEVEN)])
def test_a_causal_text(window, padding, tiles):
    """A query sees what stands before it, and no slot of its own block or the one before."""
    inputs = inputs_of(window, 4, 71, 16, FLOAT, 1, 0, padding)
    with tiles_of(tiles):
        found = results(inputs, 5.0, "triton", causal=True)
    assert_equal(found, results(inputs, 5.0, "formula", causal=True), BOUNDS[FLOAT])


def test_heads_that_lie_as_layers_have_them():
    """By token, as a product of all heads leaves them, and one token's features apart."""
    inputs = inputs_of(16, 4, 50, 16, FLOAT, 1, 0, None)
    expected = results(inputs, 5.0, "formula")
    inputs.leaves[:3] = [x.detach().transpose(1, 2).contiguous().transpose(1, 2) for x in inputs.leaves[:3]]
    inputs.leaves[3] = inputs.leaves[3].detach().transpose(2, 3).contiguous().transpose(2, 3)
    with tiles_of(SMALL):
        assert_equal(results(inputs, 5.0, "triton"), expected, BOUNDS[FLOAT])


def test_padding_may_hold_anything_in_the_output_gradient():
    inputs = inputs_of(16, 4, 40, 16, FLOAT, 1, 0, RIGHT)
    expected = results(inputs, 5.0, "formula")
    inputs.cotangent = torch.where(inputs.text.valid[:, None, :, None], inputs.cotangent, torch.nan)
    with tiles_of(SMALL):
        assert_equal(results(inputs, 5.0, "triton"), expected, BOUNDS[FLOAT])


def test_the_tiles_of_a_gpu():
    """As long texts have them: more than one tile of queries, of keys and of slots."""
    inputs = inputs_of(64, 2, 140, 16, BRAIN, 1, 0, None)
    assert_equal(results(inputs, 50.0, "triton"), results(inputs, 50.0, "formula"), BOUNDS[BRAIN])


@pytest.mark.parametrize(("dim", "dtype"), [*((d, HALF) for d in (16, 64, 128, 256)), (64, FLOAT), (256, FLOAT)])
def test_tiles_fit_what_programs_ask_for(dim, dtype):
    for tile in triton_kernel._tiles(torch.zeros(1, 1, 1, dim, dtype=dtype)):
        assert all(size >= 16 and size & (size - 1) == 0 for size in tile[:2])
        assert tile.queries <= 128  # a chunk of queries is whole tiles


def call(*, dtype=FLOAT, **options):
    inputs = inputs_of(4, 4, 12, 16, dtype, 0, 0, None)
    return windowed_attention(*(x.detach() for x in inputs.heads), inputs.memory_of, window=4, **options)[0]


def test_it_is_taken_where_it_is_forced(monkeypatch):
    expected = call()
    with kernels.use(window="triton"), dispatch.listening() as heard:
        torch.testing.assert_close(call(), expected)
    assert heard[0].kernel == "triton"
    with kernels.use(window="triton"):
        for options, lacks in (({"dropout": 0.1}, "no dropout"), ({"dtype": BRAIN}, "Triton's interpreter")):
            with pytest.raises(ConfigurationError, match=f"cannot serve this call, which lacks: .*{lacks}"):
                call(**options)
        monkeypatch.delenv("TRITON_INTERPRET")
        with pytest.raises(ConfigurationError, match="Triton's interpreter"):
            call()


def test_a_cpu_does_not_take_it_unasked():
    with dispatch.listening() as heard:
        call()
    assert heard[0].kernel != "triton"
    assert dict(heard[0].unmet)["triton"] == "tensors on a CUDA device"


def test_where_triton_fails_another_kernel_serves(monkeypatch):
    from triton import OutOfResources

    def broken(*given):
        raise OutOfResources(300_000, 232_448, "shared memory")

    expected = call()
    monkeypatch.setattr(triton_support, "_refused", set())
    monkeypatch.setattr(triton_kernel, "_forward", broken)
    table = {kernel.name: kernel for kernel in dispatch.OPERATIONS["window"]}
    made = table["triton"]._replace(lacks=lambda call, forced: None), table["formula"]
    monkeypatch.setitem(dispatch.OPERATIONS, "window", made)
    with pytest.warns(UserWarning, match="Triton fails here, a slower path serves instead: out of resource"):
        torch.testing.assert_close(call(), expected)
    torch.testing.assert_close(call(), expected)  # and is not tried again, which would warn


def test_without_triton(monkeypatch):
    monkeypatch.setattr(triton_support, "has_triton", lambda: False)
    with kernels.use(window="triton"), pytest.raises(ConfigurationError, match="lacks: Triton"):
        call()


@pytest.mark.parametrize(("causal", "selected"), [(False, 0), (True, 0), (False, 2)])
def test_gradients_of_gradients(causal, selected):
    inputs = inputs_of(8, 4, 30, 16, FLOAT, 1, 3, RIGHT)
    found = []
    for kernel in ("triton", "formula"):
        leaves = [x.detach().requires_grad_() for x in inputs.leaves]
        inputs.memory = leaves[3:5]
        with tiles_of(SMALL), only(window=kernel):
            out, _ = windowed_attention(
                *leaves[:3], inputs.memory_of, window=8, memory_budget=5.0, mask=inputs.mask, exact=inputs.exact,
                memory_bias=leaves[5], distance_bias=None if causal else leaves[6], causal=causal,
                selected=selected,
            )  # fmt: skip
            first = torch.autograd.grad(
                (out * inputs.cotangent.float()).sum(), leaves[: 6 if causal else 7], create_graph=True
            )
        total = sum((x * x).sum() for x in first)
        found.append([total, *torch.autograd.grad(total, leaves[: 6 if causal else 7])])
    assert_equal(found[0], found[1], 1e-5)
