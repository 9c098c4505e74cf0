"""Another default dtype of torch: models give what they gave, with and without the kernels for AMX."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
PROGRAM = """
import copy
import itertools
import torch
import model_kinds
from kernel_tables import machine
from longform.functional.dispatch import listening
from longform.functional.native import library
from longform.functional.positions.tables import sinusoidal_positions
from longform.functional.slots import leading_tokens, make_runs, with_exact_runs

torch.set_num_threads(1)
library.best_units = lambda: None  # loops stand for AMX's units
SIZES = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64,
         "max_position_embeddings": 64, "projected_length": 16,
         "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
OWN = {"k of each head": {"projected_length": [[16, 8]]}, "window over everything": {"attention_window": 32}}


def infer(model, dtype, inputs):
    with torch.no_grad():
        return [model.to(dtype)(**inputs).last_hidden_state]


def train(model, dtype, inputs):
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        out = model.train()(**inputs).last_hidden_state
    (out.float() * torch.arange(out.shape[2], dtype=torch.float32)).sum().backward()
    return [out, *(x.grad for x in model.parameters() if x.grad is not None)]


def check(model, batch, length, dtype, units, given):
    texts = model_kinds.text(batch, length) if batch else {"input_ids": torch.zeros(0, length, dtype=torch.long)}
    with machine(units), listening() as heard:
        torch.set_default_dtype(torch.bfloat16)  # first, for what is kept from call to call
        found = given(copy.deepcopy(model), dtype, texts)
        torch.set_default_dtype(torch.float32)
        expected = given(copy.deepcopy(model), dtype, texts)
    assert all(torch.equal(x, y) for x, y in zip(found, expected, strict=True))
    assert all(x.isfinite().all() for x in found)
    return {choice.kernel for choice in heard}


served = set()
for kind in model_kinds.KINDS:
    torch.manual_seed(0)
    model = model_kinds.model(kind, **SIZES | OWN.get(kind, {}))
    shapes, dtypes = [(2, 64), (0, 20)], [torch.float32, torch.bfloat16]
    for case in itertools.product(shapes, dtypes, (None, "amx"), (infer, train)):
        try:
            served |= check(model, *case[0], *case[1:])
        except Exception as error:
            raise AssertionError(f"{kind}, {case}") from error


def numbers():
    shape = {"batch": 1, "length": 511, "device": torch.device("cpu")}
    exact = leading_tokens(None, sinks=3, **shape)
    yield with_exact_runs(make_runs(None, exact.rest, sizes=(511,), slots=1, **shape), exact).count
    yield sinusoidal_positions(torch.arange(600), 8, deviation=1.0)


torch.set_default_dtype(torch.bfloat16)
found = list(numbers())
torch.set_default_dtype(torch.float32)
assert all(torch.equal(x, y) for x, y in zip(found, numbers(), strict=True)), found
assert {"compiled", "compiled_training", "sdpa"} <= served, served
"""


@pytest.mark.nightly
def test_models_give_what_they_gave_whatever_torchs_default_dtype_is() -> None:
    """A process of its own, so that no other test sees the dtype; batches of texts, and an empty one."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}
    subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True)
