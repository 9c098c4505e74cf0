"""Records kept in memory, where no file is named: with the face of a ResumableOutput, and nothing to go on with."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


class MemoryOutput:
    """Keeps each record, in order, in ``kept``."""

    done = 0  # documents that an earlier start left

    def __init__(self) -> None:
        self.kept: list[dict[str, Any]] = []

    def append(self, records: Sequence[Mapping[str, Any]], document: str) -> None:
        """Keep the records of a document."""
        self.kept += map(dict, records)

    def records(self) -> Iterator[dict[str, Any]]:
        """What has been kept so far, from the beginning."""
        return iter(self.kept)

    def documents(self) -> Iterator[str]:
        """No keys of documents: none are there from an earlier start."""
        return iter(())

    def finish(self) -> None:
        """Nothing is left to do."""

    def close(self) -> None:
        """Nothing is open."""
