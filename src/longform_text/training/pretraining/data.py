"""The corpus of a pre-training: its tokenizer, its tokens on the disk, blocks of them, and those to measure on.

Axes: B blocks, n tokens.
"""

import contextlib
import copy
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import PartialState
from datasets import Dataset, are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
from torch import Tensor
from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from longform.choices import PACKINGS
from longform.digests import content_key
from longform.errors import ConfigurationError, DataError
from longform.files import made_once
from longform.pretrained.tokenizers import fit_tokenizer, special_tokens
from longform.pretrained.weights import load_tokenizer
from longform_text.data.batching import padded
from longform_text.data.subject import corpus_key
from longform_text.data.token_store import DOCUMENTS_AT_ONCE, Corpus, CorpusTexts, lengths_of, tokenized_corpus
from longform_text.data.tokenizer_training import TokenizerSettings, train_tokenizer
from longform_text.training.pretraining.settings import CAUSAL, PretrainingSettings
from longform_text.training.trainer import IGNORED

FEW_DOCUMENTS = 10  # a corpus of fewer: the end of each document is held out, not whole documents
FIXED = 20_060_468  # the seed of the validation set and its masks; not a setting, so that losses of runs compare
STANDARD = 0.15  # of the validation set is asked for
Tokenizers = PreTrainedTokenizerBase | TokenizerSettings | str | Path | None
Batch = Mapping[str, Tensor]  # input_ids, attention_mask, labels: long (B, n)


class CorpusReader:
    """One corpus with its tokenizer; ``cache``: folder for trained tokenizers and tokens, shared between runs.

    In several processes the main one (``process``) writes the cache while the others wait.
    """

    def __init__(
        self, corpus: Corpus, tokenizer: Tokenizers, cache: Path, *, limit: int | None, process: Any, progress: bool
    ) -> None:
        self.corpus, self.cache, self.limit = corpus, cache, limit
        self.process, self.progress = process, progress and process.is_main_process
        self.key = corpus_key(corpus, limit)
        self.tokenizer = fit_tokenizer(self._opened(tokenizer), None, name="the corpus")
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        rules = self.tokenizer.get_vocab() if backend is None else backend.to_str()
        self.tokenizer_key = content_key(rules, self.tokenizer.all_special_ids)

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

    def tokens(self, other: Corpus | None = None) -> Dataset:
        """The documents' tokens, of the corpus or of another one, from the cache."""
        key = self.key if other is None else corpus_key(other)
        folder = self.cache / f"tokens-{content_key(key, self.tokenizer_key)}"
        corpus, limit = (self.corpus, self.limit) if other is None else (other, None)
        with self.process.main_process_first():
            return tokenized_corpus(corpus, self.tokenizer, folder, limit=limit, progress=self.progress)


