"""Labels of texts in every usual form: names, numbers, lists of names, vectors of 0 and 1, and none."""

from collections.abc import Iterable, Sequence, Set
from itertools import compress
from typing import Any

from longform.data.given import is_missing, python_values
from longform.errors import DataError

LIST_SEPARATOR = ";"  # between the labels of one text in a csv file


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
