from dataclasses import asdict, replace
from typing import Any

import pytest
import torch
from kernel_tables import only
from torch import nn

from longform.functional.dispatch import listening
from longform.layers.linear import PackedLinear
from longform_lab.speed import worker
from longform_lab.speed.competitors import all_competitors
from longform_lab.speed.precision import make_pass, prepare, random_states, weight_bytes
from longform_lab.speed.shapes import Cell, Shape
from longform_lab.speed.worker import WrongOutput, check, main

CELL = Cell(
    size="tiny", length=64, batch=1, slots=16, dtype="float32", mode="eager", work="train", device="cpu", threads=1
)
PEERS = ("lucidrains", "lucidrains-share-kv", "tatp22")  # in tests/longform/peers: they need an extra
OWN = [name for name in all_competitors() if name not in PEERS]


def run(task: str, names: list[str]) -> dict[str, dict[str, dict[str, Any]]]:
    """Kind of event -> competitor -> event."""
    found: dict[str, dict[str, dict[str, Any]]] = {"begin": {}, "found": {}, "missing": {}}
    job = {"task": task, "cell": asdict(CELL), "repeats": dict.fromkeys(names, 2), "limit": 60.0, "memory_limit": None}
    main(job, lambda event, **values: found[event].update({values["name"]: values}))
    return found


@pytest.mark.nightly  # processes that import torch
def test_memory_and_time_of_each_competitor() -> None:
    memory = run("memory", ["ours-linear", "sdpa"])["found"]
    assert list(memory) == ["ours-linear", "sdpa"]
    # Two E of 16 x 64 would be more than one: layerwise has one, the twin has none.
    assert memory["ours-linear"]["weights"] - memory["sdpa"]["weights"] == 16 * 64 * 4
    assert all(event["seconds"] > 0 and event["process"] > 0 for event in memory.values())
    for event in run("time", ["ours-linear", "sdpa"])["found"].values():
        assert len(event["seconds"]) == 2
        assert event["error"] < 1e-5


@pytest.mark.parametrize("task", ["memory", pytest.param("time", marks=pytest.mark.nightly)])
def test_one_that_fails_does_not_stop_the_others(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(shape: Shape) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    def wrong(shape: Shape) -> None:
        raise WrongOutput("its output is wrong: relative error 1")

    every = all_competitors()
    every["unfused"] = replace(every["unfused"], build=exhausted)
    every["bert-sdpa"] = replace(every["bert-sdpa"], build=wrong)
    monkeypatch.setattr(worker, "all_competitors", lambda: every)
    events = run(task, ["unfused", "bert-sdpa", "ours-mean"])
    assert {name: event["reason"] for name, event in events["missing"].items()} == {
        "unfused": "out of memory",
        "bert-sdpa": "its output is wrong: relative error 1",
    }
    assert list(events["found"]) == ["ours-mean"]


def test_packed_weights_are_counted() -> None:
    cell = replace(CELL, work="inference")
    for name in ("ours-window", "sdpa"):
        model = all_competitors()[name].build(cell.shape)
        plain = sum(x.nbytes for x in (*model.parameters(), *model.buffers()))
        prepared = prepare(model, cell)
        assert any(isinstance(part, PackedLinear) for part in prepared.modules())
        assert weight_bytes(prepared) == plain


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", OWN)
def test_every_competitor_is_right_and_runs(name: str, dtype: str) -> None:
    cell, competitor = replace(CELL, dtype=dtype, work="inference"), all_competitors()[name]
    error = check(competitor, cell)
    assert (error is None) == (competitor.family == "sparse")
    make_pass(prepare(competitor.build(cell.shape), cell, autocast=competitor.autocast), cell)(random_states(cell))


def test_full_attention_is_by_the_table_in_ours_and_by_the_fused_call_in_the_twin() -> None:
    hidden, taken = torch.randn(1, CELL.length, CELL.shape.size.hidden).bfloat16(), {}
    for name in ("ours-window", "sdpa"):
        model = all_competitors()[name].build(CELL.shape).eval().bfloat16()
        with torch.no_grad(), only(attention="formula"), listening() as heard:
            model(hidden)
        taken[name] = [choice.kernel for choice in heard if choice.operation == "attention"]
    assert taken == {"ours-window": ["formula"] * CELL.shape.size.layers, "sdpa": []}


@pytest.mark.parametrize("name", ["ours-linear", "ours-window", "sdpa", "unfused"])
def test_a_training_step_changes_weights_and_leaves_no_gradient(name: str) -> None:
    cell = replace(CELL, dtype="bfloat16")
    prepared = prepare(all_competitors()[name].build(cell.shape).eval(), cell)
    before = {key: value.clone() for key, value in prepared.state_dict().items()}
    make_pass(prepared, cell)(random_states(cell))
    changed = [key for key, value in prepared.state_dict().items() if not torch.equal(value, before[key])]
    assert len([key for key in changed if "attention" in key]) >= 4 * 2
    assert all(parameter.grad is None for parameter in prepared.parameters())


@pytest.mark.parametrize(
    ("name", "factor", "message"),
    [("ours-linear", 1.1, "from float64"), ("sdpa", float("nan"), "finite"), ("longformer", float("nan"), "finite")],
)
def test_a_wrong_output_is_noticed(name: str, factor: float, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoilt(model: nn.Module, cell: Cell, **options: Any) -> nn.Module:
        for norm in [part for part in model.modules() if isinstance(part, nn.LayerNorm)]:
            norm.weight.data.mul_(factor)
        return prepare(model, cell, **options)

    monkeypatch.setattr(worker, "prepare", spoilt)
    with pytest.raises(WrongOutput, match=message):
        check(all_competitors()[name], replace(CELL, work="inference"))
