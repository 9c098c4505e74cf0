"""Labelled texts: reading them, finding out the kind of their labels, splitting off a validation part.

Labels come in every usual form: names, numbers, lists of names, vectors of 0 and 1, and none.
"""

import math
import random
import re
import warnings
from collections.abc import Iterable, Sequence, Set
from decimal import Decimal
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

from longform.errors import DataError, some
from longform_text.data.files import CSV, TSV, named_kind
from longform_text.data.given import InMemory, as_rows, classes_of, is_missing, python_values, source_of
from longform_text.data.records import field, read_records, string_field

LIST_SEPARATOR = ";"  # between the labels of one text in a csv file
_LIST = re.compile(r"\[.*\]", re.DOTALL)
SINGLE, MULTI, REGRESSION = "single-label", "multi-label", "regression"
SHOWN = 10  # of the names of labels, in a line


class Labels(list[Any]):
    """A label a text: a name, a number, a list of names, or None where there is none.

    ``names``: all that there may be, in their order, where that is known.
    """

    def __init__(self, labels: Iterable[Any], names: Sequence[str] | None = None) -> None:
        super().__init__(labels)
        self.names = names


def plain_labels(given: Iterable[Any]) -> Labels:
    """Labels as Python has them: of arrays, tensors and sets lists, of vectors of 0 and 1 the places that hold 1.

    None for what is missing (None, NaN, NA, a list of these). Raises DataError for lists that are neither such vectors
    nor names or numbers of classes.
    """
    if isinstance(given, Labels):
        return given
    labels = [_plain(label) for label in given]
    there = [label for label in labels if label is not None]
    if {*map(type, there)} == {list} and _are_vectors(there):
        names = [str(place) for place in range(len(there[0]))]
        return Labels((label and list(compress(names, map(float, label))) for label in labels), names)
    return Labels([_names(label) if isinstance(label, list) else label for label in labels])


def _names(label: list[Any]) -> list[Any]:
    numbers = all(str(each).lstrip("-").isdecimal() for each in label)
    if (numbers and len({*label}) < len(label)) or any(isinstance(each, float | list | None) for each in label):
        raise DataError(
            f"the label {label!r} is no list of names or numbers of classes, each once, and the labels are no vectors "
            "of 0 and 1 of one length: give one of the two"
        )
    return label


def lists_of_names(given: Iterable[Any]) -> Labels:
    """Labels as lists of names, which LIST_SEPARATOR parts in a text; None where there is none."""
    labels = plain_labels(given)
    parted = [[*map(str.strip, each.split(LIST_SEPARATOR))] if isinstance(each, str) else each for each in labels]
    lists = plain_labels([*filter(None, map(str, each))] if isinstance(each, list) else each for each in parted)
    return Labels(lists, lists.names or labels.names)


def _plain(label: Any) -> Any:
    label = python_values(sorted(label, key=str) if isinstance(label, Set) else label)
    if not isinstance(label, list | tuple):
        return None if is_missing(label) else label
    there = [each for each in map(_plain, label) if each is not None]
    vector = len(there) < len(label) and not all(isinstance(each, str) for each in there)
    return [*map(_plain, label)] if vector else there if there or not label else None


def _are_vectors(lists: Sequence[list[Any]]) -> bool:
    """Whether labels are vectors of 0 and 1, as no lists of two or more different numbers, or of names, all are."""
    values = [each for label in lists for each in label]
    numbers = all(isinstance(each, int | float) for each in values)
    twice = any(len(set(map(str, label))) < len(label) for label in lists)
    alike = len({len(label) for label in lists}) == 1 and len(lists[0]) > 1
    return alike and all(each in (0, 1, "0", "1") for each in values) and (numbers or twice)


class Examples(NamedTuple):
    """Texts with their labels; ``pairs``: second texts, or None."""

    texts: Sequence[str]
    labels: Sequence[Any]
    pairs: Sequence[str] | None = None

    def inputs(self) -> list[Any]:
        """The texts, or pairs of texts."""
        return list(self.texts) if self.pairs is None else list(zip(self.texts, self.pairs, strict=True))

    def take(self, places: Sequence[int]) -> "Examples":
        """Some of them."""
        pairs = None if self.pairs is None else [self.pairs[place] for place in places]
        labels = Labels((self.labels[place] for place in places), getattr(self.labels, "names", None))
        return Examples([self.texts[place] for place in places], labels, pairs)