def split_documents(documents: Dataset, validation_tokens: int) -> tuple[Dataset, Dataset]:
    """Hold out random documents, at most ``validation_tokens`` together and at most a tenth of the corpus.

    They are the same whatever the run's seed. A document that is longer than that is never held out, except the
    shortest one where all are. Of a corpus of few documents the last tenth of each is held out, at most.
    """
    lengths = lengths_of(documents)
    if len(lengths) < FEW_DOCUMENTS:
        ends = lengths - np.minimum(lengths // 10, validation_tokens // len(lengths))
        rows = list(zip(documents["input_ids"], ends, strict=True))
        parts = [ids[:end] for ids, end in rows], [ids[end:] for ids, end in rows]
        train, held = (Dataset.from_dict({"input_ids": part}).with_format("numpy") for part in parts)
        return train, held
    order = np.random.default_rng(FIXED).permutation(len(lengths))
    wanted = min(validation_tokens, int(lengths.sum()) // 10)
    fitting = order[lengths[order] <= max(wanted, int(lengths.min()))]
    count = max(1, int(np.searchsorted(np.cumsum(lengths[fitting]), wanted, side="right")))
    held = np.sort(fitting[:count])
    return documents.select(np.setdiff1d(order, held)), documents.select(held)


Frame = tuple[Sequence[int], Sequence[int], int | None]  # before and after a block; between documents (None: nothing)


def blocks_of(documents: Dataset, size: int, *, packing: str, frames: Mapping[str, Frame]) -> Dataset:
    """Blocks of at most ``size`` tokens of ``documents``, in order, on the disk beside documents that are there.

    ``packing`` "full": they may hold several documents, and all are full but one of each thousand documents;
    "documents": none holds two documents. ``frames``: of the columns "input_ids" and "labels"; the latter, where there
    are none, are each token but the first of a document.
    """

    def cut(rows: dict[str, Any]) -> dict[str, list[np.ndarray]]:
        found: dict[str, list[np.ndarray]] = {}
        for name, (before, after, between) in frames.items():
            runs = list(rows[name] if name in rows else map(_after_first, rows["input_ids"]))
            if packing != PACKINGS[1]:
                gap = [] if between is None else [between]
                runs = [np.concatenate([part for ids in runs for part in (gap, ids)][1:]).astype(np.int64)]
            parts = [ids[start : start + size] for ids in runs for start in range(0, len(ids), size)]
            found[name] = [np.concatenate((before, part, after)).astype(np.int32) for part in parts]
        return found

    key = content_key(size, packing, frames, lengths_of(documents))
    how: Any = {"batched": True, "remove_columns": documents.column_names, "new_fingerprint": key}
    with PartialState().main_process_first(), without_bars():
        return documents.map(cut, **how)


@contextlib.contextmanager
def without_bars() -> Generator[None]:
    """Without the bars of ``datasets``."""
    shown = not are_progress_bars_disabled()
    disable_progress_bars()
    try:
        yield
    finally:
        if shown:
            enable_progress_bars()


def _after_first(ids: np.ndarray) -> np.ndarray:
    return np.concatenate(([IGNORED], ids[1:]))[: len(ids)]


class DataCollatorForBlocks(DataCollatorForLanguageModeling):
    """Blocks as rows of ``length``, with their own labels, or with those of transformers' masks.

    Of the latter ``fraction`` of the tokens is asked for, 80 % of these behind the mask token and 10 % behind another
    one; special tokens are not. ``causal``: nothing is hidden. Raises ConfigurationError where the tokenizer has no
    padding or mask token, or ``length`` no room for text.
    """

    def __init__(self, tokenizer: Any, length: int, *, fraction: float = STANDARD, causal: bool = False) -> None:
        for name in ("pad_token_id",) if causal else ("mask_token_id", "pad_token_id"):
            if getattr(tokenizer, name) is None:
                raise ConfigurationError(f"the tokenizer has no {name}: pre-training needs it")
        super().__init__(tokenizer, mlm=not causal, mlm_probability=fraction)
        self.special, self.length = special_tokens(tokenizer), length
        self.size = length - self.special.total
        if self.size < 1:
            raise ConfigurationError(f"length={length} leaves no room beside {self.special.total} special tokens")

    def torch_call(self, examples: list[Any]) -> dict[str, Any]:
        """The batch of some blocks; which tokens are hidden torch's random numbers say."""
        ids, mask = padded(
            [row["input_ids"] for row in examples], value=self.tokenizer.pad_token_id, length=self.length
        )
        if "labels" in examples[0]:
            labels = padded([row["labels"] for row in examples], value=IGNORED, length=self.length)[0]
        else:
            ids, labels = self.hide(ids)
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}

    def hide(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Ids long (B, n) with some hidden, and their labels."""
        special = torch.isin(ids, torch.tensor(self.tokenizer.all_special_ids))
        return self.torch_mask_tokens(ids.clone(), special_tokens_mask=special)

    def hidden(self, documents: Dataset) -> Dataset:
        """Documents with some tokens hidden, always the same, at every length of a block, and their labels."""
        self.generator = torch.Generator().manual_seed(FIXED)
        drawn = [self.hide(ids[None]) for ids in documents.with_format("torch")["input_ids"]]
        self.generator = None
        ids, labels = ([x[0].numpy() for x in each] for each in zip(*drawn, strict=True))
        return Dataset.from_dict({"input_ids": ids, "labels": labels}).with_format("numpy")

    def blocks(self, documents: Dataset, packing: str) -> Dataset:
        """Blocks of documents between special tokens, which are not asked for; with labels where these are known."""
        prefix, suffix = self.special
        separator = self.tokenizer.sep_token_id
        frames: dict[str, Any] = {"input_ids": (prefix, suffix, separator)}
        if "labels" in documents.column_names or not self.mlm:
            between = None if separator is None else IGNORED if self.mlm else separator
            frames["labels"] = ([IGNORED] * len(prefix), [IGNORED] * len(suffix), between)
        return blocks_of(documents, self.size, packing=packing, frames=frames).with_format("torch")


class PretrainingData:
    """``blocks`` to train on, of the documents ``taught``, their ``collator``, and the ``validation`` batches of a run
    in ``processes`` processes.

    ``corpus``: tokenised documents. ``validation``: text to measure on; default: a part of the corpus, held out.
    ``unigram_loss``: validation loss, in nats a token, of predicting every token by its frequency (``shares``) alone.
    ``share``: blocks of a step that each process trains on.

    Raises ConfigurationError (sizes, a tokenizer without mask), DataError (a corpus smaller than one step).
    """

    def __init__(
        self,
        corpus: Dataset,
        tokenizer: Any,
        settings: PretrainingSettings,
        *,
        length: int,
        validation: Dataset | None = None,
        processes: int = 1,
    ) -> None:
        self.tokenizer, self.length, causal = tokenizer, length, settings.objective == CAUSAL
        self.collator = DataCollatorForBlocks(tokenizer, length, fraction=settings.mask_fraction, causal=causal)
        self.share = settings.tokens_per_step // (length * processes)
        if not self.share:
            raise ConfigurationError(
                f"tokens_per_step={settings.tokens_per_step} holds no block of length={length} for each of {processes} "
                f"process(es): use {length * processes} or more"
            )
        if validation is None:
            self.taught, held = split_documents(corpus, settings.validation_tokens)
        else:
            self.taught, held = corpus, validation
        self.blocks = self.collator.blocks(self.taught, settings.packing)
        if len(self.blocks) < self.share * processes:
            raise DataError(
                f"the corpus is smaller than one batch: {lengths_of(self.taught).sum():,} tokens to train on give "
                f"{len(self.blocks)} block(s) of length={length}, a step takes {self.share * processes}. Lower "
                "tokens_per_step or length, or give more text"
            )
        measuring = DataCollatorForBlocks(tokenizer, length, causal=causal)
        rows = list(measuring.blocks(held if causal else measuring.hidden(held), settings.packing))
        rows = [row for row in rows if (row["labels"] != IGNORED).any()]
        if not rows:
            raise DataError("no text to measure on: give more documents, or a validation text of their own")
        at_once = max(1, settings.tokens_per_forward // length)
        self.validation: list[Batch] = [measuring(rows[i : i + at_once]) for i in range(0, len(rows), at_once)]
        counts = sum(
            np.bincount(np.concatenate(list(rows["input_ids"])), minlength=len(tokenizer))
            for rows in corpus.iter(DOCUMENTS_AT_ONCE)
        )
        self.shares = unigram_shares(np.asarray(counts))
        self.unigram_loss = unigram_loss(self.shares, self.validation)
        self.facts = {
            "corpus_tokens": int(np.sum(counts)),
            "corpus_documents": len(corpus),
            "blocks": len(self.blocks),
            "length": length,
            "tokens_per_step": self.share * processes * length,
            "validation_tokens": int(lengths_of(held).sum()),
            "validation_asked_tokens": sum(int((part["labels"] != IGNORED).sum()) for part in self.validation),
            "unigram_loss": self.unigram_loss,
        }


def unigram_shares(counts: np.ndarray) -> np.ndarray:
    """Probability (V) of each token by how often it occurs, one added to each count."""
    return (counts + 1.0) / (counts.sum() + len(counts))


def unigram_loss(shares: np.ndarray, validation: Sequence[Batch]) -> float:
    """Nats a token that is asked for of predicting ``shares`` (V) everywhere."""
    labels = np.concatenate([part["labels"].numpy().flatten() for part in validation])
    return float(-np.log(shares[labels[labels != IGNORED]]).mean())
