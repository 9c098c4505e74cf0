"""Output that survives a kill: a partial file that becomes the output when it is whole; and output elsewhere."""

import contextlib
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from longform.choices import STANDARD_OUTPUT
from longform.errors import ConfigurationError, require
from longform.files import RunFile, atomic_write, flush, sole_output, whole_lines
from longform_text.data.token_store import input_paths
from longform_text.inference.kept_fields import RESULTS
from longform_text.inference.settings import check_suffix

ROWS_AT_A_TIME = 1024  # of a row group
CUT_NAMED = 10  # documents, of those that were cut
DEEPEST = 30  # lists and structs in each other of a column's type; readers of parquet refuse deeper schemas


def write_parquet(
    records: Callable[[], Iterator[dict[str, Any]]],
    file: Any,
    *,
    vector_dtype: str = "float32",
    kept_as_text: bool = False,
) -> None:
    """Write all records, whose fields are those of the first; vectors as lists of fixed size of ``vector_dtype``.

    ``records``: gives them from the beginning. Kept fields have the type that fits every value; where there is none,
    their values are written as JSON. ``kept_as_text``: they are text already, or None.
    """
    arrow = require("pyarrow", extra="cli")
    parquet = require("pyarrow.parquet", extra="cli")
    first = next(records())
    own = {name: _own_type(arrow, name, value, vector_dtype) for name, value in first.items() if name in RESULTS}
    others = [name for name in first if name not in RESULTS]
    kept = dict.fromkeys(others, arrow.string())
    if not kept_as_text:
        kept = _kept_types(arrow, chain(records(), records()), others)
    mixed = [name for name, kind in kept.items() if kind is None]
    types = own | kept | dict.fromkeys(mixed, arrow.string())
    schema = arrow.schema([(name, types[name]) for name in first])
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        for rows in _row_groups(records()):
            for name in mixed:
                rows = [{**row, name: json.dumps(row[name], ensure_ascii=False)} for row in rows]
            writer.write_table(arrow.Table.from_pylist(rows, schema=schema))


