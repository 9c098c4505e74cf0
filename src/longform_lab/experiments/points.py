"""Which attention learns a field from points in any order: Darcy flow (darcy.py), one backbone, many kinds.

    python -m longform_lab.experiments.points --tasks shuffled raster      # measure; goes on where the records end
    python -m longform_lab.experiments.points --steps --kinds latent       # time of a step against full attention's

Coefficient and coordinates in, pressure out; relative L2 error. Two layers over each point, four blocks 64 wide of 4
heads with k = 64, a norm, a number; AdamW, one cycle of the rate, gradients of norm 1 at most. A kind has three rates
with seed 0, and other seeds the one that was best on validation samples. What is in the records does not run again.

Axes: N samples, B batch, n points, D hidden.
"""

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from longform import LinformerAttention
from longform_lab.experiments.darcy import CELLS, Samples, samples
from longform_lab.experiments.point_rivals import RIVALS
from longform_lab.records import RECORDS, Record, append_records, read_records

WIDTH, LAYERS, HEADS, SLOTS, BATCH, SEEDS, NAME = 64, 4, 4, 64, 20, (0, 1, 2), "points"
TRAIN, VALIDATION, TEST = 1000, 100, 200
RATES = (2e-3, 1e-3, 4e-3)
STEPS, STEP_POINTS = "points_steps", 4096


class Task(NamedTuple):
    """``side`` of the grid in training; ``others``: sides of the grids that are tested besides; ``shuffled``: points in
    an order that is drawn anew for each sample; ``points``: so many of the grid, drawn anew for each sample, None: all.
    """

    side: int
    others: tuple[int, ...] = ()
    shuffled: bool = False
    points: int | None = None
    epochs: int = 15


TASKS = {
    "shuffled": Task(16, (32,), shuffled=True),
    "raster": Task(16, (32,)),
    "cloud": Task(CELLS, shuffled=True, points=1024, epochs=8),
    "field": Task(CELLS, epochs=4),
}
OURS: dict[str, dict[str, Any]] = {
    "latent": {"projection": "latent", "projected_length": SLOTS},
    "default": {},
    "by place": {"projection": "by_place", "projected_length": SLOTS},
    "window": {"attention_window": 16},
    "tiles": {"tile": (2, 2)},
}
KINDS = (*RIVALS, *OURS)


def attention_of(kind: str, task: Task) -> nn.Module:
    """The attention of one layer."""
    if kind in RIVALS:
        return RIVALS[kind](WIDTH, HEADS, SLOTS)
    options = dict(OURS[kind])
    if kind == "by place":
        options["max_length"] = task.points or task.side**2
    return LinformerAttention(WIDTH, HEADS, **options)


def fits(kind: str, task: Task, side: int | None = None) -> bool:
    """Whether a kind takes the grids of a task, or those of another ``side``."""
    if kind == "by place":
        return side in (None, task.side)
    return kind != "tiles" or not task.shuffled


class Block(nn.Module):
    """x + attention(norm(x)), then x + feed-forward(norm(x))."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attention, self.norms = attention, nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.feed_forward = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x: Tensor, **options: Any) -> Tensor:
        """x (B, n, D) -> (B, n, D)."""
        x = x + self.attention(self.norms[0](x), **options)
        return x + self.feed_forward(self.norms[1](x))


class Operator(nn.Module):
    """points (B, n, 3) -> (B, n)."""

    def __init__(self, kind: str, task: Task) -> None:
        super().__init__()
        self.tiles = kind == "tiles"
        self.first = nn.Sequential(nn.Linear(3, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
        self.blocks = nn.ModuleList(Block(attention_of(kind, task)) for _ in range(LAYERS))
        self.last = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 1))

    def forward(self, points: Tensor) -> Tensor:
        """points (B, n, 3) -> (B, n)."""
        side = round(points.shape[1] ** 0.5)
        options = {"grid": (side, side)} if self.tiles else {}
        x = self.first(points)
        for block in self.blocks:
            x = block(x, **options)
        return self.last(x)[..., 0]


def relative_error(found: Tensor, pressure: Tensor) -> Tensor:
    """||p' - p|| / ||p|| of each sample: (B, n) each -> (B)."""
    return (found - pressure).norm(dim=1) / pressure.norm(dim=1)


def drawn(some: Samples, task: Task, source: torch.Generator) -> Samples:
    """``some`` samples with their points in the order, and as many, as the task has them."""
    count, length = some.pressure.shape
    if not task.shuffled:
        return some
    places = torch.stack([torch.randperm(length, generator=source)[: task.points] for _ in range(count)])
    return some.at(places)


class Fields(NamedTuple):
    """Samples of a task: to train on and to choose by, at its side, and to test on, by side."""

    train: Samples
    validation: Samples
    tests: dict[int, Samples]


