"""Files as people have them (text, html, docx, pdf, records) as documents with titles and places in them."""

import logging
import re
import zipfile
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from longform.errors import DataError, require
from longform_text.data.files import TEXT, decoded, file_kind, named_kind, opened, parts
from longform_text.data.records import clean_text, read_records, string_field
from longform_text.data.text import ID, identifier, written

READ = ".txt, .md, .html, .docx, .pdf; .jsonl, .json, .csv, .tsv and .parquet with a field of text"


class Source(NamedTuple):
    """A document: its ``id``, ``title``, ``text``, and where the numbered pages or lines of the text begin.

    ``unit``: "page" or "line" of ``begins`` (characters), "" where the id says the place.
    """

    id: str
    title: str
    text: str
    unit: str = ""
    begins: tuple[int, ...] = ()

    def place(self, start: int) -> str:
        """The page or line in which the character ``start`` is."""
        return f"{self.unit} {bisect_right(self.begins, start)}" if self.unit else ""


def read_file(path: Path, name: str, text_field: str) -> Iterator[Source]:
    """The documents of a file: one, or of records one each; those without any text are left out.

    ``name``: what the file is called in ids. Raises DataError, with the reason, for a file that cannot be read.
    """
    suffix = path.suffix.lower()
    read = READERS.get(suffix) or (_plain if file_kind(path) == TEXT else partial(_records, text_field=text_field))
    found = False
    for source in read(path, name):
        source = source._replace(text=clean_text(source.text)[0], title=clean_text(source.title)[0])
        if source.text.strip():
            found = True
            yield source
    if not found:
        raise DataError("no text in it" + (": its pages are pictures (scanned)?" if suffix == ".pdf" else ""))


def name_as_title(name: str) -> str:
    """The name of a file as a title: without its folders and its ending, words parted by spaces."""
    return " ".join(re.split(r"[\s_-]+", Path(name).stem)).strip()


def is_read(path: Path) -> bool:
    """Whether a file has the name of a kind that is read."""
    return path.suffix.lower() in READERS or named_kind(path) is not None


def _plain(path: Path, name: str) -> Iterator[Source]:
    with opened(path) as file:
        yield _of_lines(name, "".join(decoded(parts(file), name)))


def _of_lines(name: str, text: str) -> Source:
    """A document of lines; the first heading of Markdown, or the file's name, is its title."""
    heading = re.search(r"^#+\s+(.+)$", text, re.MULTILINE) if name.lower().endswith(".md") else None
    begins = (0, *(match.end() for match in re.finditer("\n", text)))
    return Source(name, heading[1].strip() if heading else name_as_title(name), text, "line", begins)


def _records(path: Path, name: str, *, text_field: str) -> Iterator[Source]:
    for record in read_records(path):
        id = identifier(record.values.get(ID)) or record.location.removeprefix(f"{path}:")
        title = record.values.get("title")
        text = string_field(record, text_field)
        yield Source(f"{name}:{written(id)}", title if isinstance(title, str) else "", text)


SKIPPED = {"script", "style", "template", "noscript", "svg"}
INLINE = re.compile(
    "a|abbr|b|bdi|bdo|big|cite|code|dfn|em|font|i|kbd|mark|q|s|samp|small|span|strong|su[bp]|tt|u|var|wbr"
)


class _Text(HTMLParser):
    """The text of a page without its tags; ``pre`` keeps its lines, elsewhere white space is one space."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.title, self.text = "", ""
        self._pieces: list[str] = []
        self._skipped: list[str] = []
        self._inside: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in SKIPPED:
            self._skipped.append(tag)
        self._inside |= {tag} & {"title", "pre"}
        self._pieces.append(_between(tag))

    def handle_endtag(self, tag: str) -> None:
        if self._skipped and tag == self._skipped[-1]:
            self._skipped.pop()
        self._inside -= {tag}
        self._pieces.append(_between(tag))

    def handle_data(self, data: str) -> None:
        if self._skipped:
            return
        if "title" in self._inside:
            self.title += data
        else:
            self._pieces.append(data if "pre" in self._inside else re.sub(r"\s+", " ", data))

    def close(self) -> None:
        super().close()
        joined = re.sub(r"[ \t]*\n[ \t]*", "\n", "".join(self._pieces))
        self.text = re.sub(r"[ \t]{2,}", " ", re.sub(r"\n{3,}", "\n\n", joined)).strip()


def _between(tag: str) -> str:
    """The white space that a tag stands for."""
    if INLINE.fullmatch(tag):
        return ""
    return " " if tag in ("td", "th") else "\n"


CHARSET = re.compile(rb"<meta[^>]+charset=[\"']?([\w-]+)", re.IGNORECASE)


def _html(path: Path, name: str) -> Iterator[Source]:
    content = path.read_bytes()
    named = CHARSET.search(content[:2048])
    try:
        text = content.decode(named[1].decode() if named else "utf-8-sig")
    except (UnicodeDecodeError, LookupError):
        text = content.decode("cp1252", "replace")  # what browsers take a page for that says nothing else
    page = _Text()
    page.feed(text)
    page.close()
    yield Source(name, " ".join(page.title.split()) or name_as_title(name), page.text)


W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
TITLE = "{http://purl.org/dc/elements/1.1/}title"
WHITE = {f"{W}tab": "\t", f"{W}br": "\n", f"{W}cr": "\n"}
LARGEST = 2**28  # bytes of a docx's text as it is unpacked


def _docx(path: Path, name: str) -> Iterator[Source]:
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo("word/document.xml").file_size > LARGEST:
                raise DataError(f"its text is over {LARGEST:,} bytes")
            body = ElementTree.fromstring(archive.read("word/document.xml"))
            about = archive.read("docProps/core.xml") if "docProps/core.xml" in archive.namelist() else b"<none/>"
        title = ElementTree.fromstring(about).findtext(TITLE)
    except (OSError, ValueError, KeyError, RuntimeError, zipfile.BadZipFile, ElementTree.ParseError) as error:
        raise DataError(f"not a readable docx file ({error})") from error
    lines = [
        "".join(part.text or "" if part.tag == f"{W}t" else WHITE.get(part.tag, "") for part in paragraph.iter())
        for paragraph in body.iter(f"{W}p")
    ]
    yield Source(name, title or name_as_title(name), "\n".join(lines))


def _pdf(path: Path, name: str) -> Iterator[Source]:
    pypdf = require("pypdf", extra="search")
    logging.getLogger("pypdf").setLevel(logging.ERROR)  # it mends much, and says so
    try:
        reader = pypdf.PdfReader(path)
        pages = [page.extract_text() for page in reader.pages]
        title = (reader.metadata and reader.metadata.title) or name_as_title(name)
    except Exception as error:  # damaged and encrypted files fail in many ways
        raise DataError(f"not a readable pdf file ({str(error) or type(error).__name__})") from error
    begins, text = [], ""
    for page in pages:
        begins.append(len(text))
        text += page + "\n\n"
    yield Source(name, str(title), text, "page", tuple(begins))


READERS: dict[str, Callable[[Path, str], Iterator[Source]]] = {
    ".html": _html,
    ".htm": _html,
    ".xhtml": _html,
    ".docx": _docx,
    ".pdf": _pdf,
}
