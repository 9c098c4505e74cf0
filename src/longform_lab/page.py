"""A report as a self-contained HTML page: blocks of text, tables and pictures, put into one template, page.html.

The template escapes whatever it is given, so that nothing from a document becomes markup.
"""

import base64
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from longform.errors import require
from longform.files import write_text
from longform.pretrained.model_card import Heading, Table


class Bullets(NamedTuple):
    """A list of sentences."""

    items: Sequence[str]


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


Block = str | Heading | Bullets | Table | Picture  # a string is a paragraph


def write_page(path: Path, title: str, blocks: Iterable[Block], *, foot: str = "") -> None:
    """Write the page; ``foot``: how it was made. Raises MissingDependencyError without Jinja2."""
    jinja = require("jinja2", extra="train")
    template = files("longform_lab").joinpath("page.html").read_text(encoding="utf-8")
    made = jinja.Environment(autoescape=True, undefined=jinja.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    named = [(type(block).__name__, block) for block in blocks]
    write_text(path, made.from_string(template).render(title=title, blocks=named, foot=foot) + "\n")