class LabelScheme(NamedTuple):
    """``task``: "single-label", "multi-label" or "regression"; ``names``: of the labels, in the order of the logits.

    ``label_type``: what the labels were in Python, "str" where they were of several types.
    """

    task: str
    names: list[str]
    label_type: str = "str"

    def described(self, targets: Sequence[Any]) -> str:
        """In words: "2 classes: neg, pos"; ``targets``: what ``encode`` made of the labels."""
        if self.task == REGRESSION:
            return f"regression: numbers from {min(targets):g} to {max(targets):g}"
        kind = "classes" if self.task == SINGLE else "labels, any number a text"
        return f"{len(self.names):,} {kind}: {some(self.names, SHOWN)}"

    def encode(self, labels: Sequence[Any], *, where: str) -> list[Any]:
        """Targets: a class number, a list of 0.0 and 1.0, or a number. Raises DataError for labels not in training."""
        if self.task == REGRESSION:
            return _numbers(labels, where)
        given = _as_lists(plain_labels(labels), self.task)
        if self.task == MULTI and len(given.names or self.names) != len(self.names):
            raise DataError(f"{where}: vectors of {len(given.names or ())}, those in training of {len(self.names)}")
        if unseen := sorted(set().union(*given).difference(self.names)):
            raise DataError(
                f"{where}: the label {', '.join(map(repr, unseen[:5]))} does not occur in the training part, "
                f"which has {', '.join(map(repr, self.names[:20]))}"
            )
        if self.task == SINGLE:
            place = {name: number for number, name in enumerate(self.names)}
            return [place[names[0]] for names in given]
        return [[float(name in names) for name in self.names] for names in given]


def examples_of(
    given: Any, *, text_field: str = "text", label_field: str = "label", pair_field: str | None = None
) -> Examples:
    """Labelled texts as they are given: a file of records (``data.files``), "hf:NAME[:CONFIG]:SPLIT", rows or
    a table, or columns in a tuple, as Examples are one. Texts without a label are left out, with a warning.

    Raises DataError, with file and line, for a field that is not there, a text that is not text, a tuple of anything
    else, several files, and where no text has a label.
    """
    source = source_of(given)
    if isinstance(given, tuple) and isinstance(source, InMemory):
        return _of_columns(tuple(each for each in given if each is not None))
    if not isinstance(source, InMemory) and len(source) > 1:
        raise DataError(f"{len(source)} files of labelled texts were given ({source[0]}, ...): give one")
    return _read(source if isinstance(source, InMemory) else source[0], text_field, label_field, pair_field)


def _of_columns(columns: tuple[Any, ...]) -> Examples:
    if not 2 <= len(columns) <= 3:
        raise DataError(f"a tuple of {len(columns)}: labelled texts are (texts, labels) or (texts, labels, pairs)")
    rows, names = as_rows(columns, "text", "label", "pair"), classes_of(columns[1]).get("")
    return _read(InMemory(rows), "text", "label", "pair" if columns[2:] else None, names)


def _read(
    source: str | Path | InMemory,
    text_field: str,
    label_field: str,
    pair_field: str | None,
    names: Sequence[str] | None = None,
) -> Examples:
    texts, found, pairs = [], [], []
    for record in read_records(source):
        texts.append(string_field(record, text_field))
        pairs.append(pair_field and string_field(record, pair_field))
        label = field(record, label_field)
        found.append(None if isinstance(label, str) and not label else label)
        names = record.classes.get(label_field, names)
    labels = plain_labels(found)
    if not isinstance(source, InMemory) and named_kind(Path(source)) in (CSV, TSV):  # where everything is text
        labels = plain_labels(_decimals(labels) or labels)
    return _labelled(Examples(texts, Labels(labels, labels.names or names), pairs if pair_field else None))


def _labelled(examples: Examples) -> Examples:
    """Without the texts that have no label."""
    places = [place for place, label in enumerate(examples.labels) if label is not None]
    if not places:
        raise DataError(f"none of {len(examples.texts)} texts has a label: there is nothing to learn from")
    if lacking := len(examples.texts) - len(places):
        warnings.warn(f"{lacking:,} texts without a label are left out", stacklevel=3)
    return examples.take(places)


def _decimals(labels: Sequence[str | None]) -> list[float | None] | None:
    """Numbers, where all are numbers and not all of them whole."""
    try:
        found = [None if label is None else float(label) for label in labels]
    except ValueError:
        return None
    return None if all(label is None or label.strip().removeprefix("-").isdecimal() for label in labels) else found


def _numbers(labels: Sequence[Any], where: str) -> list[float]:
    numbers = []
    for row, label in enumerate(labels):
        try:
            numbers.append(float(label))
        except (TypeError, ValueError, OverflowError) as error:
            raise DataError(f"{where}: the label {label!r} of text {row} is not a number") from error
        if not math.isfinite(numbers[-1]):
            raise DataError(f"{where}: the label of text {row} is {label!r}; a value to learn is a finite number")
    return numbers


