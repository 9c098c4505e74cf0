"""Labels of texts in every usual form: names, numbers, lists of names, vectors of 0 and 1, and none."""

from collections.abc import Iterable, Sequence, Set
from typing import Any

from longform.data.values import is_missing, python_values
from longform.errors import DataError

LIST_SEPARATOR = ";"  # between the labels of one text in a csv file


class Labels(list[Any]):
    """A label a text: a name, a number, a list of names, or None where there is none.

    ``names``: all that there may be, in their order, where that is known. ``unlabelled``: texts that were left out.
    """

    def __init__(self, labels: Iterable[Any], names: Sequence[str] | None = None, *, unlabelled: int = 0) -> None:
        super().__init__(labels)
        self.names, self.unlabelled = names, unlabelled


def plain_labels(given: Iterable[Any], names: Sequence[str] | None = None) -> Labels:
    """Labels as Python has them: of arrays, tensors and sets lists, of vectors of 0 and 1 the places that hold 1.

    None for what is missing (None, NaN, NA, a list of these). Raises DataError for lists of numbers that are
    neither such vectors nor numbers of classes.
    """
    if isinstance(given, Labels):
        return given
    labels = [_plain(label) for label in given]
    lists = [label for label in labels if isinstance(label, list)]
    if lists and len(lists) == sum(label is not None for label in labels) and _are_vectors(lists):
        places = [str(place) for place in range(len(lists[0]))]
        return Labels(
            (label and [places[at] for at, one in enumerate(label) if float(one)] for label in labels), places
        )
    for label in lists:
        twice = len(set(map(str, label))) < len(label) and all(str(each).lstrip("-").isdecimal() for each in label)
        if twice or any(isinstance(each, float | list) for each in label):
            raise DataError(
                f"the label {label!r} is no list of names or numbers of classes, each once, and the labels are no "
                "vectors of 0 and 1 of one length: give one of the two"
            )
    return Labels(([*map(str, label)] if isinstance(label, list) else label for label in labels), names)


def lists_of_names(given: Iterable[Any]) -> Labels:
    """Labels as lists of names, which LIST_SEPARATOR parts in a text; None where there is none."""
    labels = plain_labels(given)
    parted = [
        [part.strip() for part in label.split(LIST_SEPARATOR) if part.strip()] if isinstance(label, str) else label
        for label in labels
    ]
    return plain_labels(parted, labels.names)


def _plain(label: Any) -> Any:
    label = python_values(label)
    if isinstance(label, tuple | Set):
        label = sorted(label, key=str) if isinstance(label, Set) else list(label)
    if not isinstance(label, list):
        return None if is_missing(label) else label
    label = list(map(python_values, label))
    there = [each for each in label if not is_missing(each)]
    if len(there) < len(label) and not all(isinstance(each, str) for each in there):
        raise DataError(f"the label {label!r} has places without a number: give 0 or 1 in all of them")
    return there if there or not label else None


def _are_vectors(lists: Sequence[list[Any]]) -> bool:
    """Whether labels are vectors of 0 and 1, as no lists of two or more different numbers, or of names, all are."""
    if {len(label) for label in lists} != {len(lists[0])} or len(lists[0]) < 2:
        return False
    values = [each for label in lists for each in label]
    numbers = all(isinstance(each, int | float) for each in values)
    twice = any(len(set(label)) < len(label) for label in lists)
    return all(each in (0, 1, "0", "1") for each in values) and (numbers or twice)
