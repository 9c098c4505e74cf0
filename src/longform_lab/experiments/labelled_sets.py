"""Labelled long texts to measure classifiers on, and their splits: each split is its own draw of all three parts.

The sets are parquet files with the columns ``text`` and ``label`` in a folder; licences come with a package.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from longform.data.bundled import licence_texts
from longform.data.special_tokens import content_ids
from longform.data.text import clean_text
from longform.training.labels import Examples, learn_scheme

SHORT = 512  # tokens of the original, special ones included; longer texts are scored apart
FEWEST_CHARACTERS = 1_200  # no review of fewer has more than SHORT tokens


@dataclass(frozen=True)
class Split:
    """One draw; ``names``: the labels in order."""

    train: Examples
    validation: Examples
    test: Examples
    names: list[str]


@dataclass(frozen=True)
class LabelledSet:
    """``read``: (folder, tokenizer) -> the texts to draw from; the sizes of the parts that are drawn."""

    read: Callable[[Path, Any], pd.DataFrame]
    train: int
    validation: int
    test: int


def _table(name: str) -> Callable[[Path, Any], pd.DataFrame]:
    return lambda folder, tokenizer: pd.read_parquet(folder / f"{name}.parquet")


def _long_reviews(folder: Path, tokenizer: Any) -> pd.DataFrame:
    table = _table("imdb_train")(folder, tokenizer)
    table = table[table.text.str.len() >= FEWEST_CHARACTERS]
    return table[long_texts(table.text.tolist(), tokenizer)]


SETS = {
    "contracts": LabelledSet(_table("contracts_train"), 400, 100, 600),
    "hyperpartisan": LabelledSet(_table("hyperpartisan_train"), 300, 60, 156),
    "newsgroups": LabelledSet(_table("newsgroups_train"), 1_000, 200, 1_000),
    "long reviews": LabelledSet(_long_reviews, 600, 100, 800),
}
NAMES = ("licences", *SETS)


def draw(name: str, folder: Path | None, split: int, tokenizer: Any, *, most: int | None = None) -> Split:
    """Split number ``split`` of a set; ``most``: texts of each part at most."""
    if name == "licences":
        found = licence_texts(seed=split)
        parts = [
            [(document.text, document.fields["category"]) for document in part]
            for part in (found.train, found.validation, found.test)
        ]
    else:
        chosen = SETS[name]
        assert folder is not None
        table = chosen.read(folder, tokenizer).sample(frac=1.0, random_state=split)
        pairs = list(zip(table.text, table.label.map(str), strict=True))
        sizes = (min(size, most or size) for size in (chosen.train, chosen.validation, chosen.test))
        parts = [pairs[first:end] for first, end in pairwise(accumulate(sizes, initial=0))]
    made = [
        Examples([clean_text(text)[0] for text, _ in part[:most]], [label for _, label in part[:most]])
        for part in parts
    ]
    return Split(*made, names=learn_scheme(made[0].labels, "single-label").names)


def long_texts(texts: list[str], tokenizer: Any) -> list[bool]:
    """Whether each has more than 512 tokens, special ones included."""
    return [len(ids) + 2 > SHORT for ids in content_ids(tokenizer, texts)]
