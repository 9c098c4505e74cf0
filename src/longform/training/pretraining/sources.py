"""The corpus of a pre-training, from files or memory, its tokenizer, and their cache on the disk."""

import copy
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from longform.data.storage import made_once
from longform.data.token_store import Corpus, CorpusTexts, TokenStore, token_store
from longform.data.tokenizer_training import TokenizerSettings, train_tokenizer
from longform.inference.weights import load_tokenizer
from longform.runs.digest import content_key
from longform.runs.subject import corpus_key

Tokenizers = PreTrainedTokenizerBase | TokenizerSettings | str | Path | None


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
