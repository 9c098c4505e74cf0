"""The subject of a measurement, its model and corpus, so that a folder does not mix results of different ones."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from longform.data.text import Document
from longform.data.token_store import CorpusFiles, corpus_key

WEIGHTS = (".safetensors", ".bin")
TOKENIZER = ("tokenizer", "vocab", "merges", "special_tokens", "added_tokens", "sentencepiece", "spiece", "spm")


def subject_identity(model: str, documents: Iterable[Document | str]) -> dict[str, Any]:
    """The model, its weights and the corpus, as JSON has them; ``documents`` can be read more than once."""
    return {**model_identity(model), **corpus_identity(documents)}


def model_identity(model: str) -> dict[str, str | None]:
    """A hub name as it is; of a folder the whole path, and a key of its weights, JSON files and tokenizer."""
    folder = Path(model).expanduser()
    if not folder.is_dir():
        return {"model": model, "weights_key": None}
    files = [
        str(file)
        for file in sorted(folder.iterdir())
        if file.suffix in (*WEIGHTS, ".json") or file.name.startswith(TOKENIZER)
    ]
    return {"model": str(folder.resolve()), "weights_key": corpus_key(CorpusFiles(tuple(files)))}


def corpus_identity(documents: Iterable[Document | str]) -> dict[str, str | None]:
    """A key of what the corpus holds, and the field its texts are in, None for texts in memory."""
    field = documents.text_field if isinstance(documents, CorpusFiles) else None
    return {"corpus_key": corpus_key(documents), "text_field": field}
