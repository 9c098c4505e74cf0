"""Compiled models in bfloat16, and whole models by Inductor, the default backend."""

import copy

import pytest
import torch
from model_kinds import compiled_kinds, model, text
from torch._dynamo.testing import CompileCounterWithBackend

from tolerances import assert_close

SMALL = {"num_hidden_layers": 1, "initializer_range": 0.1, "hidden_size": 32, "intermediate_size": 48}
IN_BFLOAT16 = ("linear", "random", "mean", "max", "convolution", "mean-window", "convolution-window")


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    torch.manual_seed(5)


@pytest.mark.parametrize("kind", compiled_kinds(IN_BFLOAT16))
@torch.no_grad()
def test_bfloat16_is_one_graph_and_near_the_twin(kind):
    made, counter = model(kind, **SMALL).bfloat16(), CompileCounterWithBackend("eager")
    twin, compiled = copy.deepcopy(made).double(), torch.compile(made, fullgraph=True, dynamic=True, backend=counter)
    for length in (20, 9):
        given = text(3, length)
        out, kept = compiled(**given).last_hidden_state, given["attention_mask"].bool()
        assert out.dtype == torch.bfloat16
        assert_close(out[kept], twin(**given).last_hidden_state[kept], scope="model")
    assert counter.frame_count == 1


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")  # torch's own
@pytest.mark.parametrize(("kind", "dtype"), [("linear", torch.float32), ("mean-window", torch.bfloat16)])
@pytest.mark.nightly
@torch.no_grad()
def test_inductor_is_near_the_twin(kind, dtype):
    """A whole model, so that what lies between the layers is fused too. Two of four: each costs 20 seconds of C++."""
    made = model(kind, **SMALL, use_pooler=False).to(dtype)
    twin, compiled = copy.deepcopy(made).double(), torch.compile(made, fullgraph=True, dynamic=True)
    for length in (20, 29):
        given = text(2, length)
        out, kept = compiled(**given).last_hidden_state, given["attention_mask"].bool()
        assert out.dtype == dtype
        assert_close(out[kept], twin(**given).last_hidden_state[kept], scope="model")
