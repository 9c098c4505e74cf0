"""Files as people have them, one text each: text, title, headings, and what is a line or page in it.

What a kind of file means is the business of a library: PDFium for pdf, turbohtml for html (a parser by the web's rules,
of encodings too), and for the XML of epub and odt, office-oxide for docx, pptx and xlsx, markdown-it-py for Markdown.
docs/lab/folder-search.md has what else was tried.
"""

import email
import email.policy
import io
import json
import posixpath
import re
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from itertools import accumulate, pairwise
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple
from urllib.parse import unquote

from longform.errors import DataError, require
from longform_text.data.files import ENCODING, LOOKED_AT, marked_encoding


class Heading(NamedTuple):
    """A heading at the character ``start``; those of a higher ``level`` are below it."""

    start: int
    level: int
    text: str


class Source(NamedTuple):
    """A document. ``unit``: "line", "page", "slide" or "chapter", by which places in the text are named; "": none.

    ``note``: what of it could not be read, and why.
    """

    id: str
    title: str
    text: str
    unit: str = ""
    headings: tuple[Heading, ...] = ()
    note: str = ""


def _decoded(content: bytes, name: str) -> str:
    """A text of whatever encoding it shows; else UTF-8, and what is none is in the encoding that was named."""
    if marked := marked_encoding(content[:LOOKED_AT]):
        return content.decode(marked).removeprefix("\ufeff")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if named := ENCODING.get():
            return content.decode(named)
        detect = require("turbohtml.detect", extra="search").detect
        guess, line = detect(content[: 2**16]).codec, content.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{name}, line {line}: the byte {content[error.start]:#04x} is not UTF-8: name the encoding of such files, "
            f"as in --encoding {guess.removeprefix('whatwg-')} (which it may be; in Python: longform_text.data.files."
            "ENCODING.set)"
        ) from error


def plain_text(content: bytes, name: str) -> Source:
    return Source("", "", _decoded(content, name), "line")


FRONT = re.compile(r"---[^\S\n]*\n(.*?)\n---[^\S\n]*(?:\n|$)", re.DOTALL)  # YAML before a text in Markdown
FRONT_TITLE = re.compile(r"^title:[^\S\n]*(['\"]?)(.+?)\1[^\S\n]*$", re.MULTILINE)


def _markdown(content: bytes, name: str) -> Source:
    return _of_markdown(_decoded(content, name))


def _of_markdown(text: str) -> Source:
    parser = require("markdown_it", extra="search").MarkdownIt("commonmark").disable("inline")
    text = text.replace("\r\n", "\n")
    front = FRONT.match(text)
    body = "\n" * front[0].count("\n") + text[front.end() :] if front else text  # lines keep their numbers
    begins, tokens = (
        [0, *accumulate(map(len, text.split("\n")), lambda at, length: at + length + 1)],
        parser.parse(body),
    )
    headings = [
        Heading(begins[token.map[0]], int(token.tag[1]), inside.content.strip())
        for token, inside in pairwise(tokens)
        if token.type == "heading_open"
    ]
    headings = [each for each in headings if each.text]
    titled = front and FRONT_TITLE.search(front[1])
    title = titled[2] if titled else headings[0].text if headings else ""
    return Source("", title, text, "line", tuple(headings))


def _notebook(content: bytes, name: str) -> Source:
    try:
        texts = [("".join(cell["source"]), cell["cell_type"]) for cell in json.loads(content)["cells"]]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"not a readable ipynb file ({error})") from error
    source = _of_markdown("\n\n".join(text if kind == "markdown" else f"```\n{text}\n```" for text, kind in texts))
    return source._replace(unit="")


def _mail(content: bytes, name: str) -> Source:
    message: Any = email.message_from_bytes(content, policy=email.policy.default)
    body = message.get_body(("plain", "html"))
    if body is None:
        raise DataError("a mail without text")
    source = (
        _of_html(body.get_content()) if body.get_content_subtype() == "html" else Source("", "", body.get_content())
    )
    return source._replace(title=str(message["subject"] or ""))


XML_ENCODING = re.compile(rb"\s*<\?xml[^>]*?encoding\s*=\s*[\"']([\w.:-]+)")


