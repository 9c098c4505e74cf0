"""Entities that labels of words mark in the IOB scheme, as CoNLL-2003 has them."""

from collections.abc import Sequence

OUTSIDE = "O"
BEGINS, MARKS = ("B", "S", "U"), ("B", "I", "E", "S", "U", "L")


def entities(labels: Sequence[str]) -> list[tuple[str, int, int]]:
    """Kind, first word and last but one of each entity.

    "B-NAME" begins one and "I-NAME" goes on with one of its kind, or begins one (IOB1, IOB2; "E-" and "L-" go on, "S-"
    and "U-" begin). Labels without a mark are entities as long as they stay the same; "O" is none.
    """
    found: list[tuple[str, int, int]] = []
    for place, label in enumerate(labels):
        mark, kind = parted(label)
        if kind is None:
            continue
        goes_on = bool(found) and found[-1][0] == kind and found[-1][2] == place and mark not in BEGINS
        begun = found.pop()[1] if goes_on else place
        found.append((kind, begun, place + 1))
    return found


def parted(label: str) -> tuple[str, str | None]:
    """Mark and kind of a label: "B-PER" is "B" and "PER", "verb" is "" and "verb", "O" is "" and None."""
    mark, dash, kind = label.partition("-")
    if dash and mark in MARKS:
        return mark, kind
    return "", None if label == OUTSIDE else label
