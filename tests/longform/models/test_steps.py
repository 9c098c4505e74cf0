"""How many steps a layer takes: Python calls of ours, files, and operations of torch.

They are counted with the kernels that every machine has: torch's and the formula's.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from kernel_tables import machine
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import longform
from longform import LinformerConfig, LinformerModel
from longform.functional import dispatch, execution
from longform.functional.execution import Execution
from longform.functional.window import triton_kernel
from longform.layers.attention import LinformerAttention
from longform.layers.block import Block, FeedForward
from longform.layers.self_attention import Shared

pytestmark = pytest.mark.usefixtures("any_machine")
PACKAGE = str(Path(longform.__file__).parent)
KINDS: dict[str, dict[str, Any]] = {
    "linear": {"projection": "linear"},
    "linear, shared": {"projection": "linear", "projection_sharing": "layerwise"},
    "mean": {"projection": "mean"},
    "weighted_mean": {"projection": "weighted_mean"},
    "mean, window": {"projection": "mean", "attention_window": 64},
    "weighted_mean, window": {"projection": "weighted_mean", "attention_window": 64},
    "mean, selection": {"projection": "mean", "attention_window": 64, "selected_slots": 4},
    "weighted_mean, selection": {"projection": "weighted_mean", "attention_window": 64, "selected_slots": 4},
}
# The first number is of training; in inference on a CPU a window attends each document by itself.
MOST_CALLS = {
    "linear": (35, 38), "linear, shared": (32, 35), "mean": (31, 34), "weighted_mean": (31, 34),
    "mean, window": (59, 79), "weighted_mean, window": (57, 77),
}  # fmt: skip
MOST_CALLS |= {  # selection adds at most 15, and 16
    kind.replace("window", "selection"): (most[0] + 15, most[1] + 16)
    for kind, most in MOST_CALLS.items()
    if kind.endswith("window")
}
MOST_FILES = 10


@pytest.fixture
def any_machine() -> Iterator[None]:
    with machine():
        yield


def calls(kind: str, layers: int, *, training: bool) -> Counter[str]:
    """Calls of the second pass of a model 64 wide over 512 tokens, by file."""
    sizes = {"hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 128, "max_position_embeddings": 512}
    sizes |= {"projected_length": 128, "short_convolution": 0}
    made = LinformerModel(LinformerConfig(vocab_size=40, num_hidden_layers=layers, **sizes, **KINDS[kind]))
    ids, found = torch.randint(5, 40, (1, 512)), Counter[str]()

    def seen(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            found[frame.f_code.co_filename] += 1

    with torch.set_grad_enabled(training):
        made.train(training)(ids)
        sys.setprofile(seen)
        try:
            made(ids)
        finally:
            sys.setprofile(None)
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("training", [True, False])
def test_python_calls_of_a_layer(kind, training):
    one, two = (calls(kind, layers, training=training) for layers in (1, 2))
    of_a_layer = two - one
    assert of_a_layer.total() <= MOST_CALLS[kind][0 if training else 1]
    assert len(of_a_layer) <= MOST_FILES + 5 * ("attention_window" in KINDS[kind]) + kind.endswith("selection")


@contextmanager
def set_default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class Operations(TorchDispatchMode):
    """Operations that compute or move something: views are not counted."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if (
            func.namespace == "aten"
            and not func.is_view
            and func not in (torch.ops.aten.detach.default, torch.ops.aten._unsafe_view.default)
        ):
            self.found.append(str(func))
        return func(*args, **(kwargs or {}))


SIZES = {"max_length": 8192, "projected_length": 256, "short_convolution": 0}


def operations(attention: LinformerAttention) -> list[str]:
    """Those of the second block of a pass, of base size over 8,192 tokens."""
    norms = [torch.nn.LayerNorm(768) for _ in range(2)]
    block = Block(attention, FeedForward(768, 3072, torch.nn.GELU()), *norms, pre_norm=False, dropout=0.0).eval()
    hidden, shared = torch.empty(1, 8192, 768, dtype=torch.bfloat16), Shared()
    with execution.one_pass():
        block(hidden, None, shared)
        with Operations() as counted:
            block(hidden, None, shared)
    return counted.found


@contextmanager
def base_size() -> Iterator[None]:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with set_default_dtype(torch.bfloat16), FakeTensorMode(), device, torch.no_grad():
        yield


@pytest.mark.parametrize(
    ("projection", "most"),
    [(longform.Projection("linear", sharing="key_value"), 16), ("weighted_mean", 21), ("mean", 21)],
)
def test_operations_of_a_layer(projection, most):
    """As a GPU is given it; what is made once a pass is counted, since a mode sees it."""
    with base_size():
        found = operations(LinformerAttention(768, 12, projection=projection, **SIZES))
    assert len(found) <= most, found


@pytest.mark.parametrize("projection", ["weighted_mean", "mean"])
def test_operations_of_a_layer_with_a_window(monkeypatch, projection):
    """A stand-in is Triton's kernel, one operation; what is made once a pass is not counted."""
    kernel = Mock(apply=lambda query, *_: torch.empty_like(query))
    monkeypatch.setattr(triton_kernel, "WalkedAttention", kernel)
    monkeypatch.setitem(dispatch.OPERATIONS, "window", (dispatch.Kernel("triton", triton_kernel.attend),))
    monkeypatch.setattr(execution, "execution_mode", lambda: Execution.PLAIN)
    sizes = SIZES | {"attention_window": 64}
    with base_size():
        found = operations(LinformerAttention(768, 12, projection=projection, **sizes))
    assert len(found) <= 26, found
