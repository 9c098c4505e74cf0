from dataclasses import replace

import pytest
import torch

from longform_lab.speed import floor, timed_floor
from longform_lab.speed.competitors import all_competitors
from longform_lab.speed.floor import Attention, Product
from longform_lab.speed.shapes import SIZES, Shape, Size
from longform_lab.speed.timed_floor import TimedFloor

SHAPE = Shape(Size(layers=3, hidden=24, heads=4, intermediate=40), length=320, slots=20)
BATCH = 2
N, D, INTERMEDIATE, K, WINDOW = 320, 24, 40, 20, 64
AROUND = 2 * N * D * D + 2 * N * D * INTERMEDIATE  # multiply-adds of one text: query, output, feed-forward


def multiply_adds(plan: floor.Floor) -> float:
    return plan.operations("inference") / 2 / plan.layers / BATCH


@pytest.mark.parametrize(
    ("plan", "own"),
    [
        (floor.full_floor(SHAPE, BATCH), 2 * N * D * D + 2 * N * N * D),
        (floor.dense_floor(SHAPE, BATCH, "layerwise"), K * N * D + 2 * K * D * D + 2 * N * K * D),
        (floor.dense_floor(SHAPE, BATCH, "headwise"), 2 * K * N * D + 2 * K * D * D + 2 * N * K * D),
        # An E for each head: 4 K N D a side is more than N D² + K N D.
        (floor.dense_floor(SHAPE, BATCH, "none"), 2 * N * D * D + 2 * K * N * D + 2 * N * K * D),
        (floor.mean_floor(SHAPE, BATCH), 2 * K * D * D + 2 * N * K * D),
        (floor.local_floor(SHAPE, BATCH), 2 * N * D * D + 2 * N * K * D),
        (
            floor.window_floor(SHAPE, BATCH),
            2 * N * D * D + 2 * N * 3 * WINDOW * D + 2 * N * SHAPE.window_slots * D,
        ),
    ],
    ids=["full", "layerwise", "headwise", "none", "mean", "convolution", "window"],
)
def test_operations_are_those_of_the_equations(plan: floor.Floor, own: int) -> None:
    assert multiply_adds(plan) == AROUND + own


def test_a_text_within_the_window_costs_full_attention() -> None:
    for length in (2 * WINDOW, 4 * WINDOW):  # the second: with slots of one token
        short = replace(SHAPE, length=length)
        assert floor.window_floor(short, BATCH) == floor.full_floor(short, BATCH)


def test_training_has_two_backward_products_for_each() -> None:
    plan = replace(floor.full_floor(SHAPE, BATCH), attention=())
    assert plan.operations("train") == 3 * plan.operations("inference")


@pytest.mark.parametrize("sharing", ["layerwise", "key-value", "headwise", "none"])
def test_bytes_are_weights_once_and_states_three_times_a_layer(sharing: str) -> None:
    competitor = all_competitors()["ours-linear" if sharing == "layerwise" else f"ours-linear-{sharing}"]
    assert competitor.floor is not None
    plan = competitor.floor(SHAPE, BATCH)
    encoder = competitor.build(SHAPE).model.encoder  # ty: ignore[unresolved-attribute]
    weights = sum(weight.numel() for weight in encoder.parameters() if weight.dim() > 1)
    assert plan.bytes("inference", 2) == 2 * (weights + 3 * 3 * N * BATCH * D)


@pytest.mark.parametrize("work", ["inference", "train"])
@pytest.mark.parametrize("name", ["ours-linear", "ours-linear-none", "ours-window", "sdpa", "ours-mean"])
def test_what_is_timed_is_the_plan(monkeypatch: pytest.MonkeyPatch, name: str, work: str) -> None:
    """Operations counted by torch while the floor runs are those of the plan."""
    from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

    # torch does not count products with packed weights, which are taken where they happen to be faster
    monkeypatch.setattr(timed_floor, "can_pack", lambda weight: False)
    # torch counts fused attention on GPUs alone
    fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    on_cpu = {fused: lambda query, key, value, *_, **__: sdpa_flop_count(query, key, value)}
    competitor = all_competitors()[name]
    assert competitor.floor is not None
    plan = competitor.floor(Shape(SIZES["tiny"], 192, 16), BATCH)
    plan = replace(plan, attention=()) if work == "train" else plan  # torch counts fused backward calls otherwise
    timed = TimedFloor(plan, dtype="float32", work=work, device=torch.device("cpu"))
    with FlopCounterMode(display=False, custom_mapping=on_cpu) as counter, torch.no_grad():
        timed()
    assert counter.get_total_flops() == plan.operations(work)


def test_the_floor_runs_in_bfloat16() -> None:
    plan = floor.Floor(1, (Product(8, 16, 24), Product(4, 8, 16, left=True)), (Attention(1, 2, 8, 4, 8),), 8, 16)
    timed = TimedFloor(plan, dtype="bfloat16", work="inference", device=torch.device("cpu"))
    assert len(timed.steps) == 3
    timed()


def test_packed_products_are_those_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the packed way is the faster one, it is run as often and at the shapes that the plan says."""
    seen: list[tuple[int, ...]] = []
    monkeypatch.setattr(timed_floor, "can_pack", lambda weight: True)
    monkeypatch.setattr(timed_floor, "pack", lambda weight, kernel: weight)
    monkeypatch.setattr(timed_floor, "linear", lambda x, weight, bias: seen.append((*x.shape, *weight.shape)))
    monkeypatch.setattr(TimedFloor, "_faster", lambda self, product, ways: ways[-1])
    plan = floor.Floor(2, (Product(8, 16, 24, 3), Product(8, 24, 16)), (), 8, 16)
    TimedFloor(plan, dtype="float32", work="inference", device=torch.device("cpu"))()
    assert seen == 2 * [*3 * [(8, 16, 24, 16)], (8, 24, 16, 24)]
