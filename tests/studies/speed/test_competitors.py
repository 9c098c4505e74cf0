import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from kernel_tables import only
from torch import Tensor, nn

from longform.errors import ConfigurationError
from longform.functional.dispatch import listening
from longform.layers import streaming
from longform_lab.speed import checks
from longform_lab.speed.checks import WrongOutput, check_gradients, check_output, checkable, verify
from longform_lab.speed.competitor import Competitor
from longform_lab.speed.competitors import all_competitors, chosen_competitors
from longform_lab.speed.precision import forward_of, make_pass, prepare, random_states
from longform_lab.speed.shapes import Cell

CELL = Cell(
    size="tiny", length=64, batch=2, slots=16, dtype="float32", mode="eager", work="inference", device="cpu", threads=1
)
PEERS = ("lucidrains", "lucidrains-share-kv", "tatp22")  # in tests/peers: they need an extra
OWN = [name for name in all_competitors() if name not in PEERS]


def made(name: str, cell: Cell, change: Any = None) -> tuple[Competitor, nn.Module, nn.Module, Tensor]:
    """A competitor, its model, the same as it is timed (after ``change``), and hidden states."""
    competitor = all_competitors()[name]
    model = competitor.build(cell.shape).eval()
    prepared = prepare(copy.deepcopy(model), cell, autocast=competitor.autocast)
    if change is not None:
        change(prepared)
    return competitor, model, prepared, torch.randn(cell.batch, cell.length, cell.shape.size.hidden)


def checked(name: str, cell: Cell, change: Any = None) -> tuple[nn.Module, float | None]:
    competitor, model, prepared, hidden = made(name, cell, change)
    return prepared, check_output(competitor, model, forward_of(prepared, cell), cell, hidden)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", OWN)
def test_every_competitor_is_right_and_runs(name: str, dtype: str) -> None:
    cell = replace(CELL, dtype=dtype)
    prepared, error = checked(name, cell)
    assert (error is None) == (all_competitors()[name].family == "sparse")
    make_pass(prepared, cell)(random_states(cell))


def test_full_attention_is_by_the_table_in_ours_and_by_the_fused_call_in_the_twin() -> None:
    hidden, taken = torch.randn(1, CELL.length, CELL.shape.size.hidden).bfloat16(), {}
    for name in ("ours-window", "sdpa"):
        model = all_competitors()[name].build(CELL.shape).eval().bfloat16()
        with torch.no_grad(), only(attention="formula"), listening() as heard:
            model(hidden)
        taken[name] = [choice.kernel for choice in heard if choice.operation == "attention"]
    assert taken == {"ours-window": ["formula"] * CELL.shape.size.layers, "sdpa": []}


@pytest.mark.parametrize("name", ["ours-linear", "ours-window", "sdpa", "unfused", "weights-first"])
def test_a_training_step_changes_weights_and_leaves_no_gradient(name: str) -> None:
    cell = replace(CELL, work="train", dtype="bfloat16")
    prepared, _ = checked(name, cell)
    before = copy.deepcopy(prepared.state_dict())
    make_pass(prepared, cell)(random_states(cell))
    changed = [key for key, value in prepared.state_dict().items() if not torch.equal(value, before[key])]
    assert len([key for key in changed if "attention" in key]) >= 4 * 2
    assert all(parameter.grad is None for parameter in prepared.parameters())


def gradients_checked(name: str, cell: Cell, change: Any = None) -> float | None:
    competitor, model, prepared, hidden = made(name, cell, change)
    found = check_gradients(competitor, model, prepared, cell, hidden)
    assert all(weight.grad is None for weight in prepared.parameters())
    return found


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", OWN)
def test_every_competitor_has_the_right_gradients(name: str, dtype: str) -> None:
    error = gradients_checked(name, replace(CELL, work="train", dtype=dtype))
    assert (error is None) == (all_competitors()[name].family == "sparse")


