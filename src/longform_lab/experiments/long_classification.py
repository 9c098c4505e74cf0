"""Labels of long documents from frozen encoders: cut, chunks, a window, weighted means, and words.

    python -m longform_lab.experiments.long_classification read chunks=bundled window=FOLDER --data ../shared/data
    python -m longform_lab.experiments.long_classification table chunks window --data ../shared/data

``read`` keeps the states' means of every text by one reading ("chunks=FOLDER", "window=FOLDER", any NAME=FOLDER; the
reading named "chunks" is of 512 tokens at a time); what is finished is kept. ``table`` fits a logistic regression on
them, five folds, and appends records. Nothing of an encoder is trained here.
"""

import argparse
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import accuracy_score, f1_score
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from tqdm import tqdm

import longform
from longform_lab.records import Record, append_records

MOST = 4096  # tokens of a text that are read
CHUNK = 512  # the original's own length, special tokens included
SETS = {"hyperpartisan": (516, 1), "newsgroups": (500, CHUNK), "contracts": (250, CHUNK)}  # texts, least tokens
FOLDS = 5
STUDENT = 2.776  # of a t-distribution of four degrees of freedom: 95 %
POOLINGS = ("mean", "sqrt", "lead")  # all tokens alike; a repeated token less; the first 510 beside all


def texts(data: Path, name: str, tokenizer: Any) -> tuple[list[str], list[str]]:
    """Texts and labels of a set, drawn by its name."""
    count, least = SETS[name]
    rows = pq.read_table(data / f"{name}_train.parquet").to_pylist()
    random.Random(name).shuffle(rows)
    found = [r for r in rows[: 20 * count] if least == 1 or len(tokenizer(r["text"][:20_000])["input_ids"]) > least]
    return [r["text"] for r in found[:count]], [str(r["label"]) for r in found[:count]]


def pieces(ids: list[int], size: int) -> Iterator[list[int]]:
    """Runs of at most ``size`` ids."""
    yield from (ids[start : start + size] for start in range(0, len(ids), size))


def states_of(encoder: Any, text: str, size: int) -> tuple[Tensor, Tensor]:
    """States (n, D) of a text's own tokens, read ``size`` at a time, and the tokens (n,)."""
    tokenizer = encoder.tokenizer
    ids = tokenizer(text, add_special_tokens=False)["input_ids"][: MOST - 2]
    found = []
    for piece in pieces(ids, size - 2):
        inputs = torch.tensor([[tokenizer.cls_token_id, *piece, tokenizer.sep_token_id]])
        with torch.inference_mode():
            states = encoder.model(input_ids=inputs, attention_mask=torch.ones_like(inputs)).last_hidden_state
        found.append(states[0, 1:-1].float())
    return torch.cat(found), torch.tensor(ids)


def pooled(states: Tensor, ids: Tensor) -> dict[str, np.ndarray]:
    """Vectors by pooling."""
    _, inverse, counts = ids.unique(return_inverse=True, return_counts=True)
    weights = counts[inverse].float().rsqrt()[:, None]
    mean, first = states.mean(0), states[: CHUNK - 2].mean(0)
    unit = torch.nn.functional.normalize
    return {
        "mean": unit(mean, dim=0).numpy(),
        "sqrt": unit((states * weights).sum(0) / weights.sum(), dim=0).numpy(),
        "lead": torch.cat([unit(first, dim=0), unit(mean, dim=0)]).numpy(),
        "cut": unit(first, dim=0).numpy(),
    }


def read(name: str, folder: str, data: Path, output: Path) -> None:
    """Vectors of all sets by one reading, each set a file."""
    encoder = longform.Encoder.from_pretrained(folder)
    size = CHUNK if name == "chunks" else MOST
    for kind in SETS:
        place = output / f"{kind}-{name}.npz"
        if place.exists():
            continue
        written, labels = texts(data, kind, encoder.tokenizer)
        rows = [pooled(*states_of(encoder, text, size)) for text in tqdm(written, desc=f"{kind}, {name}")]
        vectors: Any = {pooling: np.stack([row[pooling] for row in rows]) for pooling in rows[0]}
        place.parent.mkdir(parents=True, exist_ok=True)
        np.savez(place, labels=np.array(labels), **vectors)


def folds(features: np.ndarray, labels: np.ndarray, model: Any) -> list[tuple[float, float]]:
    """Accuracy and macro-F1 of each of five folds, the same for every contender."""
    found = []
    for train, test in StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(np.zeros(len(labels)), labels):
        model.fit(features[train], labels[train])
        guessed = model.predict(features[test])
        found.append((accuracy_score(labels[test], guessed), f1_score(labels[test], guessed, average="macro")))
    return found


def regression(*, scaled: bool) -> Any:
    """A logistic regression whose strength is chosen within the training part."""
    model = LogisticRegressionCV(
        Cs=np.logspace(-2, 3, 6), cv=3, max_iter=2000, scoring="accuracy", use_legacy_attributes=False, l1_ratios=(0,)
    )
    return make_pipeline(StandardScaler(), model) if scaled else model


def table(data: Path, output: Path, readings: list[str]) -> None:
    """Fit, and append a record a set, reading and pooling."""
    tokenizer = longform.Encoder.from_pretrained("bundled").tokenizer
    for kind in SETS:
        written, labels = texts(data, kind, tokenizer)
        contenders = {}
        for reading in readings:
            with np.load(output / f"{kind}-{reading}.npz") as kept:
                assert list(kept["labels"]) == labels
                contenders |= {(reading, pooling): kept[pooling] for pooling in POOLINGS}
                if reading == "chunks":
                    contenders["cut", "mean"] = kept["cut"]
        answers = np.array(labels)
        results = {one: folds(vectors, answers, regression(scaled=True)) for one, vectors in contenders.items()}
        words = TfidfVectorizer(sublinear_tf=True, min_df=2, ngram_range=(1, 2), max_features=200_000)
        results["words", "tf-idf"] = folds(
            np.array(written, dtype=object), answers, make_pipeline(words, regression(scaled=False))
        )
        base = {name: np.array(results[name, "mean"])[:, 0] for name in ("cut", "chunks")}
        lines = []
        for (reading, pooling), found in results.items():
            accuracy, f1 = np.array(found).T
            metrics = {
                "accuracy": accuracy.mean(),
                "accuracy_interval": STUDENT * accuracy.std(ddof=1) / FOLDS**0.5,
                "macro_f1": f1.mean(),
            }
            for name, beside in base.items():
                difference = accuracy - beside
                metrics |= {
                    f"above_{name}": difference.mean(),
                    f"above_{name}_interval": STUDENT * difference.std(ddof=1) / FOLDS**0.5,
                }
            settings = {
                "data": kind,
                "reading": reading,
                "pooling": pooling,
                "texts": len(labels),
                "classes": len(set(labels)),
                "folds": FOLDS,
                "tokens": MOST,
            }
            lines.append(
                Record(name="long_classification", metrics={k: float(v) for k, v in metrics.items()}, settings=settings)
            )
            print(kind, reading, pooling, {k: round(float(v), 4) for k, v in metrics.items()}, flush=True)
        append_records(output / "records.jsonl", lines)


def main() -> None:
    """Read, or make the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("read", "table"))
    parser.add_argument("readings", nargs="+", help="read: NAME=FOLDER; table: NAME")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, default=Path("runs/long_classification"))
    asked = parser.parse_args()
    if asked.what == "table":
        table(asked.data, asked.output, asked.readings)
        return
    for reading in asked.readings:
        name, _, folder = reading.partition("=")
        read(name, folder, asked.data, asked.output)


if __name__ == "__main__":
    main()
