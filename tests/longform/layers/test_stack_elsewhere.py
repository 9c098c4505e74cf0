"""The public stack inside DistributedDataParallel, fully_shard (FSDP2) and ONNX: the same numbers as alone."""

import copy
import warnings

import numpy as np
import onnxruntime
import pytest
import torch
from process_group import in_processes
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from longform import LinformerEncoder
from strategies import randomised
from tolerances import assert_close

KINDS = {
    "default": {},
    "linear": {"projection": "linear", "projected_length": 8},
    "window": {"attention_window": 8, "projection": "mean"},
}


def stack(kind: str) -> LinformerEncoder:
    torch.manual_seed(0)
    return randomised(LinformerEncoder(16, 2, 2, 32, **KINDS[kind]))


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.randn(4, 30, 16), torch.arange(30) < torch.tensor([[30], [11], [30], [4]])


def step(model: nn.Module, hidden: torch.Tensor, mask: torch.Tensor) -> None:
    """Gradients of a loss that is a mean over texts, so that processes may average theirs."""
    (model(hidden, mask).square() * mask[..., None]).sum(dim=(1, 2)).mean().backward()


def of_half(kind: str, how: str) -> list[torch.Tensor]:
    """Gradients that a process has after a step on its half of the batch."""
    model, half = stack(kind), slice(2 * torch.distributed.get_rank(), 2 * torch.distributed.get_rank() + 2)
    wrapped = DistributedDataParallel(model) if how == "ddp" else model
    if how == "fsdp":
        mesh = init_device_mesh("cpu", (2,))
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    step(wrapped, *(x[half] for x in batch()))
    found = [parameter.grad for parameter in model.parameters()]
    return [x.full_tensor() if how == "fsdp" else x for x in found]


@pytest.mark.parametrize("how", ["ddp", "fsdp"])
@pytest.mark.parametrize("kind", KINDS)
def test_two_processes(kind, how, tmp_path):
    alone = stack(kind)
    step(alone, *batch())
    for found in in_processes(2, of_half, tmp_path, kind, how):
        for one, parameter in zip(found, alone.parameters(), strict=True):
            assert_close(one, parameter.grad, scope="model")


@pytest.mark.nightly
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_onnx_with_a_dynamic_length(kind, masked, tmp_path):
    model, length = stack(kind).eval(), torch.export.Dim("length", min=2, max=32)
    hidden, mask = batch()
    given = (hidden, mask.float()) if masked else (hidden,)
    shapes = tuple({1: length} for _ in given)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shapes = (*shapes, None)[: len(given)] if masked else shapes
        torch.onnx.export(
            model, given, tmp_path / "stack.onnx", dynamic_shapes=shapes, dynamo=True, verbose=False,
            input_names=["hidden", "mask"][: len(given)],
        )  # fmt: skip
    session = onnxruntime.InferenceSession(tmp_path / "stack.onnx")
    for n in (30, 32, 7):
        x, part = torch.randn(4, n, 16), torch.ones(4, n)
        part[1, n // 2 :] = 0
        inputs = {"hidden": x.numpy()} | ({"mask": part.numpy()} if masked else {})
        (out,) = session.run(None, inputs)
        expected = model(x, part if masked else None).detach()
        shown = part.bool() if masked else torch.ones(4, n, dtype=torch.bool)
        assert_close(torch.from_numpy(np.array(out))[shown], expected[shown], scope="model")


@pytest.mark.parametrize("kind", KINDS)
def test_copies(kind):
    model, (hidden, mask) = stack(kind), batch()
    assert_close(copy.deepcopy(model)(hidden, mask), model(hidden, mask))
