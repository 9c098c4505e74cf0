"""A corpus: texts that can be read again, and the same as a data set of token ids.

The data set, a memory map, holds the content tokens of each document, without special tokens, so that one cache serves
every length. A cache folder appears whole or not at all.
"""

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Self

import numpy as np
from tqdm import tqdm

from longform.errors import ConfigurationError, DataError, require, some
from longform.files import made_once
from longform.pretrained.tokenizers import content_ids
from longform_text.data.given import InMemory, elements, python_values, source_of
from longform_text.data.progress import hidden
from longform_text.data.records import DATASET_PREFIX
from longform_text.data.text import STANDARD_INPUT, Document, look, read_documents, text_of, usable_texts

TOKENS = "tokens.arrow"
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
    """Texts (``data.given``) that can be read again and again: files, a list, a column of a table, a stream.

    ``text_field``: of records, rows and tables. Raises DataError for what holds no texts (``look``),
    ConfigurationError for standard input.
    """
    if isinstance(given, CorpusFiles):
        if passed_over := look(given.sources, given.text_field):
            said = f"{len(passed_over):,} files of no kind that is read are passed over: {some(passed_over, SHOWN)}"
            warnings.warn(said, stacklevel=3)
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


def files_of(*corpora: Any) -> list[CorpusFiles]:
    """Corpora of files among these."""
    return [each for each in corpora if isinstance(each, CorpusFiles)]


def input_paths(inputs: Iterable[Any]) -> Iterator[str | Path]:
    """Paths of ``inputs``, which an output must not be (``longform.files.check_output``).

    ``inputs``: names of models and sources, lists of them, corpora of files; what is in memory is passed over.
    """
    for given in inputs:
        if isinstance(given, CorpusFiles | list):
            yield from input_paths(given.sources if isinstance(given, CorpusFiles) else given)
        elif isinstance(given, str) and given == STANDARD_INPUT:
            yield "/dev/stdin"
        elif isinstance(given, str) and given.startswith(DATASET_PREFIX):
            yield given.removeprefix(DATASET_PREFIX).partition(":")[0]
        elif isinstance(given, str | Path):
            yield given


def tokenized_corpus(
    corpus: Corpus, tokenizer: Any, folder: Path, *, limit: int | None = None, progress: bool = False
) -> Any:
    """The documents' tokens ("input_ids") as a datasets.Dataset, written into ``folder`` first, by one process, where
    it does not exist.

    Raises DataError for an empty corpus, and where the folder's files were cut short.
    """
    texts, datasets = CorpusTexts(corpus, limit), require("datasets", extra="train")
    made_once(folder, lambda unfinished: _write(texts, tokenizer, unfinished, progress=progress))
    try:
        return datasets.Dataset.from_file(str(folder / TOKENS)).with_format("numpy")
    except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
        raise DataError(f'the token cache "{folder}" cannot be read ({error}): delete it to make it again') from error


def _write(texts: Iterable[str], tokenizer: Any, folder: Path, *, progress: bool) -> None:
    """Tokenise every text into ``folder``; only one part of them is in memory."""
    datasets = require("datasets", extra="train")
    writer = require("datasets.arrow_writer", extra="train").ArrowWriter
    features = datasets.Features({"input_ids": datasets.List(datasets.Value("int32"))})
    with writer(features=features, path=str(folder / TOKENS), writer_batch_size=DOCUMENTS_AT_ONCE) as file:
        for ids in tokenized(texts, tokenizer, progress=progress):
            file.write({"input_ids": ids})
        if not file.finalize()[0]:
            raise DataError("the corpus is empty: it has no document with text in it")


def tokenized(texts: Iterable[str], tokenizer: Any, *, progress: bool = False) -> Iterator[list[int]]:
    """Content token ids of each text that has any."""
    remaining = iter(texts)
    with tqdm(desc="tokenising", unit=" documents", disable=hidden(progress)) as bar:
        while some := list(islice(remaining, DOCUMENTS_AT_ONCE)):
            yield from (ids for ids in content_ids(tokenizer, some) if ids)
            bar.update(len(some))


def lengths_of(documents: Any) -> np.ndarray:
    """Tokens of each document of a data set."""
    compute = require("pyarrow.compute", extra="train")
    parts = (rows["input_ids"] for rows in documents.with_format("arrow").iter(1_000))
    return np.concatenate([compute.list_value_length(part).to_numpy(zero_copy_only=False) for part in parts])