def learn_scheme(labels: Sequence[Any], task: str) -> LabelScheme:
    """The kind of labels and their names, from the training part; texts without a label do not count.

    Raises DataError for mixed types and for one class only.
    """
    given = plain_labels(labels)
    labels = [label for label in given if label is not None]
    task = _task(labels) if task == "auto" else task
    if task == REGRESSION:
        if len(set(_numbers(labels, "the training part"))) < 2:
            raise DataError("all training texts have the same value: there is nothing to learn")
        return LabelScheme(task, ["score"])
    lists = _as_lists(given, task)
    occurring = sorted(set().union(*filter(None, lists)), key=_order)
    if not occurring:
        raise DataError("no training text has any label")
    if task == SINGLE and len(occurring) < 2:
        raise DataError(f'all training texts have the label "{occurring[0]}": a classifier needs two classes or more')
    return LabelScheme(task, list(lists.names or occurring), _type(labels, occurring))


def _type(labels: Sequence[Any], names: Sequence[str]) -> str:
    """The one type of Python's, or of a package ("uint8"), of all labels, whose texts are ``names``; else "str"."""
    values = [value for label in labels for value in (label if isinstance(label, list) else [label])]
    kinds = {type(value).__name__.removeprefix("u").rstrip("_0123456789") for value in values}
    known = len(kinds) == 1 and kinds <= {"int", "float", "bool"} and {str(value) for value in values} >= set(names)
    return kinds.pop() if known else "str"


def _as_lists(labels: Labels, task: str) -> Labels:
    """The names of each text. Raises DataError for lists where each has one."""
    if task == MULTI:
        return lists_of_names(labels)
    if any(isinstance(label, list) for label in labels):
        raise DataError('task="single-label", but some labels are lists: use task="multi-label"')
    return Labels(([str(label)] for label in labels if label is not None), labels.names)


def _order(name: str) -> tuple[bool, float, str]:
    """Numbers by size, then names."""
    number = name.removeprefix("-").isdecimal()
    return (not number, float(name) if number else 0.0, name)


def _task(labels: Sequence[Any]) -> str:
    kinds = {_kind(label): label for label in labels}
    if kinds.keys() <= {"list"}:
        return MULTI
    if kinds.keys() == {"text"} and all(map(_LIST.fullmatch, labels)):
        raise DataError(
            f"the labels are texts of lists ({labels[0][:40]!r}): give lists, from .jsonl or .parquet files, or names "
            f'with "{LIST_SEPARATOR}" between them and task="multi-label"'
        )
    if kinds.keys() == {"text"} or kinds.keys() == {"whole number"}:
        return SINGLE
    if kinds.keys() <= {"decimal number", "whole number"}:
        if not all(isinstance(label, int) or float(label).is_integer() for label in labels):
            return REGRESSION
        values = sorted(set(labels))
        raise DataError(
            f"the labels are decimals without fractions ({some(values, SHOWN)}), which may be {len(values):,} classes "
            'or numbers to learn: say which, task="single-label" (--task single-label) or "regression"'
        )
    shown = ", ".join(f"{kind} ({str(label)[:40]!r})" for kind, label in kinds.items())
    raise DataError(f"labels are of mixed types: {shown}; use names only, numbers only, or lists of names only")


def _kind(label: Any) -> str:
    kinds = ((str, "text"), (list, "list"), (int, "whole number"), (float | Decimal, "decimal number"))
    return next((name for kind, name in kinds if isinstance(label, kind)), type(label).__name__)


def split(
    examples: Examples,
    scheme: LabelScheme,
    *,
    fraction: float,
    seed: int,
    otherwise: str = "give a validation part, more texts, or a larger validation_fraction",
) -> tuple[Examples, Examples]:
    """Training and validation part; of single labels each class in proportion, at least one text of it in training.

    Raises DataError when there is not enough for both; ``otherwise``: the ways out.
    """
    strata = [str(label) if scheme.task == SINGLE else "" for label in examples.labels]
    kept, held = split_places(strata, fraction=fraction, seed=seed, otherwise=otherwise)
    return examples.take(kept), examples.take(held)


def split_places(
    strata: Sequence[str],
    *,
    fraction: float,
    seed: int,
    otherwise: str = "give a validation part, more texts, or a larger validation_fraction",
) -> tuple[list[int], list[int]]:
    """Places of training and validation part: of each stratum in proportion, at least one in training.

    Raises DataError when there is not enough for both; ``otherwise``: the ways out.
    """
    generator = random.Random(f"split {seed}")
    groups: dict[str, list[int]] = {}
    for place, stratum in enumerate(strata):
        groups.setdefault(stratum, []).append(place)
    held: list[int] = []
    for _, places in sorted(groups.items()):
        generator.shuffle(places)
        held += places[: min(round(fraction * len(places)), len(places) - 1)]
    if not held:
        raise DataError(f"{len(strata)} texts are too few to hold out {fraction:.0%} of them: {otherwise}")
    return sorted(set(range(len(strata))) - set(held)), sorted(held)
