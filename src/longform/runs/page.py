"""Blocks of a written page, as Markdown: headings, paragraphs, tables and code."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Heading(NamedTuple):
    """Of a section (level 2) or what is below one (3)."""

    text: str
    level: int = 2


class Code(NamedTuple):
    """Lines to copy, in the shell or another ``language``."""

    text: str
    language: str = "sh"


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


Block = str | Heading | Code | Table  # a string is a paragraph


def facts_table(facts: Mapping[str, Any]) -> Table:
    """Names and values without heads; whole numbers with separators."""
    shown = [[name, f"{value:,}" if isinstance(value, int) else str(value)] for name, value in facts.items()]
    return Table(["", ""], shown, 2)


def markdown(blocks: Iterable[Any]) -> str:
    """Headings, paragraphs, tables and code as Markdown; other blocks are left out."""
    return "\n".join(shown for block in blocks if (shown := _as_markdown(block)))


def _as_markdown(block: Any) -> str:
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
