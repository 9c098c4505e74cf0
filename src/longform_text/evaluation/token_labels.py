"""Scores of labels of words, and the entities that labels in the IOB scheme mark, as CoNLL-2003 counts them."""

from collections.abc import Iterator, Sequence

from longform.errors import DataError

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


def token_scores(predicted: Sequence[Sequence[str]], truth: Sequence[Sequence[str]]) -> dict[str, float]:
    """From 0 to 1: ``precision``, ``recall`` and ``f1`` of whole entities, over all texts (micro), and ``accuracy`` of
    words. An entity is right where kind, first and last word are (Tjong Kim Sang and De Meulder, 2003; seqeval).

    Raises DataError for texts of different lengths, and for none.
    """
    if [*map(len, predicted)] != [*map(len, truth)] or not any(truth):
        raise DataError(f"{len(predicted)} predicted texts for {len(truth)}; words must be as many, and one at least")
    said, true = (set(_placed(texts)) for texts in (predicted, truth))
    right = len(said & true)
    precision, recall = right / max(1, len(said)), right / max(1, len(true))
    words = [one == other for a, b in zip(predicted, truth, strict=True) for one, other in zip(a, b, strict=True)]
    return {
        "precision": precision,
        "recall": recall,
        "f1": 2 * precision * recall / max(1e-12, precision + recall),
        "accuracy": sum(words) / len(words),
    }


def _placed(texts: Sequence[Sequence[str]]) -> Iterator[tuple[int, str, int, int]]:
    for number, labels in enumerate(texts):
        yield from ((number, *entity) for entity in entities(labels))
