"""A report as a self-contained HTML page: blocks of text, tables and pictures, put into one template, page.html.

The template escapes whatever it is given, so that nothing from a document becomes markup. Headings, paragraphs,
tables and code can be written as Markdown too.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from longform.errors import require
from longform.runs.files import write_text


class Heading(NamedTuple):
    """Of a section (level 2) or what is below one (3)."""

    text: str
    level: int = 2


class Bullets(NamedTuple):
    """A list of sentences."""

    items: Sequence[str]


class Code(NamedTuple):
    """Lines to copy, in the shell or another ``language``."""

    text: str
    language: str = "sh"


class Cards(NamedTuple):
    """The numbers that matter most: (name, value, note) each."""

    items: Sequence[tuple[str, str, str]]


class Table(NamedTuple):
    """Heads of the columns, and rows of cells, all as shown; the first ``words`` columns are words, others numbers."""

    heads: list[str]
    rows: list[list[str]]
    words: int = 1

    def markdown(self) -> str:
        """As a document has it."""
        rule = [*["---"] * self.words, *["--:"] * (len(self.heads) - self.words)]
        lines = (" | ".join(cell.replace("|", "\\|") for cell in line) for line in (self.heads, rule, *self.rows))
        return "".join(f"| {line} |\n" for line in lines)


class Picture(NamedTuple):
    """PNG bytes; ``said``: what one sees, for who cannot see it."""

    content: bytes
    said: str

    @classmethod
    def read(cls, path: Path, said: str) -> "Picture":
        """The picture in a file."""
        return cls(path.read_bytes(), said)

    @property
    def source(self) -> str:
        """The picture as an address that holds it."""
        return f"data:image/png;base64,{base64.b64encode(self.content).decode()}"


Block = str | Heading | Bullets | Code | Cards | Table | Picture  # a string is a paragraph


def facts_table(facts: Mapping[str, Any]) -> Table:
    """Names and values without heads; whole numbers with separators."""
    shown = [[name, f"{value:,}" if isinstance(value, int) else str(value)] for name, value in facts.items()]
    return Table(["", ""], shown, 2)


def write_page(path: Path, title: str, blocks: Iterable[Block], *, foot: str = "") -> None:
    """Write the page; ``foot``: how it was made. Raises MissingDependencyError without Jinja2."""
    jinja = require("jinja2", extra="train")
    template = files("longform.runs").joinpath("page.html").read_text(encoding="utf-8")
    made = jinja.Environment(autoescape=True, undefined=jinja.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    named = [(type(block).__name__, block) for block in blocks]
    write_text(path, made.from_string(template).render(title=title, blocks=named, foot=foot) + "\n")


def markdown(blocks: Iterable[Block]) -> str:
    """Headings, paragraphs, tables and code as Markdown; other blocks are left out."""
    return "\n".join(shown for block in blocks if (shown := _as_markdown(block)))


def _as_markdown(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {text}\n"
        case Code(text, language):
            return f"```{language}\n{text}\n```\n"
        case Table():
            return block.markdown()
        case str():
            return f"{block}\n"
        case _:
            return ""
