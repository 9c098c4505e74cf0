"""A corpus: texts that can be read again, the same as one file of token ids, and blocks of n tokens cut from it.

The file, a memory map, holds the documents' content tokens one after the other, without special tokens, so that one
cache serves every length. A cache folder appears whole or not at all.
"""

import json
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from torch import Tensor
from tqdm import tqdm

from longform.choices import PACKINGS
from longform.data.batching import padded
from longform.data.given import InMemory, elements, python_values, source_of
from longform.data.progress import hidden
from longform.data.special_tokens import SpecialTokens, content_ids
from longform.data.storage import atomic_write, made_once
from longform.data.text import STANDARD_INPUT, Document, look, read_documents, text_of, usable_texts
from longform.errors import ConfigurationError, DataError

TOKENS, ENDS, META = "tokens.bin", "document_ends.npy", "corpus.json"
DOCUMENTS_AT_ONCE = 128  # tokenised together
SHOWN = 5  # names of files in a warning


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


def corpus_of(given: Any, text_field: str = "text") -> Corpus:
    """Texts (``longform.data.given``) that can be read again and again: files, a list, a column of a table, a stream.

    ``text_field``: of records, rows and tables. Raises DataError for what holds no texts (``look``),
    ConfigurationError for standard input.
    """
    if isinstance(given, CorpusFiles):
        if passed_over := look(given.sources, given.text_field):
            said = ", ".join([*passed_over[:SHOWN], *(["..."] if passed_over[SHOWN:] else [])])
            warnings.warn(f"{len(passed_over):,} files of no kind that is read are passed over: {said}", stacklevel=3)
        return given.read_again()
    source = source_of(given)
    if not isinstance(source, InMemory):
        return corpus_of(CorpusFiles(tuple(map(str, source)), text_field))
    texts = python_values(elements(source.given, text_field))
    usable: Any = usable_texts(texts, text_field=text_field)
    return list(usable) if isinstance(texts, list) else texts


@dataclass(frozen=True)
class CorpusTexts:
    """The texts of a corpus, of at most ``limit`` documents; those with nothing but white space are left out."""

    corpus: Corpus
    limit: int | None = None

    def __iter__(self) -> Iterator[str]:
        texts = map(text_of, self.corpus)
        return (text for text in islice(texts, self.limit) if text.strip())


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
    """The tokens of the corpus from ``folder``, written there first, by one process, where it does not exist.

    Raises DataError for an empty corpus, and where the folder's files were cut short.
    """
    texts = CorpusTexts(corpus, limit)
    made_once(folder, lambda unfinished: _write(texts, tokenizer, unfinished, progress=progress))
    return _open(folder)


def _write(texts: Iterable[str], tokenizer: Any, folder: Path, *, progress: bool) -> None:
    """Tokenise every text into ``folder``; only one part of them is in memory."""
    kind = np.dtype(np.uint16 if len(tokenizer) <= 2**16 else np.uint32)
    ends: list[int] = []
    total = 0
    with (folder / TOKENS).open("wb") as file:
        for ids in tokenized(texts, tokenizer, progress=progress):
            np.asarray(ids, dtype=kind).tofile(file)
            total += len(ids)
            ends.append(total)
        file.flush()
        os.fsync(file.fileno())
    if not total:
        raise DataError("the corpus is empty: it has no document with text in it")
    np.save(folder / ENDS, np.asarray(ends, dtype=np.int64))
    with atomic_write(folder / META) as meta:
        json.dump({"tokens": total, "documents": len(ends), "dtype": kind.name}, meta)


def tokenized(texts: Iterable[str], tokenizer: Any, *, progress: bool = False) -> Iterator[list[int]]:
    """Content token ids of each text that has any."""
    remaining = iter(texts)
    with tqdm(desc="tokenising", unit=" documents", disable=hidden(progress)) as bar:
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


FULL, DOCUMENTS = PACKINGS
SEPARATOR = -1  # the place of a token that stands between two documents and in none


