"""A corpus as one file of token ids, tokenised once and read through a memory map.

The file holds the documents' content tokens one after the other, without special tokens, so that one cache serves every
length. A cache folder appears whole or not at all.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from tqdm import tqdm

from longform.data.special_tokens import content_ids
from longform.data.storage import atomic_folder, atomic_write
from longform.data.text import STANDARD_INPUT, Document, read_documents
from longform.errors import ConfigurationError, DataError

TOKENS, ENDS, META = "tokens.bin", "document_ends.npy", "corpus.json"
DOCUMENTS_AT_ONCE = 128  # tokenised together
PIECE_BYTES, PIECES = 65_536, 256  # of a file that are looked at to recognise it


@dataclass(frozen=True)
class CorpusFiles:
    """Documents of files, folders or ``hf:`` data sets, read from the beginning each time they are iterated over."""

    sources: tuple[str, ...]
    text_field: str = "text"

    def __iter__(self) -> Iterator[Document]:
        return read_documents(list(self.sources), text_field=self.text_field)

    def read_again(self, purpose: str = "the next pass or after an interruption") -> Self:
        """Itself, for what reads it more than once. Raises ConfigurationError where standard input is a source."""
        if STANDARD_INPUT in self.sources:
            raise ConfigurationError(f'"-" cannot be read again for {purpose}: name a file')
        return self


Corpus = CorpusFiles | Iterable[str | Document]


@dataclass(frozen=True)
class CorpusTexts:
    """The texts of a corpus, of at most ``limit`` documents; those with nothing but white space are left out."""

    corpus: Corpus
    limit: int | None = None

    def __iter__(self) -> Iterator[str]:
        texts = (document if isinstance(document, str) else document.text for document in self.corpus)
        return (text for text in islice(texts, self.limit) if text.strip())


def corpus_key(corpus: Corpus, limit: int | None = None) -> str:
    """A short name for what the corpus holds, in practice another for other documents.

    Files by name, size and up to 256 pieces of 64 KiB spread over them; ``hf:`` data sets by name; texts in memory
    whole. ``limit``: documents that count.
    """
    digest = hashlib.sha256(f"limit {limit}".encode())
    if isinstance(corpus, CorpusFiles):
        digest.update(corpus.text_field.encode())
        for source in corpus.sources:
            path = Path(source)
            for file in sorted(filter(Path.is_file, path.rglob("*"))) if path.is_dir() else [path]:
                _update(digest, file, source)
    else:
        for text in CorpusTexts(corpus, limit):
            encoded = text.encode("utf-8", "surrogatepass")
            digest.update(f"{len(encoded)} ".encode() + encoded)
    return digest.hexdigest()[:16]


def _update(digest: Any, file: Path, source: str) -> None:
    if not file.is_file():
        digest.update(source.encode())
        return
    size = file.stat().st_size
    digest.update(f"{file.name} {size}".encode())
    step = max(PIECE_BYTES, -(-size // PIECES))
    with file.open("rb") as opened:
        for start in range(0, size, step):
            opened.seek(start)
            digest.update(opened.read(PIECE_BYTES))


class TokenStore(NamedTuple):
    """``tokens`` (T,) unsigned integers in a memory map; ``ends`` (documents,): where each document ends in them."""

    tokens: np.ndarray
    ends: np.ndarray

    def lengths(self) -> np.ndarray:
        """Tokens of each document."""
        return np.diff(self.ends, prepend=0)


def token_store(
    corpus: Corpus, tokenizer: Any, folder: Path, *, limit: int | None = None, progress: bool = False
) -> TokenStore:
    """The tokens of the corpus from ``folder``, written there first where it does not exist.

    Raises DataError for an empty corpus, and where the folder's files were cut short.
    """
    if not folder.exists():
        _write(corpus, tokenizer, folder, limit=limit, progress=progress)
    return _open(folder)


def _write(corpus: Corpus, tokenizer: Any, folder: Path, *, limit: int | None, progress: bool) -> None:
    """Tokenise every document into ``folder``; only one part of them is in memory."""
    kind = np.dtype(np.uint16 if len(tokenizer) <= 2**16 else np.uint32)
    ends: list[int] = []
    total = 0
    with atomic_folder(folder) as unfinished:
        with (unfinished / TOKENS).open("wb") as file:
            for ids in tokenized(CorpusTexts(corpus, limit), tokenizer, progress=progress):
                np.asarray(ids, dtype=kind).tofile(file)
                total += len(ids)
                ends.append(total)
            file.flush()
            os.fsync(file.fileno())
        if not total:
            raise DataError("the corpus is empty: it has no document with text in it")
        np.save(unfinished / ENDS, np.asarray(ends, dtype=np.int64))
        with atomic_write(unfinished / META) as meta:
            json.dump({"tokens": total, "documents": len(ends), "dtype": kind.name}, meta)


def tokenized(texts: Iterable[str], tokenizer: Any, *, progress: bool = False) -> Iterator[list[int]]:
    """Content token ids of each text that has any."""
    remaining = iter(texts)
    with tqdm(desc="tokenising", unit=" documents", disable=not progress) as bar:
        while some := list(islice(remaining, DOCUMENTS_AT_ONCE)):
            yield from (ids for ids in content_ids(tokenizer, some) if ids)
            bar.update(len(some))


def _open(folder: Path) -> TokenStore:
    try:
        meta = json.loads((folder / META).read_text(encoding="utf-8"))
        ends = np.load(folder / ENDS, allow_pickle=False)
        tokens = np.memmap(folder / TOKENS, dtype=np.dtype(meta["dtype"]), mode="r")
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f'the token cache "{folder}" cannot be read ({error}): delete it to make it again') from error
    if len(tokens) != meta["tokens"] or len(ends) != meta["documents"]:
        raise DataError(
            f'the token cache "{folder}" has {len(tokens):,} tokens of {meta["tokens"]:,}: delete it to make it again'
        )
    return TokenStore(tokens, ends)
