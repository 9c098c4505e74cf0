"""Subject of a run, its model and its texts, as short names by which it is known again."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from longform.data.files import ENCODING, files_below
from longform.data.records import DATASET_PREFIX
from longform.data.text import Document
from longform.data.token_store import Corpus, CorpusFiles, CorpusTexts
from longform.runs.digest import Digest, content_key, file_key

WEIGHTS = (".safetensors", ".bin")
TOKENIZER = ("tokenizer", "vocab", "merges", "special_tokens", "added_tokens", "sentencepiece", "spiece", "spm")
MODULES = "[0-9]_*/*"  # files of a sentence-transformers folder's other modules


def subject_identity(model: str, documents: Iterable[Document | str]) -> dict[str, Any]:
    """The model, its weights and the corpus, as JSON has them; ``documents`` can be read more than once."""
    return {**model_identity(model), **corpus_identity(documents)}


def model_identity(model: str) -> dict[str, str | None]:
    """A hub name as it is; of a folder the whole path, and a key of its weights, JSON files and tokenizer."""
    folder = Path(model).expanduser()
    if not folder.is_dir():
        return {"model": model, "weights_key": None}
    own = (f for f in folder.iterdir() if f.suffix in (*WEIGHTS, ".json") or f.name.startswith(TOKENIZER))
    return {"model": str(folder.resolve()), "weights_key": content_key(_files(folder, [*own, *folder.glob(MODULES)]))}


def corpus_identity(documents: Iterable[Document | str]) -> dict[str, str | None]:
    """A key of what the corpus holds, and the field its texts are in, None for texts in memory."""
    field = documents.text_field if isinstance(documents, CorpusFiles) else None
    return {"corpus_key": corpus_key(documents), "text_field": field}


def corpus_key(corpus: Corpus, limit: int | None = None) -> str:
    """A short name for what the corpus holds: files by every byte, texts in memory whole, a hub's data sets by name.

    ``limit``: documents that count.
    """
    if isinstance(corpus, CorpusFiles):
        return content_key(limit, corpus.text_field, map(_source, corpus.sources), *filter(None, [ENCODING.get()]))
    return content_key(limit, CorpusTexts(corpus, limit))


def model_key(model: nn.Module) -> str:
    """A short name for a model's weights."""
    digest = Digest()
    for name, value in model.state_dict().items():
        content = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
        digest.add((name, str(value.dtype), value.shape, content.data))
    return digest.key


def _source(source: str) -> Any:
    """The names and keys of its files, where it has any here; of a data set its own name, too."""
    if source.startswith(DATASET_PREFIX):
        return source, _content(Path(source.removeprefix(DATASET_PREFIX).partition(":")[0]))
    return _content(Path(source)) or source


def _content(path: Path) -> dict[str, str]:
    return _files(path, map(Path, files_below(path))) if path.is_dir() else _files(path.parent, [path])


def _files(folder: Path, paths: Iterable[Path]) -> dict[str, str]:
    """Files by name inside ``folder``, and their keys."""
    return {path.relative_to(folder).as_posix(): file_key(path) for path in sorted(paths) if path.is_file()}
