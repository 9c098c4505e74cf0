"""Data sets of labelled sequences of token ids. Axes: n tokens."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

# Task -> what the baseline reads.
READS = {"text": "TF-IDF", "bytes": "TF-IDF", "listops": "outermost operation", "digits": "pixels"}


class LabelledSequences(NamedTuple):
    """``sequences``: ids (n,), whole numbers from 0 (0 is padding), each of its own length.

    ``labels``: long (N,), places in ``names``.
    """

    sequences: Sequence[np.ndarray]
    labels: np.ndarray
    names: list[str]

    @property
    def lengths(self) -> list[int]:
        """n of each."""
        return [len(sequence) for sequence in self.sequences]


@dataclass(frozen=True)
class SequenceTask:
    """A data set to compare architectures on.

    ``vocabulary``: ids there are, padding (0) included.
    ``raw``: what the baseline reads of the three parts: lists of texts, or pixels float (N, P); None: the ids.
    ``reads``: what that is called.
    """

    name: str
    train: LabelledSequences
    validation: LabelledSequences
    test: LabelledSequences
    vocabulary: int
    raw: tuple[Any, Any, Any] | None = None
    reads: str = READS["text"]

    @property
    def parts(self) -> tuple[LabelledSequences, LabelledSequences, LabelledSequences]:
        """To train on, to validate, to test."""
        return self.train, self.validation, self.test

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence."""
        return max(max(part.lengths) for part in self.parts)

    def counts(self) -> dict[str, int | float]:
        """How many sequences the parts have, and the most frequent class's share (0 to 1) of the test part."""
        share = np.bincount(self.test.labels).max() / len(self.test.labels)
        return {
            "train_texts": len(self.train.labels),
            "validation_texts": len(self.validation.labels),
            "test_texts": len(self.test.labels),
            "most_frequent_class": round(float(share), 4),
        }

    def digest(self) -> str:
        """A short name: the same for the same sequences and labels in the same order."""
        found = hashlib.sha256()
        for part in self.parts:
            found.update(np.asarray(part.lengths).tobytes() + np.ascontiguousarray(part.labels).tobytes())
            for sequence in part.sequences:
                found.update(np.ascontiguousarray(sequence).tobytes())
        return found.hexdigest()[:16]
