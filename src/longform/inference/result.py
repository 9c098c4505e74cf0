"""What a run of prediction or embedding did."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from longform.errors import ConfigurationError
from longform.runs.summary import summary


@dataclass(frozen=True)
class InferenceResult:
    """What a run did. Counts are of the whole output; ``seconds`` and ``tokens_per_second`` leave out what an
    interrupted run had done before. ``results``: the records, where no output was named, else None.
    """

    output: str | None
    documents: int
    records: int  # one a document, or one a chunk
    resumed: int  # documents that were done before, by an interrupted run
    tokens: int
    truncated: int  # documents that were cut
    truncated_tokens: int
    empty: int
    replaced_characters: int
    unread_characters: int  # of documents longer than ``max_characters``
    passed_over_files: int  # of folders: of no kind that is read
    seconds: float
    tokens_per_second: float
    failed: int | None = None  # rows that could not be read or computed, of an output in parts
    results: list[dict[str, Any]] | None = field(default=None, repr=False)

    @property
    def report(self) -> str:
        """What the command prints: the counts, one a line."""
        return summary(self)

    @property
    def vectors(self) -> np.ndarray:
        """The embeddings (records, D). Raises ConfigurationError where there are none in memory."""
        if self.results is None or "embedding" not in self.results[0]:
            where = f'the results are in "{self.output}"' if self.results is None else "labels were predicted"
            raise ConfigurationError(f"no vectors in memory: {where}; embed without an output has them")
        return np.stack([each["embedding"] for each in self.results])
