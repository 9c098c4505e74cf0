"""Labelled texts: reading them, finding out the kind of their labels, splitting off a validation part."""

import math
import random
from collections.abc import Sequence
from itertools import chain
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

from longform.data.files import CSV, TSV, named_kind
from longform.data.given import InMemory, check_texts, source_of
from longform.data.records import field, read_records, string_field
from longform.data.text import clean_text
from longform.errors import DataError

SINGLE, MULTI, REGRESSION = "single-label", "multi-label", "regression"
SHOWN = 10  # of the names of labels, in a line
LIST_SEPARATOR = ";"  # between the labels of one text in a csv file


class Examples(NamedTuple):
    """Texts with their labels; ``pairs``: second texts, or None. A label is a name, a number, or a list of names."""

    texts: Sequence[str]
    labels: Sequence[Any]
    pairs: Sequence[str] | None = None

    def inputs(self) -> list[Any]:
        """The texts, or pairs of texts."""
        return list(self.texts) if self.pairs is None else list(zip(self.texts, self.pairs, strict=True))

    def take(self, places: Sequence[int]) -> "Examples":
        """Some of them."""
        pairs = None if self.pairs is None else [self.pairs[place] for place in places]
        return Examples([self.texts[place] for place in places], [self.labels[place] for place in places], pairs)


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
        shown = ", ".join([*self.names[:SHOWN], *(["..."] if self.names[SHOWN:] else [])])
        kind = "classes" if self.task == SINGLE else "labels, any number a text"
        return f"{len(self.names):,} {kind}: {shown}"

    def encode(self, labels: Sequence[Any], *, where: str) -> list[Any]:
        """Targets: a class number, a list of 0.0 and 1.0, or a number. Raises DataError for labels not in training."""
        if self.task == REGRESSION:
            return _numbers(labels, where)
        given = [_names(label) for label in labels] if self.task == MULTI else [[str(label)] for label in labels]
        place = {name: number for number, name in enumerate(self.names)}
        unseen = sorted({name for names in given for name in names} - place.keys())
        if unseen:
            raise DataError(
                f"{where}: the label {', '.join(map(repr, unseen[:5]))} does not occur in the training part, "
                f"which has {', '.join(map(repr, self.names[:20]))}"
            )
        if self.task == SINGLE:
            return [place[names[0]] for names in given]
        return [[float(name in names) for name in self.names] for names in given]


def examples_of(
    given: Any, *, text_field: str = "text", label_field: str = "label", pair_field: str | None = None
) -> Examples:
    """Labelled texts as they are given: a file, rows or a table, or columns in a tuple, as Examples are one.

    Raises DataError as ``read_examples`` does, for a tuple of anything else, and for several files.
    """
    if isinstance(given, tuple):
        columns: list[Any] = [None if each is None else list(check_texts(each)) for each in given]
        if not 2 <= len(columns) <= 3:
            raise DataError(f"a tuple of {len(columns)}: labelled texts are (texts, labels) or (texts, labels, pairs)")
        return Examples(*columns)
    source = source_of(given)
    if not isinstance(source, InMemory) and len(source) > 1:
        raise DataError(f"{len(source)} files of labelled texts were given ({source[0]}, ...): give one")
    fields: Any = {"text_field": text_field, "label_field": label_field, "pair_field": pair_field}
    return read_examples(source if isinstance(source, InMemory) else source[0], **fields)


def read_examples(
    source: str | Path | InMemory, *, text_field: str = "text", label_field: str = "label",
    pair_field: str | None = None,
) -> Examples:  # fmt: skip
    """Labelled texts of a file of records (``longform.data.files``), of "hf:NAME[:CONFIG]:SPLIT", or in memory.

    Raises DataError, with file and line, for a missing or empty label, a field that is not there, a text that is
    not text.
    """
    texts, labels, pairs = [], [], []
    for record in read_records(source):
        texts.append(clean_text(string_field(record, text_field))[0])
        if pair_field is not None:
            pairs.append(clean_text(string_field(record, pair_field))[0])
        label = field(record, label_field)
        if _is_missing(label):
            raise DataError(f'{record.location}: the field "{label_field}" is empty; every text needs a label')
        labels.append(label)
    if isinstance(source, str | Path) and named_kind(Path(source)) in (CSV, TSV):  # where everything is text
        labels = _decimals(labels) or labels
    return Examples(texts, labels, None if pair_field is None else pairs)


def _decimals(labels: Sequence[str]) -> list[float] | None:
    """Numbers, where all are numbers and not all of them whole."""
    try:
        found = [float(label) for label in labels]
    except ValueError:
        return None
    return None if all(label.strip().removeprefix("-").isdecimal() for label in labels) else found


def is_list(label: Any) -> bool:
    """Whether a text has several labels."""
    return isinstance(label, list | tuple | set)


def _names(label: Any) -> list[str]:
    if isinstance(label, str):
        return [part.strip() for part in label.split(LIST_SEPARATOR) if part.strip()]
    return [str(name) for name in label]


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


