"""Documents from files, folders, standard input and records, one at a time."""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from longform.data.records import DATASET_PREFIX, Record, field, jsonl_records, read_records, string_field
from longform.errors import ConfigurationError, DataError

TEXT_SUFFIXES = (".md", ".text", ".txt")
RECORD_SUFFIXES = (".jsonl", ".ndjson", ".parquet")
STANDARD_INPUT = "-"
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_UNREADABLE = re.compile("[\x00\ud800-\udfff]")
_ESCAPED = re.compile(r"[\ud800-\udfff]|\\ud[89a-f][0-9a-f]{2}")


class Document(NamedTuple):
    """One text. ``id`` is its own or its place ("file", "file:line"); ``fields`` are the other fields of its record."""

    id: str
    text: str
    fields: dict[str, Any]
    pair: str | None = None


@dataclass
class ReadReport:
    """What reading met: counts that grow while the documents are consumed."""

    documents: int = 0
    empty: int = 0  # documents with nothing but white space; they are kept
    replaced_characters: int = 0  # bytes that are not UTF-8, NUL and lone surrogates


def clean_text(text: str) -> tuple[str, int]:
    """The text with NUL -> space and lone surrogates -> U+FFFD, and how many there were (tokenizers refuse them)."""
    return _UNREADABLE.subn(lambda match: " " if match[0] == "\x00" else REPLACEMENT, text)


def written(name: str) -> str:
    """A name (of a document, a label) as files have it, in UTF-8: no two names become one.

    Lone surrogates, as Python has the bytes of a file's name that are not UTF-8, become escapes ("\\udce9"); "\\" is
    doubled in such a name, and in one that looks so.
    """
    return name.replace("\\", "\\\\").encode("utf-8", "backslashreplace").decode() if _ESCAPED.search(name) else name


def text_of(document: str | Document | Mapping[str, Any]) -> str:
    """The text of a Document, of a row with the field "text" (of the ``datasets`` library, say), or the string itself.

    Raises DataError, with the fields there are, for what has no text.
    """
    if isinstance(document, str):
        return document
    if isinstance(document, Document):
        return document.text
    if not isinstance(document, Mapping):
        raise DataError(f'{type(document).__name__} is no text: give strings, Documents, or rows with the field "text"')
    if not isinstance(document.get("text"), str):
        fields = ", ".join(f"{name} ({type(value).__name__})" for name, value in document.items()) or "none"
        raise DataError(
            f'a row has no field "text" with text; the fields there are: {fields}. Rename the one that holds the text '
            '(datasets: rename_column(NAME, "text")), or give strings: [row[NAME] for row in rows]'
        )
    return document["text"]


def read_documents(
    sources: str | Path | Sequence[str | Path],
    *,
    text_field: str = "text",
    pair_field: str | None = None,
    id_field: str | None = None,
    stdin_format: str = "lines",
    report: ReadReport | None = None,
) -> Iterator[Document]:
    """Documents of ``sources``, in order, one in memory at a time.

    A source is a text file (one document; any suffix that is not .jsonl or .parquet), a ``.jsonl`` or ``.parquet``
    file (one document a record, its text in ``text_field``), a folder (its text, jsonl and parquet files, sorted, at
    any depth), "-" (standard input: one document a line, or jsonl with ``stdin_format="jsonl"``) or
    "hf:NAME[:CONFIG][:SPLIT]" (the ``datasets`` library). ``pair_field`` names the second text of a pair.

    Characters that no tokenizer takes are replaced, empty documents kept; ``report`` counts both.
    Raises DataError at once for a source that does not exist or a folder without documents; while reading for
    malformed records, missing or non-text fields, and in the end if there was no document at all.
    """
    if stdin_format not in ("lines", "jsonl"):
        raise ConfigurationError(f'stdin_format is "{stdin_format}"; it is "lines" or "jsonl"')
    listed = [sources] if isinstance(sources, str | Path) else list(sources)
    if not listed:
        raise DataError("no source of documents was given: name files, folders, - or hf:NAME:SPLIT")
    expanded = [path for source in listed for path in _expand(source)]
    reader = _Reader(text_field, pair_field, id_field, stdin_format, ReadReport() if report is None else report)
    return reader.read(expanded, described=", ".join(map(str, listed)))


def _expand(source: str | Path) -> list[str | Path]:
    """A folder becomes its files; everything else must exist."""
    if source == STANDARD_INPUT or str(source).startswith(DATASET_PREFIX):
        return [str(source)]
    path = Path(source)
    if path.is_dir():
        wanted = (*TEXT_SUFFIXES, *RECORD_SUFFIXES)
        files = sorted(file for file in path.rglob("*") if file.suffix.lower() in wanted and file.is_file())
        if not files:
            raise DataError(f'the folder "{path}" has no documents: no {", ".join(wanted)} file at any depth')
        return list(files)
    if not path.exists():
        raise DataError(f'"{path}" does not exist')
    return [path]


@dataclass(frozen=True)
class _Reader:
    text_field: str
    pair_field: str | None
    id_field: str | None
    stdin_format: str
    report: ReadReport

    def read(self, sources: Iterable[str | Path], *, described: str) -> Iterator[Document]:
        before = self.report.documents
        for source in sources:
            for document in self._one_source(source):
                self.report.documents += 1
                self.report.empty += not document.text.strip()
                yield document
        if self.report.documents == before:
            raise DataError(f"no documents in {described}")

    def _one_source(self, source: str | Path) -> Iterator[Document]:
        if source == STANDARD_INPUT:
            if self.stdin_format == "jsonl":
                yield from map(self._from_record, jsonl_records(sys.stdin.buffer, name="standard input"))
            else:
                for number, line in enumerate(sys.stdin.buffer, start=1):
                    yield Document(f"-:{number}", self._decode(line.rstrip(b"\r\n")), {})
        elif str(source).startswith(DATASET_PREFIX) or Path(source).suffix.lower() in RECORD_SUFFIXES:
            yield from map(self._from_record, read_records(source))
        else:
            yield Document(str(source), self._decode(Path(source).read_bytes()), {})

    def _from_record(self, record: Record) -> Document:
        identifier = record.location if self.id_field is None else str(field(record, self.id_field))
        text = self._string(record, self.text_field)
        pair = None if self.pair_field is None else self._string(record, self.pair_field)
        fields = {name: value for name, value in record.values.items() if name != self.text_field}
        return Document(identifier, text, fields, pair)

    def _string(self, record: Record, name: str) -> str:
        value = string_field(record, name)
        # U+FFFD in a record is counted as replaced: bytes that are not UTF-8 become it before the JSON is read.
        self.report.replaced_characters += value.count(REPLACEMENT)
        return self._clean(value)

    def _decode(self, content: bytes) -> str:
        text = content.decode("utf-8", errors="replace").removeprefix("\ufeff")
        self.report.replaced_characters += text.count(REPLACEMENT) - content.count(REPLACEMENT.encode())
        return self._clean(text)

    def _clean(self, text: str) -> str:
        cleaned, replaced = clean_text(text)
        self.report.replaced_characters += replaced
        return cleaned
