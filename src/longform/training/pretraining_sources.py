"""The corpus of a pre-training, from files or memory, its tokenizer, and their cache on the disk."""

import copy
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from longform.data.records import DATASET_PREFIX
from longform.data.storage import made_once
from longform.data.text import Document
from longform.data.token_store import Corpus, CorpusFiles, CorpusTexts, TokenStore, token_store
from longform.data.tokenizer_training import TokenizerSettings, train_tokenizer
from longform.runs.digest import content_key
from longform.runs.subject import corpus_key
from longform.training.students import load_tokenizer

Sources = CorpusFiles | str | Path | Sequence[str | Path] | Iterable[str | Document]
Tokenizers = PreTrainedTokenizerBase | TokenizerSettings | str | Path | None


def as_corpus(sources: Sources, text_field: str = "text") -> Corpus:
    """Files, folders and "hf:NAME[:CONFIG]:SPLIT" as CorpusFiles; texts and Documents in memory as they are.

    One string or Path is a source. Of a list, Paths are sources, and so are strings when all of them are "hf:" names
    or files that exist; other strings are texts.
    """
    if isinstance(sources, CorpusFiles):
        return sources.read_again()
    if isinstance(sources, str | Path):
        return CorpusFiles((str(sources),), text_field).read_again()
    if isinstance(sources, Sequence) and sources and all(map(_is_source, sources)):
        return CorpusFiles(tuple(map(str, sources)), text_field).read_again()
    return sources  # ty: ignore[invalid-explicit-return]  what is not named is texts or Documents


def _is_source(item: Any) -> bool:
    if not isinstance(item, str):
        return isinstance(item, Path)
    return item.startswith(DATASET_PREFIX) or os.path.exists(item)  # pathlib raises on a text that is no path


class CorpusReader:
    """One corpus with its tokenizer; ``cache``: folder for trained tokenizers and token files, shared between runs.

    In several processes the main one (``process``) writes the cache while the others wait.
    """

    def __init__(
        self, corpus: Corpus, tokenizer: Tokenizers, cache: Path, *, limit: int | None, process: Any, progress: bool
    ) -> None:
        self.corpus, self.cache, self.limit = corpus, cache, limit
        self.process, self.progress = process, progress and process.is_main_process
        self.key = corpus_key(corpus, limit)
        self.tokenizer = self._opened(tokenizer)
        self.tokenizer_key = tokenizer_key(self.tokenizer)

    def _opened(self, tokenizer: Tokenizers) -> PreTrainedTokenizerBase:
        if isinstance(tokenizer, PreTrainedTokenizerBase):
            return copy.deepcopy(tokenizer)
        if isinstance(tokenizer, str | Path):
            return load_tokenizer(tokenizer)
        chosen = tokenizer or TokenizerSettings()
        folder = self.cache / f"tokenizer-{content_key(self.key, asdict(chosen))}"

        def train(unfinished: Path) -> None:
            trained = train_tokenizer(CorpusTexts(self.corpus, self.limit), chosen, progress=self.progress)
            trained.save_pretrained(unfinished)

        with self.process.main_process_first():
            made_once(folder, train)
        return PreTrainedTokenizerFast.from_pretrained(folder)

    def tokens(self, other: Corpus | None = None) -> TokenStore:
        """The cached tokens of the corpus, or of another one."""
        key = self.key if other is None else corpus_key(other)
        folder = self.cache / f"tokens-{content_key(key, self.tokenizer_key)}"
        corpus, limit = (self.corpus, self.limit) if other is None else (other, None)
        with self.process.main_process_first():
            return token_store(corpus, self.tokenizer, folder, limit=limit, progress=self.progress)


def tokenizer_key(tokenizer: PreTrainedTokenizerBase) -> str:
    """A short name for what the tokenizer does: the same for the same rules and vocabulary."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    rules = json.loads(backend.to_str()) if backend is not None else tokenizer.get_vocab()
    for passing in ("truncation", "padding"):
        rules.pop(passing, None)
    return content_key(rules, tokenizer.all_special_ids)
