"""The points experiment: its solver, its rivals' equations, and which rates run."""

import numpy as np
import pytest
import torch
from torch.nn.functional import softmax

from longform_lab.experiments import points
from longform_lab.experiments.darcy import CELLS, HIGH, LOW, Samples, coefficient, pressure, samples
from longform_lab.experiments.point_rivals import (
    FlarePlus,
    FullAttention,
    InducedAttention,
    SliceAttention,
)
from strategies import randomised
from tolerances import assert_close

WIDTH, HEADS, SLOTS = 6, 2, 5


def test_a_field_of_one_coefficient_has_the_pressure_of_its_series():
    """p = sum over odd i, j of 16 / (pi^4 i j (i² + j²)) sin(pi i x) sin(pi j y)."""
    odd, middle = np.arange(1, 200, 2), (np.arange(32) + 0.5) / 32
    sines = np.sin(np.pi * odd[:, None] * middle)
    size = 16 / (np.pi**4 * np.outer(odd, odd) * (odd[:, None] ** 2 + odd**2))
    expected = np.einsum("ij,ix,jy->xy", size, sines, sines)
    np.testing.assert_allclose(pressure(np.full((32, 32), 2.0)), expected / 2, atol=1e-4)


def test_flow_through_two_layers_of_ground():
    """As on a grid of half the cell; and each cell gives off what it gets."""
    ground = coefficient(np.random.default_rng(0), 16)
    assert set(np.unique(ground)) == {LOW, HIGH}
    coarse, fine = pressure(np.kron(ground, np.ones((2, 2)))), pressure(np.kron(ground, np.ones((4, 4))))
    means = fine.reshape(32, 2, 32, 2).mean(axis=(1, 3))
    assert np.linalg.norm(means - coarse) < 0.01 * np.linalg.norm(means)


