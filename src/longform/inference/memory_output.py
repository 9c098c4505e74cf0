"""Records kept in memory, where no file is named: with the face of a ResumableOutput, and nothing to go on with."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from longform.inference.resumable import count_records


class MemoryOutput:
    """Keeps each record, in order, in ``kept``."""

    done = 0  # documents that an earlier start left

    def __init__(self) -> None:
        self.kept: list[dict[str, Any]] = []

    def append(self, records: Sequence[Mapping[str, Any]], document: str) -> None:
        """Keep the records of a document."""
        self.kept += map(dict, records)

    def documents(self) -> Iterator[str]:
        """No keys of documents: none are there from an earlier start."""
        return iter(())

    def totals(self) -> dict[str, int]:
        """Records, tokens, and what was cut, so far."""
        return dict(count_records(self.kept))

    def finish(self) -> None:
        """Nothing is left to do."""

    def close(self) -> None:
        """Nothing is open."""
