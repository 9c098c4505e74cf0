"""Blocks of a written page, as Markdown, and the model card of a saved folder."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub import ModelCardData


class Heading(NamedTuple):
    """Heading of a section (level 2) or of what is below one (3)."""

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


LOADING = """from transformers import {auto}

model = {auto}.from_pretrained("this folder", trust_remote_code=True)  # needs longform installed, from its clone"""
SENTENCES = """from sentence_transformers import {loader}

model = {loader}("this folder", trust_remote_code=True)  # needs longform installed, from its clone
{call}"""
CALLS = {  # of sentence-transformers' classes
    "SentenceTransformer": 'vectors = model.encode(["a long document", "another"])',
    "CrossEncoder": 'scores = model.predict([("a question", "a long document"), ("a question", "another")])',
    "SparseEncoder": 'vectors = model.encode(["a long document", "another"])',
    "MultiVectorEncoder": 'vectors = model.encode_document(["a long document", "another"])',
}
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


def is_hub_name(source: str) -> bool:
    """Whether ``source`` is the name of a model on the hub, not that of a folder here."""
    return _HUB_NAME.fullmatch(source) is not None and not Path(source).exists()


def loading(auto: str, loader: str | None = None) -> str:
    """The Python that loads a folder by an Auto class, or by ``loader``, a class of sentence-transformers."""
    if loader not in CALLS:
        return LOADING.format(auto=auto)
    return SENTENCES.format(loader=loader, call=CALLS[loader])


def model_card(
    title: str,
    blocks: Sequence[Block],
    *,
    base: str | None = None,
    tags: Sequence[str] = (),
    library: str = "transformers",
) -> str:
    """The text of ``README.md``; ``base``: the model that it was made from, named to the hub if it is a hub's name."""
    named = base if base and is_hub_name(base) else None
    facts = ModelCardData(base_model=named, library_name=library, tags=["longform", "linformer", *tags])
    return f"---\n{facts.to_yaml()}\n---\n\n{markdown([Heading(title, 1), *blocks])}"


def architecture(model: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a LinformerConfig that people ask for."""
    length, window = model["max_position_embeddings"], model["attention_window"]
    k = model["projected_length"] or -(-length // model["tokens_per_slot"])
    attention = f"projected to k = {k} ({model['projection']}, {model['projection_sharing']})"
    if window is not None:
        attention = "full" if 2 * window >= length else f"{attention}, {window} tokens on each side exact"
    return {
        "layers": model["num_hidden_layers"],
        "hidden size": model["hidden_size"],
        "attention heads": model["num_attention_heads"],
        "feed-forward": model["intermediate_size"],
        "longest text (tokens)": length,
        "attention": attention,
        "normalisation": model["normalization"],
        "vocabulary": model["vocab_size"],
        "dropout": model["hidden_dropout_prob"],
    }
