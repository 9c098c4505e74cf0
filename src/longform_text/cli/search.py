"""``longform search``: the passages of a folder's documents that answer a question."""

import json
import os
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Any

from longform.choices import INDEX_FOLDER
from longform_text.cli.arguments import add_device, add_options, command_parser

WIDEST = 120


def parser() -> Any:
    """Options of the command."""
    made = command_parser(
        "search",
        "Find the passages that answer a question. The first run indexes the folder, later runs only what changed.",
    )
    places = "folder, or one file: .txt, .md, .html, .pdf, .docx, .pptx, .xlsx, .epub, .odt, .eml, .ipynb, .csv, ..."
    made.add_argument("folder", help=places)
    said = "omit it to ask one question a line in a terminal, elsewhere to update the index only"
    made.add_argument("question", nargs="?", type=str | None, default=None, help=said)
    add_options(
        made,
        ("model", str, "minilm-16k", "folder or hub name of an encoder"),
        ("index", str | None, None, f"folder of the index; default: {INDEX_FOLDER} in the searched folder"),
        ("k", int, 5, "documents to show"),
        ("passages", int, 1, "passages of each document"),
        ("text_field", str, "text", "field with the text of a record"),
        ("chunk_tokens", int, 256, "most tokens of a passage"),
        ("json", bool, False, "print a line of JSON for each passage"),
    )
    add_device(made)
    return made


def run(settings: Any) -> None:
    """Read new files, and print the hits."""
    from longform.errors import ConfigurationError, DataError
    from longform_text.cli.beforehand import check_models
    from longform_text.settings import check_least

    place = Path(settings.folder).expanduser()
    if not place.exists():
        raise DataError(f'"{place}" does not exist')
    check_least(settings, k=1, passages=1, chunk_tokens=1)
    check_models(settings.model)
    from longform_text.search.index import Index

    folder = settings.index or (place if place.is_dir() else place.parent) / INDEX_FOLDER
    index = Index(folder, settings.model, chunk_tokens=settings.chunk_tokens, device=settings.device)
    try:
        index.add(place, text_field=settings.text_field, progress=True)
    except ConfigurationError as error:  # another process is reading the folder, or nothing can be written there
        if not len(index):
            raise
        print(f"longform: {error}; searched is what is ready", file=sys.stderr)
    _print_report(index)
    if settings.question is not None:
        _answer(index, settings.question, settings)
    elif sys.stdin is not None and sys.stdin.isatty():
        for line in _lines():
            _answer(index, line, settings)


def _lines() -> Any:
    """Questions that are typed, until there are no more."""
    print("one question a line; Ctrl-D ends", file=sys.stderr)
    while True:
        print("? ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        if line.strip():
            yield line.strip()


def _answer(index: Any, question: str, settings: Any) -> None:
    hits = index.search(question, settings.k, passages=settings.passages, within=[settings.folder])
    if hits and not any(hit.fits for hit in hits) and not settings.json:
        print("nothing fits well; the nearest:\n")
    for number, hit in enumerate(hits, start=1):
        print(json.dumps(hit._asdict()) if settings.json else _shown(number, hit, index.folder.parent))
    sys.stdout.flush()


def _print_report(index: Any) -> None:
    """Print a line on what was read to standard error, where the answers are not."""
    report = index.report
    for remark in report.remarks:
        print(f"longform: {remark}", file=sys.stderr)
    for name, reason in report.passed_over.items():
        print(f"passed over  {name}: {reason}", file=sys.stderr)
    if report.read or report.removed:
        print(
            f"{report.read:,} files read ({report.tokens:,} tokens, {report.seconds:.1f} seconds), {report.removed:,} "
            f"removed; {len(index):,} passages in {index.folder}",
            file=sys.stderr,
        )


def _shown(number: int, hit: Any, folder: Path) -> str:
    """A hit for a terminal: the question's words are marked, and no control character of a document is printed."""
    from longform_text.search.reading import name_as_title

    terminal = sys.stdout.isatty()
    bold, plain = ("\x1b[1m", "\x1b[22m") if terminal else ("**", "**")
    pieces, at = [], 0
    for start, end in hit.marks:
        pieces += [_printable(hit.passage[at:start]), bold, _printable(hit.passage[start:end]), plain]
        at = end
    text = "".join([*pieces, _printable(hit.passage[at:])])
    width = min(shutil.get_terminal_size().columns, WIDEST)
    title = "" if hit.title in ("", name_as_title(hit.document)) else hit.title
    above = "".join(f"  {_printable(each)}" for each in dict.fromkeys((title, hit.headings)) if each)
    passage = textwrap.fill(text, width, initial_indent="   ", subsequent_indent="   ")
    name = _linked(_printable(hit.document), hit, folder) if terminal else _printable(hit.document)
    return f"{number}. {name}, {hit.place}{above}  ({hit.score:.4f})\n{passage}\n"


def _linked(shown: str, hit: Any, folder: Path) -> str:
    """A name that a terminal opens at the hit's page or line, as far as the program behind it can (OSC 8)."""
    path = Path(os.path.normpath(folder / hit.file))
    unit, _, number = hit.place.partition(" ")
    return f"\x1b]8;;{path.as_uri()}{f'#{unit}={number}' if number.isdigit() else ''}\x1b\\{shown}\x1b]8;;\x1b\\"


def _printable(text: str) -> str:
    return text if text.isprintable() else "".join(each if each.isprintable() else " " for each in text)
