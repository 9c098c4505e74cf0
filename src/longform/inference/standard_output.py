"""Records on standard output, for a pipe: with the face of a ResumableOutput, but nothing of it can be gone on with."""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from longform.inference.resumable import count_records, record_line


class StandardOutput:
    """Writes each record as a line as soon as it is made."""

    done = 0  # documents that an earlier start left

    def __init__(self) -> None:
        self._totals: Counter[str] = count_records([])

    def append(self, records: Sequence[Mapping[str, Any]], document: str) -> None:
        """Write the records of a document. Raises OSError where nobody reads them any more."""
        for record in records:
            sys.stdout.buffer.write(record_line(record))
        sys.stdout.buffer.flush()
        self._totals.update(count_records(records))

    def documents(self) -> Iterator[str]:
        """No keys of documents: none are there from an earlier start."""
        return iter(())

    def totals(self) -> dict[str, int]:
        """Records, tokens, and what was cut, so far."""
        return dict(self._totals)

    def finish(self) -> None:
        """Nothing is left to do."""

    def close(self) -> None:
        """Nothing is open."""
