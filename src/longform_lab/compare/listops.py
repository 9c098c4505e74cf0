"""ListOps of Long Range Arena: nested operations on digits whose result, 0 to 9, is the label.

Written from the description in "Long Range Arena" (Tay et al. 2020, arXiv 2011.04006) and "ListOps" (Nangia and Bowman
2018, arXiv 1804.06028), and the published settings of the task: MIN, MAX, MEDIAN and SUM MODULO 10, up to 10 arguments,
up to 10 levels, sequences of 500 to 2,000 symbols, 96,000 to train on, 2,000 to validate, 2,000 to test.
A node is an operation with probability 0.25 (above the deepest level), else a digit; closing brackets are symbols.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tqdm import tqdm

from longform.errors import ConfigurationError
from longform_lab.compare.sequences import LabelledSequences
from longform_text.data.progress import hidden
from longform_text.settings import check_least

OPERATIONS: dict[str, Callable[[list[int]], int]] = {
    "[MIN": min,
    "[MAX": max,
    "[MED": lambda values: int(np.median(values)),  # of an even number of values the mean of the middle two, cut
    "[SM": lambda values: sum(values) % 10,
}
END = "]"
PAD = "[PAD]"
SYMBOLS = [PAD, *map(str, range(10)), *OPERATIONS, END]  # the id of a symbol is its place
IDS = {symbol: place for place, symbol in enumerate(SYMBOLS)}
OPERATION_SHARE = 0.25


@dataclass(frozen=True)
class ListOpsShape:
    """Sizes of the sequences, as published: ``min_length`` to ``max_length`` symbols, depth and arguments at most."""

    min_length: int = 500
    max_length: int = 2_000
    max_depth: int = 10
    max_arguments: int = 10

    def __post_init__(self) -> None:
        check_least(self, min_length=1, max_depth=2, max_arguments=2)
        if self.min_length > self.max_length:
            raise ConfigurationError(
                f"min_length={self.min_length} is more than max_length={self.max_length}: no ListOps sequence is both"
            )


class _TooLongError(Exception):
    """The expression has more symbols than are wanted."""


def generate(generator: random.Random, shape: ListOpsShape) -> tuple[list[int], int]:
    """One expression (ids of SYMBOLS) and its value; expressions of other lengths are thrown away."""
    while True:
        symbols: list[int] = []
        try:
            value = _node(generator, shape, symbols, depth=1)
        except _TooLongError:
            continue
        if len(symbols) >= shape.min_length:
            return symbols, value


def _node(generator: random.Random, shape: ListOpsShape, symbols: list[int], *, depth: int) -> int:
    """Append one node and all below it; returns its value."""
    if depth >= shape.max_depth or generator.random() >= OPERATION_SHARE:
        value = generator.randrange(10)
        symbols.append(IDS[str(value)])
        if len(symbols) > shape.max_length:
            raise _TooLongError
        return value
    operation = generator.choice(tuple(OPERATIONS))
    symbols.append(IDS[operation])
    values = [
        _node(generator, shape, symbols, depth=depth + 1) for _ in range(generator.randint(2, shape.max_arguments))
    ]
    symbols.append(IDS[END])
    if len(symbols) > shape.max_length:
        raise _TooLongError
    return OPERATIONS[operation](values)


def listops(count: int, shape: ListOpsShape, *, seed: int, part: str, progress: bool = False) -> LabelledSequences:
    """``count`` expressions; the n-th of a ``part`` ("train", "test") is the same whatever ``count`` is."""
    sequences, labels = [], []
    for number in tqdm(range(count), desc=f"ListOps {part}", unit="text", leave=False, disable=hidden(progress)):
        symbols, value = generate(random.Random(f"listops {seed} {part} {number}"), shape)
        sequences.append(np.array(symbols, dtype=np.uint8))
        labels.append(value)
    return LabelledSequences(sequences, np.array(labels), [str(digit) for digit in range(10)])
