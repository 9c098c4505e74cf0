"""Documents of a file, and what is where in them."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from longform.errors import DataError
from longform_text.data.files import ENCODING, TEXT, binary, file_kind, named_kind
from longform_text.data.formats import READERS, Heading, Source, plain_text
from longform_text.data.records import clean_text, read_records, string_field
from longform_text.data.text import ID, identifier, written

READ = (
    ".txt, .md, .html, .pdf, .docx, .pptx, .xlsx, .epub, .odt, .eml, .ipynb; .jsonl, .json, .csv, .tsv and .parquet "
    "with a field of text"
)
ENDS = {"line": "\n", "page": "\f", "slide": "\f", "chapter": "\f"}  # how each of them ends in a text
ABOVE = " › "  # between a heading and the one below it
LARGEST = 2**30  # bytes of a file that is read at once


class Places(NamedTuple):
    """Where the lines or pages of a text begin, and its headings with those above each: ``paths`` from ``starts``."""

    begins: list[int]
    starts: list[int]
    paths: list[str]

    @classmethod
    def of(cls, source: Source) -> "Places":
        """The places of a document."""
        end = ENDS.get(source.unit)
        begins = [0, *(found.end() for found in re.finditer(end, source.text))] if end else []
        starts, paths, above = [0], [""], list[Heading]()
        for heading in source.headings:
            above = [*(each for each in above if each.level < heading.level), heading]
            starts.append(heading.start)
            paths.append(ABOVE.join(each.text for each in above))
        return cls(begins, starts, paths)

    def at(self, character: int) -> tuple[int, str]:
        """The number of the line or page of a character, and the headings above it."""
        return bisect_right(self.begins, character), self.paths[bisect_right(self.starts, character) - 1]


def read_file(path: Path, name: str, text_field: str) -> Iterator[Source]:
    """The documents of a file: one, or of records one each; those without any text are left out.

    ``name``: what the file is called in ids, which are all different. Raises DataError, with the reason, for a file
    that cannot be read, and whatever the library of its kind does.
    """
    names, left_out = Counter[str](), ""
    for source in _sources(path, name, text_field):
        if not source.text.strip():
            left_out = source.note
            continue
        names[source.id] += 1
        id = source.id if names[source.id] == 1 else f"{source.id} ({names[source.id]})"
        yield source._replace(id=id, text=clean_text(source.text)[0], title=clean_text(source.title.strip())[0])
    if not names:
        raise DataError(left_out or "no text in it")


def name_as_title(name: str) -> str:
    """The name of a file as a title: without its folders and its ending, words parted by spaces."""
    return " ".join(re.split(r"[\s_-]+", Path(name).stem)).strip()


def option_of(path: Path, text_field: str) -> str | None:
    """The option by which a file of this name is read, an encoding or a field; None for a kind that is not read."""
    if path.suffix.lower() in READERS:
        return ""
    kind = named_kind(path)
    return str(ENCODING.get() or "") if kind == TEXT else kind and text_field


def _sources(path: Path, name: str, text_field: str) -> Iterator[Source]:
    reader = READERS.get(path.suffix.lower())
    if reader is None and file_kind(path) != TEXT:
        return _records(path, name, text_field)
    with binary(path) as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise DataError(f"it is over {LARGEST:,} bytes")
    source = (reader or plain_text)(content, name)
    return iter([source._replace(id=name, title=source.title or name_as_title(name))])


def _records(path: Path, name: str, text_field: str) -> Iterator[Source]:
    for record in read_records(path):
        id = identifier(record.values.get(ID)) or record.location.removeprefix(f"{path}:")
        title = record.values.get("title")
        yield Source(f"{name}:{written(id)}", title if isinstance(title, str) else "", string_field(record, text_field))
