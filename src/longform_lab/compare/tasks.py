"""The tasks of ``longform compare`` in two scales: their data, the models' sizes, and the budget."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from longform.errors import ConfigurationError, require
from longform_lab.compare.learning import LearningSettings
from longform_lab.compare.listops import SYMBOLS, ListOpsShape, listops
from longform_lab.compare.sequences import READS, LabelledSequences, SequenceTask
from longform_lab.compare.texts import text_task
from longform_lab.speed.sizes import Sizes

TASKS = ("text", "bytes", "listops", "digits")

# Options that not every task has: the tasks that have them, and what is said of the others.
OPTIONS = {
    "data": (("text", "bytes"), 'the task "{task}" makes its own data: leave --data out, or choose --task text'),
    "fields": (("text", "bytes"), 'the names of fields are for --task text and bytes, and this is "{task}"'),
    "vocabulary": (("text",), '--vocabulary is for --task text, and this is "{task}"'),
    "length": (("text", "bytes", "listops"), '--length is for texts, and this is "{task}"'),
}


@dataclass(frozen=True)
class Scale:
    """``sizes``: fields of Sizes that do not follow from the data; ``examples``: of the generated parts."""

    sizes: dict[str, Any]
    learning: LearningSettings
    examples: tuple[int, int, int] = (0, 0, 0)
    data: dict[str, Any] = field(default_factory=dict)


# Long Range Arena as Nyströmformer (arXiv 2102.03902) ran it: 2 layers, width 64, feed-forward 128, 2 heads, mean
# pooling; ListOps at ten times its rate. Attention weights have no dropout,
# because with it there is no fused attention: on a CPU 2 (Linformer) to 3 times (full attention) the time, float32.
_ARENA: dict[str, Any] = {"hidden_size": 64, "layers": 2, "heads": 2, "intermediate_size": 128, "dropout": 0.1}
SCALES: dict[tuple[str, str], Scale] = {
    ("listops", "paper"): Scale(
        {**_ARENA, "length": 2_000, "projected_length": 256},
        LearningSettings(steps=5_000, batch_size=32, learning_rate=1e-3, warmup=0.05, evaluations=20),
        examples=(96_000, 2_000, 2_000),
        data={"min_length": 500},
    ),
    ("listops", "small"): Scale(
        {**_ARENA, "length": 500, "projected_length": 64, "window": 32},
        LearningSettings(steps=1_000, batch_size=32, learning_rate=1e-3),
        examples=(16_000, 500, 1_000),
        data={"min_length": 100},
    ),
    ("bytes", "paper"): Scale(
        {**_ARENA, "length": 4_096, "projected_length": 256},
        LearningSettings(steps=5_000, batch_size=32, tokens_per_forward=2**17, warmup=0.05, evaluations=20),
    ),
    ("bytes", "small"): Scale(
        {**_ARENA, "length": 1_024, "projected_length": 128, "window": 32},
        LearningSettings(steps=500, batch_size=32),
    ),
    ("digits", "small"): Scale(
        {**_ARENA, "length": 64, "projected_length": 16, "window": 8, "block": 4, "landmarks": 16},
        LearningSettings(steps=1_000, batch_size=32, learning_rate=2e-3),
    ),
    ("text", "small"): Scale(
        {
            **_ARENA,
            "hidden_size": 128,
            "heads": 4,
            "intermediate_size": 256,
            "length": 1_024,
            "projected_length": 128,
            "window": 32,
        },
        LearningSettings(steps=400, batch_size=16, learning_rate=1e-3),
        data={"vocabulary": 4_096},
    ),
    ("text", "paper"): Scale(
        {"hidden_size": 768, "layers": 12, "heads": 12, "intermediate_size": 3_072, "length": 4_096},
        LearningSettings(steps=5_000, batch_size=32, tokens_per_forward=2**17, learning_rate=1e-4, dtype="auto"),
        data={"vocabulary": 30_522},
    ),
}
SCALES["digits", "paper"] = SCALES["digits", "small"]


def _given(**asked: Any) -> dict[str, Any]:
    return {name: value for name, value in asked.items() if value is not None}


class Opened(NamedTuple):
    """The data and how it is learned."""

    task: SequenceTask
    sizes: Sizes
    learning: LearningSettings


def open_task(
    task: str, scale_name: str = "small", *, data: str | None = None, text_field: str = "text",
    label_field: str = "label", pair_field: str | None = None, vocabulary: int | None = None,
    length: int | None = None, pooling: str | None = None, projection_init: str | None = None,
    seed: int = 0, progress: bool = True, **learning: Any,
) -> Opened:  # fmt: skip
    """Open ``task`` ("text", "bytes", "listops", "digits") at a scale ("small", "paper").

    ``data``: file of the texts. ``length``: tokens of the longest text. ``vocabulary``: tokens that are learned from
    texts at most. ``pooling``, ``projection_init``: of Sizes. ``learning``: fields of LearningSettings. None: the
    scale's.
    Raises ConfigurationError and DataError.
    """
    _refuse(
        task,
        data=data is not None,
        length=length is not None,
        fields=(text_field, label_field, pair_field) != ("text", "label", None),
        vocabulary=vocabulary is not None,
    )
    if length is not None and length < 3:
        raise ConfigurationError(f"--length {length}: a text has 3 tokens or more, with those at its ends")
    chosen = SCALES[task, scale_name]
    budget = replace(chosen.learning, seed=seed, **_given(**learning))
    sizes = chosen.sizes | _given(length=length, pooling=pooling, projection_init=projection_init)
    if task in OPTIONS["data"][0] and data is None:
        raise ConfigurationError(f'the task "{task}" needs data: --data with a file of texts')
    texts = partial(
        text_task, data or "", text_field=text_field, label_field=label_field, pair_field=pair_field, seed=seed,
        length=sizes["length"],
    )  # fmt: skip
    openers: dict[str, Callable[[], SequenceTask]] = {
        "listops": lambda: _listops(
            sizes["length"],
            chosen.data["min_length"],
            chosen.examples,
            seed,
            progress=progress,
        ),
        "digits": lambda: digits_task(seed),
        "text": lambda: texts(vocabulary=chosen.data["vocabulary"] if vocabulary is None else vocabulary),
        "bytes": lambda: texts(vocabulary=None),
    }
    opened = openers[task]()
    longest = opened.longest if task == "digits" else sizes["length"]
    sizes |= {"length": longest, "projected_length": min(sizes["projected_length"], longest)}
    found = Sizes(vocabulary=opened.vocabulary, labels=len(opened.train.names), **sizes)
    return Opened(opened, found, budget)


def _refuse(task: str, **given: bool) -> None:
    """Raise ConfigurationError for an option that is given and that the task has not."""
    for option, (tasks, said) in OPTIONS.items():
        if given[option] and task in TASKS and task not in tasks:
            raise ConfigurationError(said.format(task=task))


def _listops(length: int, shortest: int, counts: tuple[int, int, int], seed: int, *, progress: bool) -> SequenceTask:
    shape = ListOpsShape(min_length=min(shortest, max(1, length // 4)), max_length=length)
    parts = [
        listops(count, shape, seed=seed, part=part, progress=progress)
        for part, count in zip(("train", "validation", "test"), counts, strict=True)
    ]
    train, validation, test = ([SYMBOLS[sequence[0]] for sequence in part.sequences] for part in parts)
    return SequenceTask(
        f"ListOps, {shape.min_length} to {length} symbols",
        *parts,
        vocabulary=len(SYMBOLS),
        raw=(train, validation, test),
        reads=READS["listops"],
    )


def digits_task(seed: int = 0) -> SequenceTask:
    """scikit-learn's 1,797 digits of 8 x 8 pixels, a token a pixel (17 grey values): 1,258 to train on, 180, 359."""
    data = require("sklearn.datasets", extra="train").load_digits()
    pixels, labels = data.data.astype(np.int64), data.target.astype(np.int64)
    order = np.random.default_rng(seed).permutation(len(labels))
    places = np.split(order, [round(0.7 * len(order)), round(0.8 * len(order))])
    names = [str(digit) for digit in range(10)]
    parts = [LabelledSequences(list(pixels[part] + 1), labels[part], names) for part in places]
    raw = tuple(pixels[part] / 16 for part in places)
    return SequenceTask("digits", *parts, vocabulary=18, raw=raw, reads=READS["digits"])
