"""The corpus of a pre-training with its tokenizer, its blocks of n tokens, its validation set.

The corpus is read once, from files or memory; tokens and tokenizer are cached on the disk.
"""

import copy
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from longform.errors import ConfigurationError, DataError
from longform.files import content_key, made_once
from longform.pretrained.weights import load_tokenizer
from longform_text.data.subject import corpus_key
from longform_text.data.token_store import Corpus, CorpusTexts, TokenStore, token_store
from longform_text.data.tokenizer_training import TokenizerSettings, train_tokenizer
from longform_text.training.pretraining.batches import (
    FIXED,
    Blocks,
    DataCollatorForBlocks,
    parted,
    unigram_loss,
    unigram_shares,
)
from longform_text.training.pretraining.settings import CAUSAL, PretrainingSettings

FEW_DOCUMENTS = 10  # a corpus of fewer: the end of each document is held out, not whole documents
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


class Split(NamedTuple):
    """A corpus split in two: indices of documents in ``store`` to train on, and of held-out ones."""

    store: TokenStore
    train: np.ndarray
    validation: np.ndarray


def split_documents(store: TokenStore, validation_tokens: int) -> Split:
    """Hold out random documents, at most ``validation_tokens`` together and at most a tenth of the corpus.

    They are the same whatever the run's seed. A document that is longer than that is never held out, except the
    shortest one where all are. Of a corpus of few documents the last tenth of each is held out, at most.
    """
    lengths = store.lengths()
    if len(store.ends) < FEW_DOCUMENTS:
        held = np.minimum(lengths // 10, validation_tokens // len(store.ends))
        ends = np.stack([store.ends - held, store.ends], axis=1).ravel()
        return Split(TokenStore(store.tokens, ends), np.arange(0, len(ends), 2), np.arange(1, len(ends), 2))
    order = np.random.default_rng(FIXED).permutation(len(store.ends))
    wanted = min(validation_tokens, len(store.tokens) // 10)
    fitting = order[lengths[order] <= max(wanted, int(lengths.min()))]
    count = max(1, int(np.searchsorted(np.cumsum(lengths[fitting]), wanted, side="right")))
    held = np.sort(fitting[:count])
    return Split(store, np.setdiff1d(order, held), held)


class PretrainingData:
    """``blocks`` to train on, their ``collator``, and the ``validation`` set of a run in ``processes`` processes.

    ``corpus``: a tokenised corpus on the disk. ``validation``: text to measure on; default: a part of the corpus, held
    out. ``unigram_loss``: validation loss, in nats a token, of predicting every token by its frequency alone.
    ``share``: blocks of a step that each process trains on.

    Raises ConfigurationError (sizes, a tokenizer without mask), DataError (a corpus smaller than one step).
    """

    def __init__(
        self,
        corpus: TokenStore,
        tokenizer: Any,
        settings: PretrainingSettings,
        *,
        length: int,
        validation: TokenStore | None = None,
        processes: int = 1,
    ) -> None:
        self.tokenizer, self.length = tokenizer, length
        causal = settings.objective == CAUSAL
        self.collator = DataCollatorForBlocks(tokenizer, length, fraction=settings.mask_fraction, causal=causal)
        self.share = settings.tokens_per_step // (length * processes)
        self.step_tokens = self.share * processes * length
        if not self.share:
            raise ConfigurationError(
                f"tokens_per_step={settings.tokens_per_step} holds no block of length={length} for each of {processes} "
                f"process(es): use {length * processes} or more"
            )
        self.corpus_tokens, self.corpus_documents = len(corpus.tokens), len(corpus.ends)
        if validation is None:
            split = split_documents(corpus, settings.validation_tokens)
            held = split.store, split.validation
        else:
            split = Split(corpus, np.arange(len(corpus.ends)), np.arange(0))
            held = validation, np.arange(len(validation.ends))
        how: Any = {"size": self.collator.content, "packing": settings.packing, "separator": self.collator.separator}
        self.blocks = Blocks(split.store, split.train, **how)
        if len(self.blocks) < self.share * processes:
            tokens = int(split.store.lengths()[split.train].sum())
            raise DataError(
                f"the corpus is smaller than one batch: {tokens:,} tokens to train on give {len(self.blocks)} block(s) "
                f"of length={length}, a step takes {self.share * processes}. Lower tokens_per_step or length, or give "
                "more text"
            )
        self.validation_tokens = int(held[0].lengths()[held[1]].sum())
        fixed = DataCollatorForBlocks(tokenizer, length, causal=causal).fixed(*held, settings.packing)
        if fixed is None:
            raise DataError("no text to measure on: give more documents, or a validation text of their own")
        self.validation = parted(fixed, max(1, settings.tokens_per_forward // length))
        shares = unigram_shares(np.bincount(corpus.tokens, minlength=len(tokenizer)))
        self.unigram_loss = unigram_loss(shares, self.validation)

    def facts(self) -> dict[str, Any]:
        """Facts about the data for the records; tokens without special ones."""
        return {
            "corpus_tokens": self.corpus_tokens,
            "corpus_documents": self.corpus_documents,
            "blocks": len(self.blocks),
            "length": self.length,
            "tokens_per_step": self.step_tokens,
            "validation_tokens": self.validation_tokens,
            "validation_asked_tokens": sum(part.weight for part in self.validation),
            "unigram_loss": self.unigram_loss,
        }
