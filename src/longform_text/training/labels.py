"""Labelled texts: reading them, finding out the kind of their labels, splitting off a validation part.

Labels are names or whole numbers (classes), decimals (values), or lists of names, of which a vector of 0 and 1 is one.
"""

import math
import random
import re
import warnings
from collections.abc import Iterable, Sequence
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
    """Labels as Python has them: None for what is missing, of vectors of 0 and 1 the places that hold 1.

    Raises DataError for lists that are neither such vectors nor names or numbers of classes.
    """
    if isinstance(given, Labels):
        return given
    labels = [_plain(label) for label in given]
    lists = [label for label in labels if isinstance(label, list)]
    if _are_vectors(lists):
        names = [str(place) for place in range(len(lists[0]))]
        return Labels((list(compress(names, x)) if isinstance(x, list) else x for x in labels), names)
    for label in lists:
        _check_list(label)
    return Labels(labels)


def _are_vectors(lists: Sequence[list[Any]]) -> bool:
    length = len(lists[0]) if lists else 0
    return length > 1 and all(len(label) == length and all(x in (0, 1) for x in label) for label in lists)


def _check_list(label: list[Any]) -> None:
    if len(set(map(str, label))) < len(label) or any(isinstance(each, float | list | None) for each in label):
        raise DataError(
            f"the label {label!r} is no list of names or numbers of classes, each once, and the labels are no vectors "
            "of 0 and 1 of one length: give one of the two"
        )


def _plain(label: Any) -> Any:
    label = python_values(label)
    if not isinstance(label, list | tuple):
        return None if is_missing(label) else label
    values = [None if is_missing(each) else python_values(each) for each in label]
    there = [each for each in values if each is not None]
    if all(isinstance(each, str) for each in there):
        return there if there or not label else None
    return values


def lists_of_names(given: Iterable[Any]) -> Labels:
    """Labels as lists of names, which LIST_SEPARATOR parts in a text; None where there is none."""
    labels = plain_labels(given)
    parted = [each.split(LIST_SEPARATOR) if isinstance(each, str) else each for each in labels]
    stripped = ([str(name).strip() for name in each] if isinstance(each, list) else each for each in parted)
    return Labels((list(filter(None, each)) if isinstance(each, list) else each for each in stripped), labels.names)


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
    """``task``: "single-label", "multi-label", "regression", or "token-classification", of lists of a label a word.

    ``names``: of the labels, in the order of the logits. ``label_type``: what the labels were in Python.
    """

    task: str
    names: list[str]
    label_type: str = "str"

    def described(self, targets: Sequence[Any]) -> str:
        """In words: "2 classes: neg, pos"; ``targets``: what ``encode`` made of the labels."""
        if self.task == REGRESSION:
            return f"regression: numbers from {min(targets):g} to {max(targets):g}"
        kinds = {SINGLE: "classes", MULTI: "labels, any number a text"}
        return f"{len(self.names):,} {kinds.get(self.task, 'labels of words')}: {some(self.names, SHOWN)}"

    def encode(self, labels: Sequence[Any], *, where: str) -> list[Any]:
        """Targets: a class number, a list of 0.0 and 1.0, or a number. Raises DataError for labels not in training."""
        if self.task == REGRESSION:
            return _numbers(labels, where)
        given = _as_lists(labels, self.task)
        self._check(given, where)
        if self.task == MULTI:
            return [[float(name in names) for name in self.names] for names in given]
        place = {name: number for number, name in enumerate(self.names)}
        places = [[place[name] for name in names] for names in given]
        return [each[0] for each in places] if self.task == SINGLE else places

    def _check(self, given: Labels, where: str) -> None:
        """Raise DataError for vectors of another length, and for names that did not occur in training."""
        if self.task == MULTI and len(given.names or self.names) != len(self.names):
            raise DataError(f"{where}: vectors of {len(given.names or ())}, those in training of {len(self.names)}")
        if unseen := sorted(set().union(*given).difference(self.names)):
            raise DataError(
                f"{where}: the label {', '.join(map(repr, unseen[:5]))} does not occur in the training part, "
                f"which has {', '.join(map(repr, self.names[:20]))}"
            )


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
    kind = _kind(labels)
    task = _task(labels, kind) if task == "auto" else task
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
    return LabelScheme(task, list(lists.names or occurring), kind)


def _kind(labels: Sequence[Any]) -> str:
    """The type of all labels in Python. Raises DataError for several, and for others than these."""
    values = [value for label in labels for value in (label if isinstance(label, list) else [label])]
    kinds = {type(value).__name__: value for value in values}
    lists = {isinstance(label, list) for label in labels}
    if kinds.keys() == {"int", "float"}:
        return "float"
    if len(kinds) > 1 or len(lists) > 1 or not kinds.keys() <= {"str", "int", "bool", "float"}:
        shown = ", ".join(f"{kind} ({str(value)[:40]!r})" for kind, value in kinds.items())
        shown += ", alone and in lists" if len(lists) > 1 else ""
        raise DataError(f"labels are of mixed types: {shown}; use names only, numbers only, or lists of names only")
    return next(iter(kinds), "str")


def _task(labels: Sequence[Any], kind: str) -> str:
    if any(isinstance(label, list) for label in labels) or not labels:
        return MULTI
    if kind == "str" and all(map(_LIST.fullmatch, labels)):
        raise DataError(
            f"the labels are texts of lists ({labels[0][:40]!r}): give lists, from .jsonl or .parquet files, or names "
            f'with "{LIST_SEPARATOR}" between them and task="multi-label"'
        )
    if kind != "float":
        return SINGLE
    if not all(float(label).is_integer() for label in labels):
        return REGRESSION
    values = sorted(set(labels))
    raise DataError(
        f"the labels are decimals without fractions ({some(values, SHOWN)}), which may be {len(values):,} classes "
        'or numbers to learn: say which, task="single-label" (--task single-label) or "regression"'
    )


def _as_lists(given: Sequence[Any], task: str) -> Labels:
    """The names of each text, or of its words. Raises DataError for lists where each has one."""
    if task not in (SINGLE, MULTI):
        return Labels(given)
    labels = plain_labels(given)
    if task == MULTI:
        return lists_of_names(labels)
    if any(isinstance(label, list) for label in labels):
        raise DataError('task="single-label", but some labels are lists: use task="multi-label"')
    return Labels(([str(label)] for label in labels if label is not None), labels.names)


def _order(name: str) -> tuple[bool, float, str]:
    """Numbers by size, then names."""
    number = name.removeprefix("-").isdecimal()
    return (not number, float(name) if number else 0.0, name)


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
    groups: dict[str, list[int]] = {}
    for place, label in enumerate(examples.labels):
        groups.setdefault(str(label) if scheme.task == SINGLE else "", []).append(place)
    generator, held = random.Random(f"split {seed}"), []
    for _, places in sorted(groups.items()):
        generator.shuffle(places)
        held += places[: min(round(fraction * len(places)), len(places) - 1)]
    if not held:
        raise DataError(f"{len(examples.labels)} texts are too few to hold out {fraction:.0%} of them: {otherwise}")
    return examples.take(sorted(set(range(len(examples.labels))) - set(held))), examples.take(sorted(held))
