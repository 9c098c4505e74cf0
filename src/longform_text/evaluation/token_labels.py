"""Scores of labels of words: whole entities, as CoNLL-2003 counts them, and single words."""

from collections.abc import Iterator, Sequence

from longform.errors import DataError
from longform_text.data.entities import entities


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
