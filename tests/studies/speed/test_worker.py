from dataclasses import replace
from typing import Any

import pytest

from longform.layers.packed_linear import PackedLinear
from longform_lab.speed import worker
from longform_lab.speed.checks import WrongOutput
from longform_lab.speed.children import job_for
from longform_lab.speed.competitors import all_competitors
from longform_lab.speed.precision import prepare, weight_bytes
from longform_lab.speed.shapes import Cell, Shape
from longform_lab.speed.worker import main

CELL = Cell(
    size="tiny", length=64, batch=1, slots=16, dtype="float32", mode="eager", work="train", device="cpu", threads=1
)


def run(task: str, names: list[str]) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    job = job_for(task, CELL, dict.fromkeys(names, 2), names, 60.0, None)
    main(job, lambda event, **values: events.append({"event": event, **values}))
    return events


def of(events: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {event["name"]: event for event in events if event["event"] == kind}


@pytest.mark.nightly  # processes that import torch
def test_memory_and_time_of_each_competitor() -> None:
    memory = of(run("memory", ["ours-linear", "sdpa"]), "memory")
    assert list(memory) == ["ours-linear", "sdpa"]
    # Two E of 16 x 64 would be more than one: layerwise has one, the twin has none.
    assert memory["ours-linear"]["weights"] - memory["sdpa"]["weights"] == 16 * 64 * 4
    assert all(event["seconds"] > 0 and event["process"] > 0 for event in memory.values())
    events = run("time", ["ours-linear", "sdpa"])
    assert set(of(events, "round")) == {"ours-linear", "sdpa"}  # a floor's rounds are of the one whose it is
    times = of(events, "time")
    for event in times.values():
        assert len(event["seconds"]) == len(event["floor"]) == 2
        assert event["error"] < 1e-5
    assert times["ours-linear"]["floor"] != times["sdpa"]["floor"]


@pytest.mark.nightly
def test_one_that_fails_while_it_is_timed_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    made = worker.make_pass
    models: list[Any] = []

    def exhausted(hidden: Any) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    def first_fails(model: Any, cell: Cell) -> Any:
        models.append(model)
        return exhausted if len(models) == 1 else made(model, cell)

    monkeypatch.setattr(worker, "make_pass", first_fails)
    events = run("time", ["unfused", "ours-mean"])
    assert of(events, "missing")["unfused"]["reason"] == "out of memory"
    assert list(of(events, "time")) == ["ours-mean"]


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
    assert {name: event["reason"] for name, event in of(events, "missing").items()} == {
        "unfused": "out of memory",
        "bert-sdpa": "its output is wrong: relative error 1",
    }
    assert list(of(events, task)) == ["ours-mean"]


def test_packed_weights_are_counted() -> None:
    cell = Cell(size="tiny", length=16, batch=1, slots=4, dtype="float32", mode="eager", work="inference", device="cpu",
                threads=1)  # fmt: skip
    for name in ("ours-window", "sdpa"):
        model = all_competitors()[name].build(cell.shape)
        plain = sum(x.nbytes for x in (*model.parameters(), *model.buffers()))
        prepared = prepare(model, cell)
        assert any(isinstance(part, PackedLinear) for part in prepared.modules())
        assert weight_bytes(prepared) == plain


def test_compiling_is_part_of_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is checked is compiled apart; the pass that is timed has run once before its turns begin."""
    passes: list[str] = []
    monkeypatch.setattr(worker, "_checked_pass", lambda competitor, cell: (lambda: passes.append("pass"), 0.0))
    monkeypatch.setattr(worker, "alternate", lambda actions, *given, **options: passes.append("turns") or {})
    monkeypatch.setattr(worker, "_floors", lambda *given: {})
    for mode, expected in (("compiled", ["pass", "turns"]), ("eager", ["turns"])):
        passes.clear()
        worker.measure_time(replace(CELL, mode=mode), {"ours-linear": 2}, [], 60.0, lambda *given, **values: None)
        assert passes == expected
