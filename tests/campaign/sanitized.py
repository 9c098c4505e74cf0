"""Random calls of the compiled kernels through their wrappers, in a process whose sanitizers see what the C does.

``python -m campaign.sanitized LIBRARY SEED CASES THREADS``: each case is printed before it runs, so that the last line
before a sanitizer's report says which it was. Tensors end where their memory does, and a job's workspace is as large as
the kernel asked for: what is read or written behind them is seen. Results are compared with torch's, coarsely: numbers
have tests of their own (tests/longform/functional).
"""

import importlib.util
import random
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec

import torch
from kernel_tables import only
from torch import Tensor
from torch.nn.functional import gelu, linear, scaled_dot_product_attention

from longform.functional.attention import compiled as attention
from longform.functional.attention import usable_slots
from longform.functional.attention.formula import AttentionCall
from longform.functional.linear import amx as inference
from longform.functional.native import library
from longform.functional.slots import Slots, divisors, leading_tokens, make_runs, with_exact_runs
from longform.functional.window import windowed_attention
from longform.functional.window.compiled import CompiledDocument
from longform.functional.window.document import DocumentPart, FarSlots

HALF = torch.bfloat16
CLOSE = 0.06  # of the largest value: bfloat16 is rounded in several places


class Draw:
    """Random sizes and tensors of one case."""

    def __init__(self, seed: int) -> None:
        self.numbers = random.Random(seed)
        torch.manual_seed(seed)

    def size(self, most: int) -> int:
        """1 to ``most``, small ones and those around multiples of 32 more often."""
        edge = 32 * self.numbers.randint(1, max(1, most // 32)) + self.numbers.randint(-1, 1)
        return min(
            most, self.numbers.choice([self.numbers.randint(1, min(most, 8)), edge, self.numbers.randint(1, most)])
        )

    def tensor(self, *shape: int, dtype: torch.dtype = HALF, axes: int | None = None) -> Tensor:
        """N(0, 1) with gaps and axes in any order but for the last; ``axes``: of those in front how many may move."""
        order = list(range(len(shape) - 1))
        moved = order[: len(order) if axes is None else axes]
        self.numbers.shuffle(moved)
        strides, step = [1] * len(shape), shape[-1]
        for axis in reversed([*moved, *order[len(moved) :]]):
            step += self.numbers.choice([0, 0, 1, 32])
            strides[axis], step = step, step * max(1, shape[axis])
        used = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        return torch.randn(used).to(dtype).as_strided(shape, strides)

    def flags(self, *shape: int) -> Tensor:
        """Of any kind: all, none, or some."""
        return torch.rand(shape) < self.numbers.choice([0.0, 0.1, 0.7, 1.0])

    def rows(self, most: int, many: int) -> tuple[int, int]:
        """1 to ``most`` rows, and how many times 32 features at most; at times ``many`` rows of few features."""
        return (many, 1) if self.numbers.random() < 0.05 else (self.size(most), 3)

    def any(self, *options: object) -> object:
        """One of them."""
        return self.numbers.choice(options)


def check(found: Tensor, expected: Tensor) -> None:
    """Whether both agree, coarsely."""
    largest = float(expected.abs().max()) if expected.numel() else 0.0
    assert found.shape == expected.shape
    assert torch.allclose(found.double(), expected.double(), rtol=CLOSE, atol=CLOSE * max(1.0, largest))


def check_gradients(out: Tensor, exact: Tensor, given: list[Tensor], slope: Tensor) -> None:
    """Whether outputs agree, and the gradients of ``given``."""
    check(out.detach(), exact.detach())
    found = torch.autograd.grad(out, given, slope.to(out.dtype))
    for x, y in zip(found, torch.autograd.grad(exact, given, slope.to(exact.dtype)), strict=True):
        check(x, y)


def slots_attention(draw: Draw) -> None:
    """Attention over slots with any of them hidden, in inference and in training."""
    queries, most = draw.rows(100, 1100)
    batch, heads, dim, keys = draw.size(2), draw.size(2), 32 * draw.size(most), draw.size(30 * most)
    given = [draw.tensor(batch, heads, n, dim).requires_grad_() for n in (queries, keys, keys)]
    usable = usable_slots(draw.flags(batch, keys)) if draw.any(True, False) else None
    exact = scaled_dot_product_attention(*(x.double() for x in given), attn_mask=usable)
    call = AttentionCall(*given, usable)
    with torch.no_grad():
        check(attention.infer(call), exact)
    slope = draw.tensor(batch, heads, queries, dim) if draw.any(True, False) else torch.ones(()).expand(exact.shape)
    check_gradients(attention.train(call), exact, given, slope)


def window_training(draw: Draw) -> None:
    """A window and slots trained through, texts padded on the right."""
    batch, heads, dim, sinks = draw.size(2), draw.size(2), 32 * draw.size(2), draw.any(0, 0, 2)
    window, lengths = draw.any(4, 8, 16, 48), [draw.size(100) for _ in range(batch)]
    length, limit = max(lengths), draw.any(3, 12, 40)
    mask = None if min(lengths) == length else torch.arange(length) < torch.tensor(lengths)[:, None]
    base = -(-length // limit)
    sizes = tuple(size for size in divisors(-(-base // 4) * 4) if window % size == 0)
    shape = {"batch": batch, "length": length, "device": torch.device("cpu")}
    exact = leading_tokens(mask, sinks=sinks, **shape)
    slots = with_exact_runs(make_runs(mask, exact.rest, sizes=sizes, slots=-(-length // sizes[-1]), **shape), exact)
    far = slots.count.shape[1]
    given = [draw.tensor(batch, heads, n, dim).requires_grad_() for n in (length, length, length, far, far)]
    bias = torch.randn(heads).requires_grad_() if draw.any(True, False) else None
    options = {"window": window, "mask": mask, "memory_budget": draw.any(None, 5.0)}

    def outcome(x: list[Tensor], **more: object) -> Tensor:
        memory = Slots(x[3], x[4], None, slots)
        return windowed_attention(*x[:3], lambda: memory, memory_bias=bias, **options, **more)[0]

    exact = outcome([x.double() for x in given], output_attentions=True)
    with only(window="compiled_training"):
        out = outcome(given)
    slope = draw.tensor(batch, heads, length, dim) * (1.0 if mask is None else mask[:, None, :, None])
    check_gradients(out, exact, [*given, *([] if bias is None else [bias])], slope)


def document_in_parts(draw: Draw) -> None:
    """A document with a window, whole and part after part, in inference."""
    length, most = draw.rows(150, 500)
    heads, dim, (window, size) = draw.size(2), 32 * draw.size(most), draw.any((4, 2), (32, 8), (48, 16), (40, 1))
    sinks = min(draw.any(0, 1, 3), length)
    query, key, value = (draw.tensor(heads, length, dim) for _ in range(3))
    count = torch.full((sinks + -(-length // size),), float(size))
    count[:sinks], count[sinks : sinks + sinks // size] = 1.0, 0.0
    memory = [draw.tensor(heads, len(count), dim) for _ in range(2)]
    far = FarSlots(*memory, count, size, torch.arange(sinks), draw.any(None, torch.randn(heads)), draw.any(None, 5.0))
    whole, in_parts = (torch.empty(length, heads, dim, dtype=HALF) for _ in range(2))
    rows, attend = window * draw.size(3), CompiledDocument(far)
    attend(DocumentPart(query, key, value, length, window), whole)
    for start in range(0, length, rows):
        stop = min(start + rows, length)
        reach = slice(max(0, start - window), min(stop + window, length))
        part = DocumentPart(query[:, start:stop], key[:, reach], value[:, reach], length, window, start, reach.start)
        attend(part, in_parts[start:stop])
    check(in_parts, whole)


def linear_inference(draw: Draw) -> None:
    """A linear layer with a packed weight, and what may follow it."""
    rows, most = draw.rows(80, 600)
    inputs, outputs = 32 * draw.size(2 * most), 32 * draw.size(3 * most)
    x, weight, bias = draw.tensor(rows, inputs), torch.randn(outputs, inputs).to(HALF) / 8, draw.tensor(outputs)
    bias, after = draw.any(None, bias), draw.any("nothing", "gelu", "residual")
    residual = draw.tensor(rows, outputs) if after == "residual" else None
    exact = linear(x.double(), weight.double())
    if bias is not None:
        exact = exact + bias.double()
    exact = gelu(exact) if after == "gelu" else exact if residual is None else exact + residual.double()
    found = inference.infer(x, inference.tiled(weight), bias, gelu=after == "gelu", residual=residual)
    check(found, exact)


CASES: list[Callable[[Draw], None]] = [slots_attention, window_training, document_in_parts, linear_inference]


def use(path: str, threads: int) -> None:
    """Take the kernels of the library at ``path``, by loops, and for each job new memory of just its size."""
    spec = ModuleSpec("longform.functional.native._kernels", None, origin=path)
    importlib.util.find_spec = lambda name, package=None: spec
    library.best_units = lambda: None
    library.LINE, library.KEPT = 1, -1
    torch.set_num_threads(1)
    torch.get_num_threads = lambda: threads  # of kernels; torch's own are not looked at
    library.native_library.cache_clear()
    found = library.native_library()
    assert found is not None, path
    assert found._name == path


def main(path: str, seed: str, cases: str, threads: str) -> None:
    """The command."""
    use(path, int(threads))
    for number in range(int(seed), int(seed) + int(cases)):
        case = CASES[number % len(CASES)]
        print(f"{case.__name__}, case {number}", flush=True)
        case(Draw(number))
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
