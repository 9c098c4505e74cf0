"""Subject of a run, its model and its texts, as short names by which it is known again."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from longform.digests import content_key, digests
from longform.pretrained.checkpoint_files import model_identity
from longform_text.data.files import ENCODING, files_below
from longform_text.data.records import DATASET_PREFIX
from longform_text.data.text import Document
from longform_text.data.token_store import Corpus, CorpusFiles, CorpusTexts


def subject_identity(model: str, documents: Iterable[Document | str]) -> dict[str, Any]:
    """The model, its weights and the corpus, as JSON has them; ``documents`` can be read more than once."""
    return {**model_identity(model), **corpus_identity(documents)}


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


def _source(source: str) -> Any:
    """The names and keys of its files, where it has any here; of a data set its own name, too."""
    if source.startswith(DATASET_PREFIX):
        return source, _content(Path(source.removeprefix(DATASET_PREFIX).partition(":")[0]))
    return _content(Path(source)) or source


def _content(path: Path) -> dict[str, str]:
    return digests(path, map(Path, files_below(path))) if path.is_dir() else digests(path.parent, [path])