class BlockFrame(NamedTuple):
    """The ids of a block that are not text: special tokens at its ends, the separator of documents, padding."""

    special: SpecialTokens
    separator: int | None
    padding: int

    def content(self, length: int) -> int:
        """Content tokens of a block of ``length``. Raises ConfigurationError where there is no room for any."""
        if length <= self.special.total:
            raise ConfigurationError(f"length={length} leaves no room beside {self.special.total} special tokens")
        return length - self.special.total

    def stack(self, contents: Sequence[np.ndarray], length: int) -> tuple[Tensor, Tensor]:
        """Blocks long (B, n) of content tokens, framed, and padded on the right to ``length``; their mask (B, n)."""
        prefix, suffix = self.special
        framed = [np.concatenate((prefix, content, suffix)) for content in contents]
        return padded(framed, value=self.padding, length=length)


class Blocks:
    """Blocks of n tokens cut from ``documents`` of a store (indices), in their order, each found without the others.

    ``packing`` "full": each block is full and may hold several documents, a separator between them (RoBERTa's
    FULL-SENTENCES); "documents": no block holds two documents, and the last one of each is shorter. A remainder that
    does not fill a block is left out, or kept with ``keep_rest``.
    """

    def __init__(
        self,
        store: TokenStore,
        documents: np.ndarray,
        frame: BlockFrame,
        *,
        length: int,
        packing: str = FULL,
        keep_rest: bool = False,
    ) -> None:
        if packing not in PACKINGS:
            raise ConfigurationError(f'packing="{packing}"; it is one of {", ".join(PACKINGS)}')
        self.store, self.documents, self.frame, self.length = store, documents, frame, length
        self.content = frame.content(length)
        self.separate = packing == DOCUMENTS
        self.between = 0 if self.separate or frame.separator is None else 1
        lengths = store.lengths()[documents]
        if self.separate:
            self.edges = np.cumsum(-(-lengths // self.content))  # blocks up to the end of each document
            self.count = int(self.edges[-1]) if len(lengths) else 0
        else:
            self.edges = np.cumsum(lengths + self.between)  # tokens up to the end of each document and its separator
            self.total = int(self.edges[-1]) - self.between if len(lengths) else 0
            self.count = -(-self.total // self.content) if keep_rest else self.total // self.content

    def __len__(self) -> int:
        return self.count

    def contents(self, number: int) -> np.ndarray:
        """The content tokens of one block: int64, at most n less the special ones."""
        places = self.places(number)
        found = self.store.tokens[np.maximum(places, 0)].astype(np.int64)
        return found if self.frame.separator is None else np.where(places < 0, self.frame.separator, found)

    def places(self, number: int) -> np.ndarray:
        """For each content token of one block its place in the store, or SEPARATOR; the same at every length."""
        return self._in_document(number) if self.separate else self._in_stream(number)

    def _in_document(self, number: int) -> np.ndarray:
        which, before = self._containing(number)
        first, end = self._span(which)
        start = first + (number - before) * self.content
        return np.arange(start, min(end, start + self.content))

    def _in_stream(self, number: int) -> np.ndarray:
        start, stop = number * self.content, min(self.total, (number + 1) * self.content)
        which, before = self._containing(start)
        parts = []
        while start < stop:
            first, end = self._span(which)
            inside = np.arange(first + start - before, min(end, first + stop - before))
            parts.append(inside)
            start += len(inside)
            if start < stop and self.between:
                parts.append(np.array([SEPARATOR]))
                start += 1
            before = int(self.edges[which])
            which += 1
        return np.concatenate(parts)

    def _containing(self, number: int) -> tuple[int, int]:
        """The document in which a block or token of the stream lies, and how many come before that document."""
        which = int(np.searchsorted(self.edges, number, side="right"))
        return which, int(self.edges[which - 1]) if which else 0

    def _span(self, which: int) -> tuple[int, int]:
        document = int(self.documents[which])
        return (int(self.store.ends[document - 1]) if document else 0), int(self.store.ends[document])
