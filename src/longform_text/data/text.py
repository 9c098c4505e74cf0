"""Documents from files, folders, standard input and records, one at a time; and how many there are."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from longform.errors import ConfigurationError, DataError, require
from longform_text.data.files import (
    JSON,
    JSON_LINES,
    PARQUET,
    READ,
    TEXT,
    beginning,
    decoded,
    file_kind,
    files_below,
    holds_array,
    is_saved,
    named_kind,
    once,
    opened,
    parts,
    reason_of,
)
from longform_text.data.given import DATASET_PREFIX, InMemory, elements, is_missing, python_values, rows
from longform_text.data.records import Record, clean_text, jsonl_records, raw_string, read_records
from longform_text.data.records import field as field_of

STANDARD_INPUT = "-"
ID = "id"  # the field that names a record, where it has one
FILES_LOOKED_AT = 16  # of a folder, before a model is loaded
LARGE = 2**26  # bytes of an array in JSON, which is read whole: some seconds
_ESCAPED = re.compile(r"[\ud800-\udfff]|\\ud[89a-f][0-9a-f]{2}")


class Document(NamedTuple):
    """One text. ``id`` is its own or its place ("file", "file:line"); ``fields`` are the other fields of its record.

    ``unread``: characters that were not read, beyond the most that are read of a document.
    """

    id: str
    text: str
    fields: dict[str, Any]
    pair: str | None = None
    unread: int = 0


Text = str | tuple[str, str] | Document  # a tuple is a pair


@dataclass
class ReadReport:
    """Counts of what reading met, which grow while the documents are consumed."""

    documents: int = 0
    empty: int = 0  # documents with nothing but white space; they are kept
    replaced_characters: int = 0  # NUL and lone surrogates
    unread_characters: int = 0  # of documents longer than what is read of one
    passed_over_files: int = 0  # in folders: of no kind that is read, or that cannot be read, or not to their end
    passed_over: list[str] = field(default_factory=list)  # their names, and why they cannot be read

    def passes_over(self, name: str, error: Exception) -> None:
        """Count a file that cannot be read on."""
        self.passed_over_files += 1
        self.passed_over.append(f"{name}: {reason_of(error)}")


def written(name: str) -> str:
    """A name (of a document, a label) as files have it, in UTF-8: no two names become one.

    Lone surrogates, as Python has the bytes of a file's name that are not UTF-8, become escapes ("\\udce9"); "\\" is
    doubled in such a name, and in one that looks so.
    """
    return name.replace("\\", "\\\\").encode("utf-8", "backslashreplace").decode() if _ESCAPED.search(name) else name


def identifier(value: Any) -> str:
    """An id as text, of a whole number as such even where pandas made it a decimal; "" where there is none."""
    value = python_values(value)
    if is_missing(value):
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def text_of(document: str | Document | Mapping[str, Any], text_field: str = "text") -> str:
    """The text of a Document, of a row with ``text_field`` (of the ``datasets`` library, say), or the string itself,
    as a tokenizer takes it (``clean_text``).

    Raises DataError, with the fields there are, for what has no text.
    """
    if isinstance(document, str | Document):
        return clean_text(document if isinstance(document, str) else document.text)[0]
    if not isinstance(document, Mapping):
        raise DataError(
            f'{type(document).__name__} is no text: give strings, Documents, or rows with the field "{text_field}"'
        )
    if not isinstance(document.get(text_field), str):
        fields = ", ".join(f"{name} ({type(value).__name__})" for name, value in document.items()) or "none"
        raise DataError(
            f'a row has no field "{text_field}" with text; the fields there are: {fields}. Name the one that holds the '
            f'text (text_field=NAME; datasets: rename_column(NAME, "{text_field}")), or give strings: '
            "[row[NAME] for row in rows]"
        )
    return clean_text(document[text_field])[0]


def is_one(texts: Any) -> bool:
    """Whether ``texts`` is one text, not several."""
    return isinstance(texts, str | Document)


def usable_texts(texts: Any, *, text_field: str = "text", pair_field: str | None = None) -> Iterator[Text]:
    """One text or several as what a tokenizer takes (``clean_text``): strings, pairs of them, Documents.

    ``texts``: a text, or an iterable, a column, rows or a table of them (``data.given``); the fields are those of rows
    and tables. Nothing is kept of an iterator. Raises DataError, which says what to give, for anything else.
    """
    if is_one(texts):
        texts = [texts]
    for number, text in enumerate(elements(texts, text_field, pair_field)):
        yield _usable(text, number, text_field, pair_field)


def _usable(text: Any, number: int, text_field: str, pair_field: str | None) -> Text:
    try:
        if isinstance(text, Document):
            return text._replace(text=text_of(text), pair=None if text.pair is None else text_of(text.pair))
        if _is_pair(text):
            return text_of(text[0]), text_of(text[1])
        first = text_of(text, text_field)
        return (first, text_of(text, pair_field)) if pair_field is not None and isinstance(text, Mapping) else first
    except DataError as error:
        raise DataError(f"text number {number}: {error}") from None


def _is_pair(text: Any) -> bool:
    return isinstance(text, tuple | list) and len(text) == 2 and all(isinstance(part, str) for part in text)


def read_documents(
    sources: str | Path | Sequence[str | Path] | InMemory,
    *,
    text_field: str = "text",
    pair_field: str | None = None,
    id_field: str | None = None,
    stdin_format: str = "lines",
    max_characters: int | None = None,
    report: ReadReport | None = None,
    pass_over: bool = False,
) -> Iterator[Document]:
    """Documents of ``sources``, in order, one in memory at a time (of a .json file all).

    A source is a file of a kind in ``data.files``: text (one document; also a file without suffix) or records
    (jsonl, json, csv, tsv, parquet, a folder that ``datasets`` saved: one document a record, its text in
    ``text_field``); a folder (its files of these kinds, sorted, at any depth); "-" (standard input: one document a
    line, or jsonl with ``stdin_format="jsonl"``); or "hf:NAME[:CONFIG][:SPLIT]" (the ``datasets`` library).
    ``pair_field`` names the second text of a pair. Texts in memory have the ids "texts:0", "texts:1", ...
    ``id_field``: None: "id" where a record has that, else its place.

    Of a text at most ``max_characters`` are read (None: all). Characters that no tokenizer takes are replaced, empty
    documents kept, other files of a folder passed over; ``report`` counts all of this. With ``pass_over`` a damaged
    file of a folder is passed over too, and named there; else, and where a file itself is named, that is an error.
    Raises DataError at once for a source that does not exist or is of no such kind or a folder without documents;
    while reading for malformed records, missing or non-text fields, and in the end if there was no document at all.
    """
    reader = Reader(
        text_field, pair_field, id_field, stdin_format, max_characters, ReadReport() if report is None else report
    )
    if isinstance(sources, InMemory):
        return reader.read([(sources, False)], described=str(sources))
    listed = [sources] if isinstance(sources, str | Path) else list(sources)
    if not listed:
        raise DataError("no source of documents was given: name files, folders, - or hf:NAME:SPLIT")
    expanded = [
        (path, pass_over and Path(path) != Path(source))
        for source in listed
        for path in source_files(source, reader.report)
    ]
    return reader.read(expanded, described=", ".join(map(str, listed)))


def source_files(source: str | Path, report: ReadReport) -> list[str | Path]:
    """A folder becomes its files; everything else must exist, and be of a known kind."""
    if source == STANDARD_INPUT or str(source).startswith(DATASET_PREFIX):
        return [str(source)]
    path = Path(source)
    if path.is_dir() and not is_saved(path):
        files = once(files_below(path))
        known = [file for file in files if _is_known(Path(file))]
        if not known:
            raise DataError(f'the folder "{path}" has no documents: no file at any depth that is {READ}')
        report.passed_over += (others := sorted({*files}.difference(known)))
        report.passed_over_files += len(others)
        return list(map(Path, known))
    if not path.exists():
        raise DataError(f'"{path}" does not exist')
    file_kind(path)
    return [path]


def _is_known(path: Path) -> bool:
    kind = named_kind(path)
    try:
        return kind is not None and (kind != JSON or holds_array(path))
    except (DataError, OSError):  # reading says why
        return True


@dataclass(frozen=True)
class Reader:
    """Reader of documents, with the options of ``read_documents``; ``report`` counts what it met."""

    text_field: str
    pair_field: str | None
    id_field: str | None
    stdin_format: str
    max_characters: int | None
    report: ReadReport

    def __post_init__(self) -> None:
        if self.stdin_format not in ("lines", "jsonl"):
            raise ConfigurationError(f'stdin_format is "{self.stdin_format}"; it is "lines" or "jsonl"')
        if self.max_characters is not None and self.max_characters < 1:
            raise ConfigurationError(f"max_characters is {self.max_characters}; it is at least 1")
        for name in ("text_field", "pair_field", "id_field"):
            if not isinstance(value := getattr(self, name), str | (str if name == "text_field" else None)):
                raise ConfigurationError(f"{name} is {value!r}; it is the name of a field")

    def read(self, sources: Iterable[tuple[str | Path | InMemory, bool]], *, described: str) -> Iterator[Document]:
        """The documents of all sources, each with whether it is passed over where it cannot be read.

        Raises DataError, with what is ``described``, if there is no document.
        """
        before, known = self.report.documents, len(self.report.passed_over)
        for source, passes in sources:
            try:
                yield from map(self._counted, self._one_source(source))
            except DataError as error:
                if not passes:
                    raise
                self.report.passes_over(str(source), error)
        if self.report.documents == before:
            raise DataError("; ".join([f"no documents in {described}", *self.report.passed_over[known : known + 1]]))

    def document(self, record: Record) -> Document:
        """The document of a record. Raises DataError for missing fields and what is no text in them."""
        return self._counted(self._from_record(record))

    def _counted(self, document: Document) -> Document:
        self.report.documents += 1
        self.report.empty += not document.text or document.text.isspace()
        self.report.unread_characters += document.unread
        return document

    def _one_source(self, source: str | Path | InMemory) -> Iterator[Document]:
        if isinstance(source, InMemory):
            for number, given in enumerate(rows(source.given)):
                yield self._from_memory(given, number)
        elif source == STANDARD_INPUT:
            yield from self._standard_input()
        elif str(source).startswith(DATASET_PREFIX) or file_kind(Path(source)) != TEXT:
            yield from map(self._from_record, read_records(source))
        else:
            with opened(Path(source)) as file:
                yield self._from_text(str(source), decoded(parts(file), str(source)))

    def _standard_input(self) -> Iterator[Document]:
        name = "standard input"
        with opened(None) as file:
            if self.stdin_format == "jsonl":
                yield from map(self._from_record, jsonl_records(file, name=name))
                return
            for number, line in enumerate(file, start=1):
                document = self._from_text(f"-:{number}", decoded([line], name, number))
                yield document._replace(text=document.text.rstrip("\r\n"))

    def _from_text(self, identifier: str, parts: Iterable[str]) -> Document:
        text, unread = beginning(parts, self.max_characters)
        return Document(identifier, self._clean(text), {}, None, unread)

    def _from_memory(self, given: Any, number: int) -> Document:
        if isinstance(given, Document):
            return given._replace(text=self._clean(given.text), pair=given.pair and self._clean(given.pair))
        name = f"texts:{number}"
        if _is_pair(given):
            first, second = (self._kept(part) for part in given)
            return Document(name, first[0], {}, second[0], first[1] + second[1])
        if not isinstance(given, str | Mapping):
            raise DataError(f"text number {number} is {type(given).__name__} ({str(given)[:40]!r}), not text")
        return self._from_record(Record(name, {self.text_field: given} if isinstance(given, str) else dict(given)))

    def _from_record(self, record: Record) -> Document:
        given = record.values.get(ID) if self.id_field is None else field_of(record, self.id_field)
        text, beyond = self._kept(raw_string(record, self.text_field))
        pair, pair_beyond = (None, 0) if self.pair_field is None else self._kept(raw_string(record, self.pair_field))
        fields = {name: value for name, value in record.values.items() if name != self.text_field}
        return Document(identifier(given) or record.location, text, fields, pair, beyond + pair_beyond)

    def _kept(self, value: str) -> tuple[str, int]:
        """Part of a text that is taken, and how many characters are left."""
        kept = value[: self.max_characters]
        return self._clean(kept), len(value) - len(kept)

    def _clean(self, text: str) -> str:
        cleaned, replaced = clean_text(text)
        self.report.replaced_characters += replaced
        return cleaned


def look(
    sources: Iterable[str | Path],
    *fields: str | None,
    kept: Collection[str] = (),
    stdin_format: str = "lines",
    unreadable: bool = False,
) -> list[str]:
    """The names of files in folders that are passed over. Raises DataError, before a model is loaded, where no source
    holds anything, or the first record of a file lacks one of the ``fields`` (None: not asked for) or ``kept`` ones,
    which plain text has not.

    ``unreadable``: a file that cannot be read is passed by, for whoever reads it has more to say of that. A damaged
    file of a folder is refused only where no other holds text.
    Nothing is read of pipes, standard input, globs, URIs, saved and "hf:" data sets; of a folder the first files are.
    """
    listed, report = list(map(str, sources)), ReadReport()
    named = [(source, source_files(source, report)) for source in listed if "*" not in source and "://" not in source]
    here = [files for _, files in named]
    _check_no_plain_text(chain.from_iterable(here), kept, stdin_format, passed=unreadable)
    fields = (*fields, *kept)
    found = _looked_at(named, fields, unreadable)
    if found and not any(found) and len(found) == sum(map(len, here)) and len(here) == len(listed):
        raise DataError(f"no documents in {', '.join(listed)}: nothing but white space")
    return report.passed_over


def _looked_at(
    named: Iterable[tuple[str, Sequence[str | Path]]], fields: Sequence[str | None], unreadable: bool
) -> list[bool]:
    """Whether each of the first files of each source holds text. Raises DataError for a file that is refused: one of
    a folder only where no other holds text.
    """
    found, refused = list[bool](), list[DataError]()
    for source, files in named:
        for file in files[:FILES_LOOKED_AT]:
            try:
                found.append(_holds_text(Path(file), fields, unreadable))
            except DataError as error:
                if unreadable or Path(file) == Path(source):
                    raise
                refused.append(error)
    if refused and not any(found):
        raise refused[0]
    return found


def _check_no_plain_text(
    files: Iterable[str | Path], kept: Collection[str], stdin_format: str, *, passed: bool
) -> None:
    """Raise DataError where fields are to be ``kept`` and plain text is read, which has none; ``passed``: plain files
    are passed by.
    """
    for file in files if kept else ():
        if file == STANDARD_INPUT:
            plain, named = stdin_format == "lines", "standard input"
        else:
            plain, named = not passed and Path(file).is_file() and file_kind(Path(file)) == TEXT, str(file)
        if plain:
            raise DataError(f'{named}: no field "{next(iter(kept))}" to keep; plain text has no fields')


def _holds_text(path: Path, fields: Iterable[str | None], unreadable: bool) -> bool:
    if not path.is_file() or ((kind := file_kind(path)) == JSON and path.stat().st_size > LARGE):
        return True
    if kind == TEXT:
        with opened(path) as file:
            return not all(part.isspace() for part in decoded(parts(file), str(path)) if part)
    try:
        record = next(iter(read_records(path)), None)
    except DataError:
        if unreadable:
            return True
        raise
    if record is None:
        return False
    for name in filter(None, fields):
        field_of(record, name)
    return True


def count_documents(sources: Any) -> int | None:
    """How many documents ``sources`` hold, as ``read_documents`` takes them (blank lines of a jsonl file count too).

    None where reading alone tells, which a pipe, standard input and a data set of the hub allow once.
    """
    if isinstance(sources, InMemory):
        return len(sources.given) if isinstance(sources.given, Sized) else None
    listed = [sources] if isinstance(sources, str | Path) else sources
    if not isinstance(listed, list | tuple):
        return None
    try:
        counts = [_count(Path(file)) for source in listed for file in source_files(source, ReadReport())]
    except DataError:  # reading will say it, with the place
        return None
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _count(path: Path) -> int | None:
    if not path.is_file():
        return None
    kind = file_kind(path)
    if kind == TEXT:
        return 1
    if kind == PARQUET:
        try:
            with path.open("rb") as file:
                return require("pyarrow.parquet", extra="cli").read_metadata(file).num_rows
        except (OSError, ValueError):  # pyarrow's errors are of these
            return None
    return _lines(path) if kind == JSON_LINES else sum(1 for _ in read_records(path))


def _lines(path: Path) -> int:
    with opened(path) as file:
        return sum(1 for _ in file)