def check_examples(examples: Examples, *, where: str) -> None:
    """Raise DataError when there are none, not as many labels (second texts) as texts, or one of them is missing."""
    if len(examples.texts) == 0:
        raise DataError(f"{where}: no texts")
    for name, others in (("labels", examples.labels), ("second texts", examples.pairs)):
        if others is not None and len(others) != len(examples.texts):
            raise DataError(f"{where}: {len(examples.texts)} texts but {len(others)} {name}")
    for name, several in (("text", examples.texts), ("second text", examples.pairs or ())):
        wrong = next((row for row, text in enumerate(several) if not isinstance(text, str)), None)
        if wrong is not None:
            raise DataError(f"{where}: {name} {wrong} is {type(several[wrong]).__name__}, not text")
    unlabelled = next((row for row, label in enumerate(examples.labels) if _is_missing(label)), None)
    if unlabelled is not None:
        raise DataError(f"{where}: text {unlabelled} has no label ({examples.labels[unlabelled]!r}), and needs one")


def _is_missing(label: Any) -> bool:
    nothing = label is None or type(label).__name__ == "NAType"  # pandas'
    return nothing or (isinstance(label, str) and not label) or (isinstance(label, Real) and label != label)


def learn_scheme(labels: Sequence[Any], task: str) -> LabelScheme:
    """The kind of labels and their names, from the training part.

    Raises DataError for mixed types and for one class only.
    """
    task = _task(labels) if task == "auto" else task
    if task == REGRESSION:
        if len(set(_numbers(labels, "the training part"))) < 2:
            raise DataError("all training texts have the same value: there is nothing to learn")
        return LabelScheme(task, ["score"])
    if task == MULTI:
        names = sorted({name for label in labels for name in _names(label)}, key=_order)
        if not names:
            raise DataError("no training text has any label")
        return LabelScheme(task, names, _type([*chain.from_iterable(filter(is_list, labels))]))
    if any(is_list(label) for label in labels):
        raise DataError('task="single-label", but some labels are lists: use task="multi-label"')
    names = sorted({str(label) for label in labels}, key=_order)
    if len(names) < 2:
        raise DataError(f'all training texts have the label "{names[0]}": a classifier needs two classes or more')
    return LabelScheme(task, names, _type(labels))


def _type(labels: Sequence[Any]) -> str:
    """The one type of Python's that all labels have, or a package has of its own ("uint8"); else "str"."""
    kinds = {type(label).__name__.removeprefix("u").rstrip("_0123456789") for label in labels}
    return kinds.pop() if len(kinds) == 1 and kinds <= {"int", "float", "bool"} else "str"


def _order(name: str) -> tuple[bool, float, str]:
    """Numbers by size, then names."""
    number = name.removeprefix("-").isdecimal()
    return (not number, float(name) if number else 0.0, name)


def _task(labels: Sequence[Any]) -> str:
    kinds = {"list" if is_list(x) else _kind(x): x for x in labels}
    if kinds.keys() <= {"list"}:
        return MULTI
    if kinds.keys() == {"text"} or kinds.keys() == {"whole number"}:
        return SINGLE
    if kinds.keys() <= {"decimal number", "whole number"}:
        if all(_kind(label) == "whole number" or float(label).is_integer() for label in labels):
            raise _undecided(labels)
        return REGRESSION
    shown = ", ".join(f"{kind} ({str(label)[:40]!r})" for kind, label in kinds.items())
    raise DataError(f"labels are of mixed types: {shown}; use names only, numbers only, or lists of names only")


def _undecided(labels: Sequence[Any]) -> DataError:
    values = sorted(set(labels))
    shown = ", ".join([*map(str, values[:SHOWN]), *(["..."] if values[SHOWN:] else [])])
    return DataError(
        f"the labels are decimals without fractions ({shown}), which may be {len(values):,} classes or numbers to "
        'learn: say which, task="single-label" (--task single-label) or "regression"'
    )


def _kind(label: Any) -> str:
    if isinstance(label, str):
        return "text"
    name = type(label).__name__
    if isinstance(label, bool | int) or name.startswith(("int", "uint", "bool")):
        return "whole number"
    return "decimal number" if name.startswith("float") else name


def split(
    examples: Examples, scheme: LabelScheme, *, fraction: float, seed: int,
    otherwise: str = "give a validation part, more texts, or a larger validation_fraction",
) -> tuple[Examples, Examples]:  # fmt: skip
    """Training and validation part; of single labels each class in proportion, at least one text of it in training.

    Raises DataError when there is not enough for both; ``otherwise``: the ways out.
    """
    generator = random.Random(f"split {seed}")
    groups: dict[str, list[int]] = {}
    for place, label in enumerate(examples.labels):
        groups.setdefault(str(label) if scheme.task == SINGLE else "", []).append(place)
    held: list[int] = []
    for _, places in sorted(groups.items()):
        generator.shuffle(places)
        held += places[: min(round(fraction * len(places)), len(places) - 1)]
    if not held:
        raise DataError(f"{len(examples.texts)} texts are too few to hold out {fraction:.0%} of them: {otherwise}")
    kept = sorted(set(range(len(examples.texts))) - set(held))
    return examples.take(kept), examples.take(sorted(held))