def _html(content: bytes, name: str) -> Source:
    declared = XML_ENCODING.match(content[:1024])
    try:
        return _of_html(content, declared[1].decode() if declared else None)
    except LookupError:  # an encoding that the web does not know
        return _of_html(content)


LEVELS = {f"h{level}": [str(level)] for level in range(1, 7)}


def _of_html(page: str | bytes, encoding: str | None = None) -> Source:
    turbohtml = require("turbohtml", extra="search")
    tree = turbohtml.parse(page, encoding=encoding, detect_encoding=True, positions=False)
    tree.remove("script, style, template, noscript, svg")
    tree.strip_tags("td > p:only-child, th > p:only-child")
    for part in tree.select("table, thead, tbody, tfoot, tr, caption"):  # rows, not a grid of lines beside each other
        part.tag = "div"
    for cell in tree.select("td, th"):
        cell.tag = "span"
        cell.insert_after(turbohtml.Text(" "))
    title = tree.select_one("title")
    text, found = tree.to_annotated_text(LEVELS, turbohtml.PlainText(layout="strict", bullet=""))
    headings = [Heading(start, int(level), " ".join(text[start:end].split())) for start, end, level in sorted(found)]
    return Source("", " ".join(title.text.split()) if title else "", text, "", tuple(h for h in headings if h.text))


TYPES = "[Content_Types].xml"
TYPES_OF_WORD = (
    '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
    '<Override PartName="/word/document.xml" '
    'ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>'
)


def _office(content: bytes, name: str) -> Source:
    office = require("office_oxide", extra="search")
    kind = Path(name).suffix.lower()[1:]
    try:
        with office.Document.from_bytes(_mended(content) if kind == "docx" else content, kind) as document:
            html, title = document.to_html(), document.to_ir()["metadata"].get("title") or ""
    except (office.OfficeOxideError, zipfile.BadZipFile) as error:
        raise DataError(f"not a readable {kind} file ({error})") from error
    return _of_pages(html.split("<hr />"), title, "slide") if kind == "pptx" else _of_html(html)._replace(title=title)


def _of_pages(pages: Iterable[str | bytes], title: str, unit: str = "") -> Source:
    """One document of several pages of html."""
    text, headings = "", list[Heading]()
    for page in map(_of_html, pages):
        headings += [each._replace(start=each.start + len(text)) for each in page.headings]
        text += f"{page.text}\n\f"
    return Source("", title, text, unit, tuple(headings))


def _mended(content: bytes) -> bytes:
    """A docx with the list of types, which some programs leave out, and Word does without."""
    with zipfile.ZipFile(buffer := io.BytesIO(content), "a") as archive:
        if TYPES not in archive.namelist():
            archive.writestr(TYPES, TYPES_OF_WORD)
    return buffer.getvalue()


LARGEST_ARCHIVE = 2**29  # bytes of all parts


@contextmanager
def _archive(content: bytes, kind: str) -> Generator[Callable[[str], bytes]]:
    """A function that gives a part of an archive by name. Raises DataError, also from what reads the parts."""
    error = require("turbohtml", extra="search").HTMLParseError
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if sum(part.file_size for part in archive.infolist()) > LARGEST_ARCHIVE:
                raise DataError(f"it unpacks to over {LARGEST_ARCHIVE:,} bytes")
            yield archive.read
    except (
        zipfile.BadZipFile,
        zlib.error,
        error,
        UnicodeDecodeError,
        LookupError,
        AttributeError,
        RuntimeError,
    ) as why:
        raise DataError(f"not a readable {kind} file ({why})") from why


def _xml(content: bytes) -> Any:
    return require("turbohtml", extra="search").parse_xml(content.decode("utf-8-sig"))


def _epub(content: bytes, name: str) -> Source:
    with _archive(content, "epub") as part:
        root = _xml(part("META-INF/container.xml")).select_one("rootfile").attrs["full-path"]
        package = _xml(part(root))
        names = {item.attrs["id"]: unquote(item.attrs["href"]) for item in package.select("manifest > item")}
        chapters = [names[item.attrs["idref"]] for item in package.select("spine > itemref")]
        pages = [_page_of_epub(part(posixpath.normpath(posixpath.join(root, "..", each)))) for each in chapters]
        title = " ".join(" ".join(each.text for each in package.select("dc\\:title")[:1]).split())
    return _of_pages(pages, title, "chapter")