def fields_of(task: Task) -> Fields:
    """The samples of a task, on its grids."""
    whole = samples(TRAIN + VALIDATION + TEST)
    parts = [Samples(*each) for each in zip(*(x.split([TRAIN, VALIDATION, TEST]) for x in whole), strict=True)]
    source = torch.Generator().manual_seed(1)
    train, validation = (part.grid(task.side) for part in parts[:2])
    tests = {side: drawn(parts[2].grid(side), task, source) for side in (task.side, *task.others)}
    return Fields(train, drawn(validation, task, source), tests)


@torch.no_grad()
def error(model: nn.Module, test: Samples, mean: Tensor, deviation: Tensor) -> float:
    """The mean relative error."""
    parts = zip(*(x.split(BATCH) for x in test), strict=True)
    found = [relative_error(model(points) * deviation + mean, pressure) for points, pressure in parts]
    return float(torch.cat(found).mean())


def measure(name: str, kind: str, *, rate: float, seed: int) -> Record:
    """Errors of a kind on validation and test samples after training, its parameters, and the time of training."""
    task = TASKS[name]
    fields, source = fields_of(task), torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = Operator(kind, task)
    mean, deviation = fields.train.pressure.mean(), fields.train.pressure.std()
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=1e-5)
    rates = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, rate, total_steps=task.epochs * TRAIN // BATCH, pct_start=0.2
    )
    began = time.process_time()
    for _ in range(task.epochs):
        for some in torch.randperm(TRAIN, generator=source).split(BATCH):
            points, pressure = drawn(Samples(*(x[some] for x in fields.train)), task, source)
            optimizer.zero_grad()
            relative_error(model(points) * deviation + mean, pressure).mean().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            rates.step()
    seconds = time.process_time() - began
    test = partial(error, model, mean=mean, deviation=deviation)
    found = {f"error_{side}": test(each) for side, each in fields.tests.items() if fits(kind, task, side)}
    return Record(
        name=NAME,
        metrics={"validation": test(fields.validation), **found, "cpu_seconds": round(seconds, 1)},
        settings={
            "task": name, "kind": kind, "rate": rate, "seed": seed, "epochs": task.epochs, "train": TRAIN,
            "points": task.points or task.side**2, "slots": SLOTS, "width": WIDTH, "layers": LAYERS, "threads": 1,
            "parameters": sum(x.numel() for x in model.parameters()),
        },
    )  # fmt: skip


def best_rate(rows: Sequence[Mapping[str, Any]]) -> float:
    """The rate with the smallest validation error of seed 0."""
    first = [row for row in rows if row["settings"]["seed"] == 0]
    return min(first, key=lambda row: row["metrics"]["validation"])["settings"]["rate"]


def rates_to_run(rows: Sequence[Mapping[str, Any]], seed: int) -> list[float]:
    """Rates that a seed lacks among the ``rows`` of one task and kind: all of seed 0, then the best of these."""
    there = {(row["settings"]["rate"], row["settings"]["seed"]) for row in rows}
    return [rate for rate in (RATES if seed == 0 else (best_rate(rows),)) if (rate, seed) not in there]


def run(tasks: list[str], kinds: list[str], seeds: list[int]) -> Iterator[Record]:
    """Records that are not in the file yet: of each seed the first rate of every kind, then the next."""
    for seed, _, name, kind in product(seeds, RATES, tasks, kinds):
        path = RECORDS / f"{NAME}.jsonl"
        there = [vars(each) for each in read_records([path] if path.exists() else [])]
        own = [row for row in there if (row["settings"]["task"], row["settings"]["kind"]) == (name, kind)]
        for rate in rates_to_run(own, seed)[:1] if fits(kind, TASKS[name]) else ():
            yield measure(name, kind, rate=rate, seed=seed)


def time_steps(kinds: list[str], rounds: int = 5) -> Iterator[Record]:
    """Seconds of a step of training on one sample of 4,096 points, each kind's beside full attention's, alternating."""
    task, points = TASKS["field"], torch.rand(1, STEP_POINTS, 3)
    for kind in kinds:
        models = [Operator(each, task) for each in ("full attention", kind)]
        found: list[list[float]] = [[], []]
        for _ in range(rounds + 1):
            for model, times in zip(models, found, strict=True):
                began = time.process_time()
                model(points).square().mean().backward()
                times.append(time.process_time() - began)
        full, own = (sorted(times[1:])[rounds // 2] for times in found)
        yield Record(
            name=STEPS,
            metrics={"cpu_seconds": own, "full_attention": full, "ratio": own / full},
            settings={"kind": kind, "points": STEP_POINTS, "slots": SLOTS, "width": WIDTH, "layers": LAYERS,
                      "rounds": rounds, "threads": 1},
        )  # fmt: skip


def main() -> None:
    """Measure, print and append the records."""
    torch.set_num_threads(1)
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--tasks", nargs="+", default=["shuffled", "raster"], choices=list(TASKS))
    made.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    made.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    made.add_argument("--steps", action="store_true")
    given = made.parse_args()
    for record in time_steps(given.kinds) if given.steps else run(given.tasks, given.kinds, given.seeds):
        print(record.settings, dict(record.metrics), flush=True)
        append_records(RECORDS / f"{record.name}.jsonl", [record])


if __name__ == "__main__":
    main()