def _row_groups(records: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    while rows := list(islice(records, ROWS_AT_A_TIME)):
        yield rows


def _own_type(arrow: Any, name: str, value: Any, vector_dtype: str) -> Any:
    if isinstance(value, Mapping):
        return arrow.struct([(label, arrow.float64()) for label in value])
    if name == "embedding":
        return arrow.list_(arrow.type_for_alias(vector_dtype), len(value))
    if isinstance(value, list):
        return arrow.list_(arrow.string())
    return {str: arrow.string(), int: arrow.int64(), float: arrow.float64()}[type(value)]


def _kept_types(arrow: Any, records: Iterator[dict[str, Any]], names: list[str]) -> dict[str, Any]:
    """The type of each kept field, None where its values have none in common; they come twice, since a type that
    holds the first ones may grow to one that does not.
    """
    found: dict[str, Any] = dict.fromkeys(names, arrow.null())
    for rows in _row_groups(records) if names else ():
        for name, kind in found.items():
            found[name] = None if kind is None else _common(arrow, kind, [row[name] for row in rows])
    return found


def _common(arrow: Any, kind: Any, values: list[Any]) -> Any:
    """The type that has ``kind`` and all ``values`` as they are and that parquet knows, None where there is none."""
    try:
        both = [arrow.schema([("kept", each)]) for each in (kind, arrow.array(values).type)]
        common = arrow.unify_schemas(both, promote_options="permissive").field("kept").type
        found = arrow.array(values, common).to_pylist()
    except (arrow.ArrowException, OverflowError):  # mixed types, large numbers
        return None
    deepest = max(accumulate((letter == "<") - (letter == ">") for letter in str(common)))
    return common if deepest <= DEEPEST and "struct<>" not in str(common) and _is_same(found, values) else None


def _is_same(found: Any, given: Any) -> bool:
    """Whether a JSON value is ``given``; false and 0, which are equal in Python and which Arrow mixes, are not."""
    if isinstance(given, list) and isinstance(found, list):
        return len(found) == len(given) and all(map(_is_same, found, given))
    if isinstance(given, dict) and isinstance(found, dict):
        return found.keys() == given.keys() and all(_is_same(found[name], value) for name, value in given.items())
    return isinstance(found, bool) == isinstance(given, bool) and found == given


PARTIAL, SETTINGS, DOCUMENTS = BESIDE = (".partial", ".settings", ".documents")  # while it is not finished
DIGITS = {"float32": 9, "float16": 5}  # that tell the numbers of a dtype apart


@contextlib.contextmanager
def place_of_output(output: str | Path, *, inputs: Iterable[Any], restart: bool) -> Generator[Path]:
    """The file ``output``, which this process alone writes meanwhile; "-" is standard output.

    Raises ConfigurationError as ``sole_output`` does, for a file of another kind, and for a finished output unless it
    is to ``restart``: it takes long to make and is not made again unasked.
    """
    if str(output) == STANDARD_OUTPUT:
        yield Path(STANDARD_OUTPUT)
        return
    check_suffix(output)
    with sole_output(output, inputs=input_paths(inputs), beside=BESIDE) as place:
        if place.exists() and not restart and not place.with_name(place.name + PARTIAL).exists():
            for end in BESIDE:  # left by a start that was killed when all was written
                place.with_name(place.name + end).unlink(missing_ok=True)
            raise ConfigurationError(
                f'"{output}" is finished already: give restart=True (--restart) to make it anew, or another output'
            )
        yield place


def record_line(record: Mapping[str, Any]) -> bytes:
    """A record as a line of JSON; of vectors as many digits as give their numbers back exactly."""
    plain = {
        name: [float(f"{each:.{DIGITS[value.dtype.name]}g}") for each in value.tolist()]
        if isinstance(value, np.ndarray)
        else value
        for name, value in record.items()
    }
    return json.dumps(plain, ensure_ascii=False, allow_nan=False).encode("utf-8") + b"\n"


def count_records(records: Iterable[Mapping[str, Any]], named: list[str] | None = None) -> Counter[str]:
    """How many records there are, their tokens, documents that were cut, and tokens that were cut off.

    ``named``: gets the ids of the first documents that were cut.
    """
    found: Counter[str] = Counter(records=0, tokens=0, truncated=0, truncated_tokens=0)
    for record in records:
        cut = record.get("truncated", 0)  # of chunks nothing is cut off
        found.update(records=1, tokens=record["tokens"], truncated=int(cut > 0), truncated_tokens=cut)
        if cut and named is not None and len(named) < CUT_NAMED:
            named.append(record["id"])
    return found


class ResumableOutput:
    """Appends records, in order, for ``output`` (.jsonl or .parquet); a second start goes on where the first ended.

    Beside ``output`` stand, until it is finished, ``output.partial`` (one record a line), ``output.documents`` (the key
    of each document and its number of records, one a line) and ``output.settings``, the run's identity
    (longform.files). ``vector_dtype``: of vectors in a .parquet. ``done``: documents all of whose records an
    earlier start left. Raises ConfigurationError that names what changed; ``restart`` discards what was there.
    """

    def __init__(
        self, output: str | Path, settings: Mapping[str, Any], *, vector_dtype: str = "float32", restart: bool = False
    ) -> None:
        self.output = Path(output)
        self.partial = self.output.with_name(self.output.name + PARTIAL)
        self._settings = self.output.with_name(self.output.name + SETTINGS)
        self.done, self._vector_dtype = 0, vector_dtype
        if restart:
            self.partial.unlink(missing_ok=True)
        run = RunFile(self._settings, self.partial, "run", "restart=True (--restart) to begin anew")
        run.open(settings, begun=["documents"] if self.partial.exists() else [])
        self._file = self.partial.open("a+b")
        self._documents = self.output.with_name(self.output.name + DOCUMENTS)
        self._keys = self._documents.open("a+b")
        self._keep_whole_lines()

    def append(self, records: Sequence[Mapping[str, Any]], document: str) -> None:
        """Write the records of the document with the key ``document``; kept even if the process is killed next.

        Raises OSError on a full disk.
        """
        self._keys.write(f"{document} {len(records)}\n".encode())
        self._keys.flush()  # first: records always have the key of their document
        for record in records:
            self._file.write(record_line(record))
        self._file.flush()

    def records(self) -> Iterator[dict[str, Any]]:
        """Records that have been written so far, from the beginning."""
        with self.partial.open("rb") as lines:
            yield from map(json.loads, lines)

    def documents(self) -> Iterator[str]:
        """The keys of the documents whose records an earlier start left."""
        with self._documents.open("rb") as lines:
            yield from (key for _, (key, _) in islice(whole_lines(lines, _key_and_count), self.done))

    def totals(self) -> dict[str, Any]:
        """Records, tokens, and what was cut, so far."""
        return {**count_records(self.records(), named := []), "truncated_documents": named}

    def finish(self) -> None:
        """The partial file becomes the output, which replaces an older one at once."""
        os.fsync(self._file.fileno())
        self._file.close()
        if self.output.suffix == ".parquet":
            with atomic_write(self.output, "wb") as file:
                write_parquet(self.records, file, vector_dtype=self._vector_dtype)
            self.partial.unlink()
        else:
            self.partial.replace(self.output)
            flush(self.output.parent)
        self._forget()

    def close(self) -> None:
        """Stop writing; what was written stays for the next start (nothing stays of nothing)."""
        self._file.close()
        self._keys.close()
        if self.partial.exists() and self.partial.stat().st_size == 0:
            self.partial.unlink()
            self._forget()

    def _forget(self) -> None:
        self._keys.close()
        for path in (self._documents, self._settings):
            path.unlink(missing_ok=True)

    def _keep_whole_lines(self) -> None:
        """A kill in the middle of a line leaves a part of it, a lost disk other lengths: keep what both files have."""
        whole, known, records = 0, 0, whole_lines(self._file)
        for line, (_, count) in whole_lines(self._keys, _key_and_count):
            lines = [record for record, _ in islice(records, count)]
            if len(lines) < count:
                break
            whole, known = whole + sum(map(len, lines)), known + len(line)
            self.done += 1
        self._file.truncate(whole)
        self._keys.truncate(known)


def _key_and_count(line: bytes) -> tuple[str, int]:
    key, count = line.decode().split()
    return key, int(count)


class DirectOutput:
    """Hands the records of each document on as soon as they are made, in order; ``write`` takes them."""

    done = 0  # documents that an earlier start left

    def __init__(self, write: Callable[[Sequence[dict[str, Any]]], None]) -> None:
        self._write = write
        self._totals: Counter[str] = count_records([])
        self._cut: list[str] = []

    def append(self, records: Sequence[dict[str, Any]], document: str) -> None:
        """Hand on the records of a document."""
        self._write(records)
        self._totals.update(count_records(records, self._cut))

    def documents(self) -> Iterator[str]:
        """No keys of documents: none are there from an earlier start."""
        return iter(())

    def totals(self) -> dict[str, Any]:
        """Records, tokens, and what was cut, so far."""
        return {**self._totals, "truncated_documents": self._cut}

    def finish(self) -> None:
        """Nothing is left to do."""

    def close(self) -> None:
        """Nothing is open."""


def print_records(records: Sequence[dict[str, Any]]) -> None:
    """Write records to standard output, a line each. Raises OSError where nobody reads them any more."""
    sys.stdout.buffer.writelines(map(record_line, records))
    sys.stdout.buffer.flush()