def test_a_wrong_gradient_is_noticed() -> None:
    def weight(prepared: nn.Module) -> nn.Parameter:
        return prepared.get_submodule("model.encoder.layers.1.attention").get_parameter("value.weight")

    cell = replace(CELL, work="train")
    with pytest.raises(WrongOutput, match="float64, of gradients"):
        gradients_checked("ours-window", cell, lambda prepared: weight(prepared).register_hook(lambda x: 1.1 * x))
    with pytest.raises(WrongOutput, match="of the weights that should"):
        gradients_checked("ours-window", cell, lambda prepared: weight(prepared).requires_grad_(False))


def test_what_goes_through_a_layer_in_parts_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "LONG", 64)
    monkeypatch.setattr(streaming, "LONG", 64)
    monkeypatch.setattr(checks, "CHECKED_TOKENS", 32)
    competitor, model, prepared, hidden = made("ours-window", CELL)
    forward = forward_of(prepared, CELL)
    assert check_output(competitor, model, forward, CELL, hidden) < 1e-5
    assert all(weight.requires_grad for weight in model.parameters())
    with pytest.raises(WrongOutput, match="in one piece"):
        check_output(competitor, model, lambda x: forward(x) * (1 + (x.shape[1] > 32)), CELL, hidden)


@pytest.mark.parametrize(("name", "length"), [("ours-linear", 640), ("weights-first", 512), ("lucidrains", 640)])
def test_models_of_one_length_are_checked_on_whole_texts(name: str, length: int) -> None:
    competitor = all_competitors()[name]
    short = checkable(competitor, replace(CELL, length=640))
    assert short.length == length
    if name not in PEERS:
        assert checked(name, short)[1] < 1e-4
    assert checkable(competitor, replace(CELL, length=5_000)).length == (5_000 if name == "ours-linear" else 512)


def test_a_wrong_weight_is_noticed() -> None:
    def spoil(prepared: nn.Module) -> None:
        prepared.get_submodule("model.encoder.layers.1.attention_norm").weight.data.mul_(1.1)

    with pytest.raises(WrongOutput, match="relative error"):
        checked("ours-linear", CELL, spoil)


def test_numbers_that_are_not_finite_are_noticed() -> None:
    def spoil(prepared: nn.Module) -> None:
        next(prepared.parameters()).data.fill_(float("nan"))
        for norm in prepared.modules():
            if isinstance(norm, nn.LayerNorm):
                norm.weight.data.fill_(float("nan"))

    for name in ("longformer", "sdpa"):
        with pytest.raises(WrongOutput):
            checked(name, CELL, spoil)


def test_the_twin_is_bert_with_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    twin = all_competitors()["sdpa"]
    verify(twin, CELL.shape)
    monkeypatch.setattr(checks, "PEER_ERROR", 0.0)
    monkeypatch.setattr("longform_lab.speed.full_attention.PEER_ERROR", 0.0)
    with pytest.raises(WrongOutput, match="BERT"):
        verify(twin, CELL.shape)


def test_a_missing_package_and_a_long_text_are_reasons() -> None:
    peer = replace(all_competitors()["lucidrains"], packages=("no_such_package",))
    assert "no_such_package" in peer.missing(CELL)
    assert "only Longform" in all_competitors()["sdpa"].missing(replace(CELL, length=131_072))
    assert all_competitors()["ours-window"].missing(replace(CELL, length=1_048_576)) == ""


@pytest.mark.parametrize(("name", "length", "fits"), [
    ("nystromformer", 50, True), ("nystromformer", 128, True), ("nystromformer", 100, False),
    ("bigbird", 100, True), ("bigbird", 1_000, False), ("bigbird", 1_024, True), ("longformer", 1_001, True),
])  # fmt: skip
def test_lengths_that_an_architecture_does_not_take_are_reasons(name: str, length: int, fits: bool) -> None:
    cell = replace(CELL, length=length)
    assert (all_competitors()[name].missing(cell) == "") == fits


def test_competitors_are_chosen_by_name_or_family_in_the_order_of_tables() -> None:
    assert list(chosen_competitors(["sdpa", "ours-linear"])) == ["ours-linear", "sdpa"]
    assert set(chosen_competitors(["peer"])) == set(PEERS)
    assert chosen_competitors(["all"]).keys() == all_competitors().keys()
    with pytest.raises(ConfigurationError, match="no competitor"):
        chosen_competitors(["nobody"])