def test_coarse_grids_are_points_of_the_fine_one():
    some = samples(2)
    for side in (16, 32):
        coarse, step = some.grid(side), CELLS // side
        assert coarse.points.shape == (2, side**2, 3)
        expected = some.pressure.unflatten(1, (CELLS, CELLS))[:, step // 2 :: step, step // 2 :: step]
        assert torch.equal(coarse.pressure, expected.flatten(1))
    assert torch.equal(some.at(torch.tensor([[3], [5]])).pressure, some.pressure[[0, 1], [3, 5]][:, None])


def made(kind, seed=0):
    torch.manual_seed(seed)
    return randomised(kind(WIDTH, HEADS, SLOTS).double()), torch.randn(3, 11, WIDTH, dtype=torch.float64)


def by_head(layer, x):
    return layer.linear(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)


def unit(x, weight):
    return x / (x.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt() * weight


def full(layer, x):
    q, k, v = (by_head(part, x) for part in (layer.query, layer.key, layer.value))
    return softmax(q @ k.mT / 3**0.5, dim=-1) @ v


def induced(layer, x):
    q, k, v = layer.inward
    seeking = by_head(q, layer.points)
    found = softmax(seeking @ by_head(k, x).mT / 3**0.5, dim=-1) @ by_head(v, x)
    found = layer.points + layer.found(found.transpose(1, 2).flatten(2))
    q, k, v = layer.outward
    return softmax(by_head(q, x) @ by_head(k, found).mT / 3**0.5, dim=-1) @ by_head(v, found)


def sliced(layer, x):
    weights = softmax(layer.slices(by_head(layer.shares, x)) / layer.temperature, dim=-1)
    values = by_head(layer.values, x)
    means = torch.einsum("bhnk,bhnd->bhkd", weights, values) / (weights.sum(dim=2)[..., None] + 1e-5)
    q, k, v = (part(means) for part in layer.between)
    return torch.einsum("bhnk,bhkd->bhnd", weights, softmax(q @ k.mT / 3**0.5, dim=-1) @ v)


def flare_plus(layer, x):
    q_weight, k_weight, other = layer.weights
    sought = unit(by_head(layer.sought, x), other)
    found = softmax(unit(layer.seekers, other) @ sought.mT / 3**0.5, dim=-1) @ sought
    logits = unit(layer.latents + layer.gate * found, q_weight) @ unit(by_head(layer.key, x), k_weight).mT
    return softmax(logits.mT, dim=-1) @ (softmax(logits, dim=-1) @ by_head(layer.value, x))


def flare(layer, x):
    logits = layer.latents @ by_head(layer.key, x).mT
    return softmax(logits.mT, dim=-1) @ (softmax(logits, dim=-1) @ by_head(layer.value, x))


EQUATIONS = {
    FullAttention: full, InducedAttention: induced, SliceAttention: sliced, points.RIVALS["FLARE"]: flare,
    FlarePlus: flare_plus,
}  # fmt: skip


@pytest.mark.parametrize("kind", points.RIVALS.values(), ids=points.RIVALS)
def test_each_rival_is_its_equation_and_knows_no_order(kind):
    layer, x = made(kind)
    out = layer(x)
    assert_close(out, layer.output(EQUATIONS[kind](layer, x).transpose(1, 2).flatten(2)))
    order = torch.randperm(11)
    assert_close(layer(x[:, order]), out[:, order])


@pytest.mark.parametrize("kind", points.KINDS)
def test_every_kind_learns_from_every_grid_it_takes(kind):
    task = points.TASKS["raster"]
    model = points.Operator(kind, task)
    given = samples(2).grid(16)
    points.relative_error(model(given.points), given.pressure).mean().backward()
    assert [name for name, x in model.named_parameters() if x.grad is None] == []
    if points.fits(kind, task, 32):
        assert model(samples(2).grid(32).points).shape == (2, 1024)


def test_shuffled_samples_are_the_same_points():
    given, source = samples(2).grid(16), torch.Generator().manual_seed(0)
    mixed = points.drawn(given, points.TASKS["shuffled"], source)
    assert not torch.equal(mixed.points, given.points)
    for some, other in zip(mixed.points, given.points, strict=True):
        assert sorted(map(tuple, some.tolist())) == sorted(map(tuple, other.tolist()))
    assert points.drawn(samples(2), points.TASKS["cloud"], source).pressure.shape == (2, 1024)
    assert points.drawn(given, points.TASKS["raster"], source) is given


def test_a_small_run_is_a_record_and_does_not_run_again(monkeypatch, tmp_path):
    monkeypatch.setattr(points, "RECORDS", tmp_path)
    for name, value in (("TRAIN", 4), ("VALIDATION", 2), ("TEST", 2), ("BATCH", 2), ("RATES", (2e-3, 1e-3))):
        monkeypatch.setattr(points, name, value)
    monkeypatch.setitem(points.TASKS, "shuffled", points.Task(16, (32,), shuffled=True, epochs=1))
    found = []
    for record in points.run(["shuffled"], ["latent", "tiles"], [0, 1]):
        points.append_records(tmp_path / "points.jsonl", [record])
        found.append((record.settings["kind"], record.settings["rate"], record.settings["seed"]))
        assert {"validation", "error_16", "error_32", "cpu_seconds"} == set(record.metrics)
    assert found[:2] == [("latent", 2e-3, 0), ("latent", 1e-3, 0)]
    assert found[2][1:] == (
        points.best_rate([vars(each) for each in points.read_records([tmp_path / "points.jsonl"])]),
        1,
    )
    assert len(found) == 3
    assert list(points.run(["shuffled"], ["latent"], [0, 1])) == []


def test_errors_of_samples():
    given = Samples(torch.zeros(1, 2, 3), torch.tensor([[3.0, 4.0]]))
    assert_close(points.relative_error(torch.tensor([[0.0, 4.0]]), given.pressure), torch.tensor([0.6]))