def _page_of_epub(content: bytes) -> str | bytes:
    """A page as html: elements that end themselves, as XML has them, are ended."""
    try:
        return _xml(content).html
    except (require("turbohtml", extra="search").HTMLParseError, UnicodeDecodeError):  # no XML, but browsers show it
        return content


TAGS_OF_ODT = {"text\\:p": "p", "table\\:table": "table", "table\\:table-row": "tr", "table\\:table-cell": "td"}


def _odt(content: bytes, name: str) -> Source:
    turbohtml = require("turbohtml", extra="search")
    with _archive(content, "odt") as part:
        tree = _xml(part("content.xml"))
        tree.remove("text\\:tracked-changes")
        body = tree.select_one("office\\:text")
        for selector, tag in TAGS_OF_ODT.items():
            for element in body.select(selector):
                element.tag = tag
        for heading in body.select("text\\:h"):
            heading.tag = f"h{min(int(heading.attrs.get('text:outline-level', '1')), 6)}"  # LibreOffice has ten levels
        for space in body.select("text\\:s, text\\:tab, text\\:line-break"):
            space.insert_after(turbohtml.Text(" "))
        return _of_html(body.html)


ONE_AT_A_TIME = Lock()  # PDFium knows no threads


def _pdf(content: bytes, name: str) -> Source:
    pdfium = require("pypdfium2", extra="search")
    with ONE_AT_A_TIME:
        try:
            document = pdfium.PdfDocument(content)
        except pdfium.PdfiumError as error:
            locked = "password" in str(error)
            raise DataError("it needs a password" if locked else f"not a readable pdf file ({error})") from error
        try:
            pages = [_page(document, number, pdfium) for number in range(len(document))]
            text = "".join(f"{page.text}\n\f" for page in pages)
            begins = [0, *accumulate(len(page.text) + 2 for page in pages)]
            headings = _outline(document, text, begins)
            title = document.get_metadata_value("Title")
        finally:
            document.close()
    pictures = [str(number) for number, page in enumerate(pages, start=1) if page.picture]
    note = f"{len(pictures)} of {len(pages)} pages are pictures without text (scanned): {', '.join(pictures[:10])}"
    return Source("", title, text, "page", headings, note if pictures else "")


class _Page(NamedTuple):
    text: str
    picture: bool  # and nothing else


def _page(document: Any, number: int, pdfium: Any) -> _Page:
    page = document[number]
    try:
        text = page.get_textpage().get_text_bounded()
        pictures = () if text.strip() else page.get_objects([pdfium.raw.FPDF_PAGEOBJ_IMAGE], max_depth=3)
        # PDFium takes a hyphen at the end of a line for one that parts a word, and says so by \x02.
        return _Page(text.replace("\r\n", "\n").replace("\x02", "-\n").replace("\f", " "), any(map(bool, pictures)))
    finally:
        page.close()


def _outline(document: Any, text: str, begins: list[int]) -> tuple[Heading, ...]:
    """The bookmarks of a document; one begins where its title stands on its page, or with the page."""
    found = []
    for mark in document.get_toc():
        title, place = " ".join(mark.get_title().split()), mark.get_dest()
        page = place.get_index() if place else None
        if title and page is not None and page + 1 < len(begins):
            at = text.find(title, begins[page], begins[page + 1])
            found.append(Heading(max(at, begins[page]), mark.level + 1, title))
    return tuple(sorted(found))


READERS: dict[str, Callable[[bytes, str], Source]] = {
    ".html": _html,
    ".htm": _html,
    ".xhtml": _html,
    ".md": _markdown,
    ".markdown": _markdown,
    ".docx": _office,
    ".pptx": _office,
    ".xlsx": _office,
    ".epub": _epub,
    ".odt": _odt,
    ".pdf": _pdf,
    ".eml": _mail,
    ".ipynb": _notebook,
}
