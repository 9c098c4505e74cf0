"""Which slots learn on vectors that people have: by content, by place, or neither; ten data sets, few and many steps.

    pip install --no-deps --target DATA sktime==0.37.0 scanpy==1.11.5 h5py     # for the data in them
    PYTHONPATH=DATA python -m longform_lab.experiments.own_data newsgroups_train.parquet
    python -m longform_lab.experiments.own_data --draw                         # the picture

A linear layer (bytes: a table), learned places, two layers 32 wide of each kind of attention with k = n / 4, the mean
of the text, a linear classifier; AdamW at a constant rate. Each kind has three rates with seed 0; other seeds run those
that were best, after few and after many steps, on a fifth of the training samples, which are kept for that. What is in
the records already does not run again. The signals, of 2,000 tokens, have one rate, fewer steps, no places at first,
and the maximum of the text. Points of digits have no places.

Axes: N samples, n tokens, C channels.
"""

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from longform import LinformerEncoder, parameter_groups
from longform.errors import require
from longform_lab.accuracies import accuracies, best_of
from longform_lab.experiments.own_data_sets import SETS, Samples, Sets, load, split
from longform_lab.pictures import finish, picture
from longform_lab.records import RECORDS, ROOT, Record, append_records, read_records

WIDTH, LAYERS, HEADS, BATCH, SEEDS, NAME = 32, 2, 4, 16, (0, 1, 2), "own_data"
PICTURE = ROOT / "docs" / "pictures" / "own-data.png"


class Plan(NamedTuple):
    """Training of a data set. ``places``: deviation of the learned places at first, None for no places; ``pooling``:
    "mean" or "max".
    """

    few: int = 100  # steps
    many: int = 300
    rates: tuple[float, ...] = (1e-3, 3e-3, 1e-2)
    places: float | None = 0.5
    pooling: str = "mean"


PLANS = {name: Plan() for name in SETS} | {
    "signals": Plan(50, 100, (3e-3,), 0.0, "max"),
    "points of digits": Plan(places=None),
}

KINDS: dict[str, Any] = {
    "nn.TransformerEncoder": None,
    "full attention, convolution": {},
    "default": {},
    "default, no convolution": {"short_convolution": 0},
    "default, 16 tokens a slot": {"tokens_per_slot": 16},
    "by place": {"projection": "by_place"},
    "by place, convolution": {"projection": "by_place", "short_convolution": 5},
    "content and place": {"projection": "content_and_place"},
    "latents": {"projection": "latent"},
    "paper's E": {"projection": "linear"},
    "mean": {"projection": "mean"},
    "window": {"attention_window": 16},
    "selection": {"attention_window": 16, "selected_slots": 4},
    "linformer (lucidrains)": None,
}


