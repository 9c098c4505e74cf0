"""The tasks of the paper's Table 2 (MRPC and RTE in place of QQP): their texts, and how many are taken."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from longform.errors import ConfigurationError, DataError
from longform_text.training.labels import Examples, examples_of, learn_scheme, split

T = TypeVar("T")
HUB = "hf"
HELD_OUT = 0.2  # of a file that has no dev file beside it


@dataclass(frozen=True)
class Task:
    """``train``, ``dev``: files of the folder, without suffix; ``dev`` "": a fifth of ``train`` is held out.

    ``hub``: the same two as "hf:" names. ``text``, ``pair``: fields.
    """

    name: str
    train: str
    dev: str
    hub: tuple[str, str]
    text: str
    pair: str | None = None


def _glue(name: str) -> tuple[str, str]:
    return f"hf:nyu-mll/glue:{name}:train", f"hf:nyu-mll/glue:{name}:validation"


TASKS = {
    task.name: task
    for task in (
        Task("SST-2", "sst2_train", "sst2_dev", _glue("sst2"), "sentence"),
        Task("IMDB", "imdb_train", "", ("hf:stanfordnlp/imdb:train", "hf:stanfordnlp/imdb:test"), "text"),
        Task("QNLI", "qnli_part", "", _glue("qnli"), "question", "sentence"),
        Task("MRPC", "mrpc_train", "", _glue("mrpc"), "sentence1", "sentence2"),
        Task("RTE", "rte_train", "", _glue("rte"), "sentence1", "sentence2"),
    )
}


@dataclass(frozen=True)
class Amount:
    """Texts to train on and to measure on, at most; ``max_length``: tokens that they are cut to."""

    train: int
    dev: int
    max_length: int = 512


def chosen(names: Sequence[str], every: Mapping[str, T], what: str) -> list[T]:
    """Members of ``every`` with these names, in its order. Raises ConfigurationError for one that is not there."""
    unknown = [name for name in names if name not in every]
    if unknown or not names:
        raise ConfigurationError(f"{what}={', '.join(unknown) or 'none'}: there are {', '.join(every)}")
    return [one for name, one in every.items() if name in names]


def read_task(task: Task, data: str, amount: Amount) -> tuple[Examples, Examples]:
    """Training and dev part: the same texts for every model and seed.

    ``data``: a folder with the files (.parquet, .jsonl or .csv), or "hf" for the hub's data sets. Raises DataError
    where they are not there.
    """
    train, dev = task.hub if data == HUB else _files(task, Path(data))
    taught = _read(task, train)
    if dev:
        held = _read(task, dev)
    else:
        taught, held = split(taught, learn_scheme(taught.labels, "single-label"), fraction=HELD_OUT, seed=0)
    return _some(taught, amount.train, f"{task.name} train"), _some(held, amount.dev, f"{task.name} dev")


def _read(task: Task, source: str) -> Examples:
    found = examples_of(source, text_field=task.text, label_field="label", pair_field=task.pair)
    return found._replace(labels=[str(label) for label in found.labels])


def _files(task: Task, folder: Path) -> tuple[str, str]:
    if not folder.is_dir():
        raise DataError(f'"{folder}" is not a folder; --data is one with {task.train}.parquet, or "{HUB}"')
    found = []
    for name in filter(None, (task.train, task.dev)):
        there = [folder / f"{name}{suffix}" for suffix in (".parquet", ".jsonl", ".csv")]
        path = next((path for path in there if path.is_file()), None)
        if path is None:
            raise DataError(
                f'"{folder}" has no {name}.parquet (.jsonl, .csv) for {task.name}; leave it out with --tasks'
            )
        found.append(str(path))
    return found[0], found[1] if task.dev else ""


def _some(examples: Examples, count: int, name: str) -> Examples:
    """``count`` of them, drawn by their name alone, in their order."""
    if count >= len(examples.texts):
        return examples
    return examples.take(sorted(random.Random(name).sample(range(len(examples.texts)), count)))