class _Other(nn.Module):
    """torch's encoder, or that of the package linformer, which takes no mask: padding is zeros."""

    def __init__(self, kind: str, length: int) -> None:
        super().__init__()
        self.takes_mask = kind.startswith("nn.")
        if self.takes_mask:
            layer = nn.TransformerEncoderLayer(
                WIDTH, HEADS, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
            )
            self.stack = nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        else:
            theirs = require("linformer", extra="train").Linformer(WIDTH, length, LAYERS, k=length // 4, heads=HEADS)
            self.stack = nn.Sequential(theirs, nn.LayerNorm(WIDTH))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.stack(x, src_key_padding_mask=~mask) if self.takes_mask else self.stack(x * mask[..., None])


def stack_of(kind: str, length: int) -> nn.Module:
    """The encoder of a kind for so many tokens."""
    options: Any = KINDS[kind]
    if options is None:
        return _Other(kind, length)
    slots: int | None = -(-length // 4)
    if "attention_window" in options or "tokens_per_slot" in options:
        slots = None  # of 4 tokens, which divide the window, or of as many as asked for
    if kind.startswith("full"):
        slots = length
    return LinformerEncoder(WIDTH, LAYERS, HEADS, length, projected_length=slots, **options)


class Classifier(nn.Module):
    """Vectors or bytes, places, a stack, the mean or maximum of what is no padding, classes."""

    def __init__(self, kind: str, train: Samples, plan: Plan) -> None:
        super().__init__()
        length = train.x.shape[1]
        is_bytes = train.x.dtype == torch.long
        self.embed = nn.Embedding(256, WIDTH) if is_bytes else nn.Linear(train.x.shape[2], WIDTH)
        self.places = None if plan.places is None else nn.Parameter(plan.places * torch.randn(length, WIDTH))
        self.stack, self.head = stack_of(kind, length), nn.Linear(WIDTH, int(train.labels.max()) + 1)
        self.pooling = plan.pooling

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """(B, n, C) or bytes (B, n), and a mask (B, n) -> (B, classes)."""
        embedded = self.embed(x)
        out = self.stack(embedded if self.places is None else embedded + self.places, mask)
        if self.pooling == "max":
            return self.head(out.masked_fill(~mask[..., None], float("-inf")).amax(dim=1))
        return self.head((out * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True))


@torch.no_grad()
def accuracy(model: nn.Module, test: Samples) -> float:
    """Share of the samples whose class is found."""
    parts = zip(*(part.split(BATCH) for part in test), strict=True)
    right = sum(int((model.eval()(x, mask).argmax(dim=1) == labels).sum()) for x, mask, labels in parts)
    return right / len(test.labels)


def measure(kind: str, data: Sets, *, rate: float, seed: int, name: str) -> Record:
    """Accuracy on kept training samples and on the test set after few and after many steps, and the training's time."""
    (given, test), plan = data, PLANS[name]
    train, kept = split(given, len(given.labels) * 4 // 5)
    torch.manual_seed(seed)
    model = Classifier(kind, train, plan)
    optimizer = torch.optim.AdamW(parameter_groups(model, lr=rate), weight_decay=0.01)
    found, seconds = {}, 0.0
    for step in range(1, plan.many + 1):
        some, began = torch.randint(len(train.labels), (BATCH,)), time.process_time()
        optimizer.zero_grad()
        cross_entropy(model.train()(train.x[some], train.mask[some]), train.labels[some]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seconds += time.process_time() - began
        if step in (plan.few, plan.many):
            found[step] = accuracy(model, kept), accuracy(model, test)
    return Record(
        name=NAME,
        metrics={
            "few": found[plan.few][1], "many": found[plan.many][1], "kept_few": found[plan.few][0],
            "kept_many": found[plan.many][0], "cpu_seconds": round(seconds, 2),
        },
        settings={
            "data": name, "kind": kind, "rate": rate, "seed": seed, "steps": [plan.few, plan.many],
            "length": train.x.shape[1], "train": len(train.labels), "test": len(test.labels), "width": WIDTH,
            "layers": LAYERS, "threads": 1,
        },
    )  # fmt: skip


def rates_to_run(rows: Sequence[Mapping[str, Any]], kind: str, seed: int, every: tuple[float, ...]) -> Iterator[float]:
    """Rates of a kind that a seed lacks: with seed 0 ``every``, then those best with it after few or many steps."""
    own = {(row["settings"]["rate"], row["settings"]["seed"]): row["metrics"] for row in rows
           if row["settings"]["kind"] == kind}  # fmt: skip
    rates = set(every)
    if seed:
        rates = {max(every, key=lambda rate: own[rate, 0][f"kept_{when}"]) for when in ("few", "many")}
    return (rate for rate in sorted(rates) if (rate, seed) not in own)


def run(names: list[str], kinds: list[str], seeds: list[int], path: Path, texts: str | None) -> Iterator[Record]:
    """Records that are not in the file at ``path``."""
    for seed, name, kind in product(seeds, names, kinds):
        there = [vars(each) for each in read_records([path] if path.exists() else [])]
        rows = [row for row in there if row["settings"]["data"] == name]
        for rate in rates_to_run(rows, kind, seed, PLANS[name].rates):
            yield measure(kind, load(name, texts), rate=rate, seed=seed, name=name)


def draw(records: list[Record]) -> None:
    """Points behind the best kind of each data set, as a picture."""
    rows = [vars(each) for each in records if each.settings["data"] != "signals"]  # of which few kinds were tried
    found = {key: 100 * float(np.mean(each)) for key, each in accuracies(rows).items()}
    best = best_of(found)
    kinds = [kind for kind in KINDS if any(kind == other for _, other, _ in found)]
    with picture(PICTURE, 9, 4.5, 1, 2, sharey=True) as axes:
        for one, when in zip(axes, ("few", "many"), strict=True):
            for place, kind in enumerate(kinds):
                behind = [best[name, when] - found[name, kind, when] for name in SETS if (name, kind, when) in found]
                one.plot(behind, [place] * len(behind), "o", alpha=0.5, color="tab:blue")
                one.plot(float(np.mean(behind)), place, "|", color="black", markersize=16)
            one.set_yticks(range(len(kinds)), kinds)
            finish(one, f"after {when} steps", "points behind the best of a data set (|: mean)", "")


def main() -> None:
    """Measure, print and append the records; or draw them."""
    torch.set_num_threads(1)
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("newsgroups", nargs="?", help="a file of messages with texts and labels")
    made.add_argument("--data", nargs="+", default=list(SETS), choices=list(SETS))
    made.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    made.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    made.add_argument("--draw", action="store_true")
    given = made.parse_args()
    path = RECORDS / f"{NAME}.jsonl"
    if given.draw:
        return draw(read_records([path]))
    for record in run(given.data, given.kinds, given.seeds, path, given.newsgroups):
        print(record.settings["data"], record.settings["kind"], record.settings["rate"], record.metrics, flush=True)
        append_records(path, [record])
    return None


if __name__ == "__main__":
    main()
