"""Blocks of tokens cut from a corpus, and which of them a language model is asked for (transformers' masks).

Axes: B blocks, n tokens.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import DataCollatorForLanguageModeling

from longform.choices import PACKINGS
from longform.errors import ConfigurationError
from longform.pretrained.tokenizers import special_tokens
from longform_text.data.batching import padded
from longform_text.data.token_store import TokenStore
from longform_text.training.trainer import IGNORED

DOCUMENTS = PACKINGS[1]
FIXED = 20_060_468  # the seed of the validation masks; not a setting, so that losses of different runs compare
STANDARD = 0.15  # of the validation set is asked for


class Blocks(Dataset):
    """Runs of at most ``size`` tokens of ``documents`` (indices) of a store, in order, each found without the others.

    ``packing`` "full": each is full and may hold several documents, ``separator`` between them (RoBERTa's
    FULL-SENTENCES; None: nothing is); "documents": none holds two documents, and the last one of each is shorter. A
    remainder that does not fill a block is left out, or kept with ``keep_rest``.
    """

    def __init__(
        self,
        store: TokenStore,
        documents: np.ndarray,
        *,
        size: int,
        packing: str,
        separator: int | None,
        keep_rest: bool = False,
    ) -> None:
        self.store, self.documents, self.size = store, documents, size
        self.one_document = packing == DOCUMENTS
        self.between = [] if self.one_document or separator is None else [separator]
        self.lengths = store.lengths()[documents]
        # What comes before the end of each document: blocks, or tokens with a separator after each document.
        self.edges = np.cumsum(-(-self.lengths // size) if self.one_document else self.lengths + len(self.between))
        self.total = int(self.edges[-1]) - len(self.between) if len(documents) else 0
        whole = self.total if self.one_document else self.total // size
        self.count = -(-self.total // size) if keep_rest and not self.one_document else whole

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[np.ndarray]:
        return map(self.__getitem__, range(self.count))

    def __getitem__(self, index: int) -> np.ndarray:
        """The tokens of one block: int64, at most ``size``."""
        if self.one_document:
            which = self._containing(index)
            end = int(self.store.ends[self.documents[which]])
            start = end - int(self.lengths[which]) + (index - self._before(which)) * self.size
            return self.store.tokens[start : min(end, start + self.size)].astype(np.int64)
        return np.concatenate(list(self._stream(index * self.size))).astype(np.int64)

    def _stream(self, start: int) -> Iterator[Any]:
        """The runs of tokens and the separators from ``start`` on that make up a block."""
        which, stop = self._containing(start), min(self.total, start + self.size)
        while start < stop:
            end = int(self.store.ends[self.documents[which]])
            first = end - int(self.lengths[which]) + start - self._before(which)
            run = self.store.tokens[first : min(end, first + stop - start)]
            start += len(run)
            yield run
            if start < stop:
                yield self.between
                start += len(self.between)
            which += 1

    def _containing(self, number: int) -> int:
        """The document in which a block, or a token of the stream, lies."""
        return int(np.searchsorted(self.edges, number, side="right"))

    def _before(self, which: int) -> int:
        return int(self.edges[which - 1]) if which else 0


class AskedBlocks(NamedTuple):
    """Blocks that pass through the model together.

    ``input_ids``, ``attention_mask`` long (B, n); ``labels`` long (B, n): the token that is asked for, or -100.
    """

    input_ids: Tensor
    attention_mask: Tensor
    labels: Tensor

    @property
    def weight(self) -> int:
        """Tokens that are asked for."""
        return int((self.labels != IGNORED).sum())


class DataCollatorForBlocks:
    """Blocks of content tokens as rows of ``length`` with their labels; ``causal``: each token is asked for, but the
    first of each document, which nothing of it precedes.

    Else transformers' masks: ``fraction`` of the tokens is asked for, 80 % of these behind the mask token and 10 %
    behind another one. Special tokens are not. Raises ConfigurationError where the tokenizer has no padding or mask
    token, or ``length`` no room for text.
    """

    def __init__(self, tokenizer: Any, length: int, *, fraction: float = STANDARD, causal: bool = False) -> None:
        for name in ("pad_token_id",) if causal else ("mask_token_id", "pad_token_id"):
            if getattr(tokenizer, name) is None:
                raise ConfigurationError(f"the tokenizer has no {name}: pre-training needs it")
        self.special, self.padding = special_tokens(tokenizer), tokenizer.pad_token_id
        self.separator, self.length, self.causal = tokenizer.sep_token_id, length, causal
        self.content = length - self.special.total
        if self.content < 1:
            raise ConfigurationError(f"length={length} leaves no room beside {self.special.total} special tokens")
        self.masks = DataCollatorForLanguageModeling(tokenizer, mlm=not causal, mlm_probability=fraction)

    def __call__(self, contents: Sequence[np.ndarray]) -> dict[str, Tensor]:
        """The batch of some blocks: ``input_ids``, ``attention_mask``, ``labels`` long (B, n)."""
        return self.ask(contents)._asdict()

    def ask(self, contents: Sequence[np.ndarray]) -> AskedBlocks:
        """Blocks together; which tokens are hidden torch's random numbers say."""
        if self.causal:
            return self._framed(contents, [self._next_tokens(content) for content in contents])
        whole = self._framed(contents, contents)
        hidden, labels = self._hide(whole.input_ids)
        return whole._replace(input_ids=hidden, labels=labels)

    def _next_tokens(self, content: np.ndarray) -> np.ndarray:
        labels = np.where(np.append(self.separator, content[:-1]) == self.separator, IGNORED, content)
        if self.special.prefix:  # which the first token of a block follows
            labels[0] = content[0]
        return labels

    def _hide(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Ids long (B, n) with some hidden, and their labels."""
        special = torch.isin(ids, torch.tensor(self.masks.tokenizer.all_special_ids))
        return self.masks.torch_mask_tokens(ids.clone(), special_tokens_mask=special)

    def _framed(self, contents: Sequence[np.ndarray], labels: Sequence[np.ndarray]) -> AskedBlocks:
        """Content tokens between special ones, which are not asked for, and their labels, padded to ``length``."""
        prefix, suffix = self.special
        before, after = (np.full(len(part), IGNORED) for part in (prefix, suffix))
        rows = [np.concatenate((prefix, content, suffix)) for content in contents]
        asked = [np.concatenate((before, wanted, after)) for wanted in labels]
        ids, mask = padded(rows, value=self.padding, length=self.length)
        return AskedBlocks(ids, mask, padded(asked, value=IGNORED, length=self.length)[0])

    def fixed(self, store: TokenStore, documents: np.ndarray, packing: str) -> AskedBlocks | None:
        """Blocks of the documents, with the same tokens of each hidden at every length; None where nothing is asked."""
        lengths = store.lengths()[documents]
        texts = [store.tokens[end - size : end] for end, size in zip(store.ends[documents], lengths, strict=True)]
        own = TokenStore(np.concatenate(texts).astype(np.int64), np.cumsum(lengths))
        if self.causal:
            contents = self._cut(own, packing, self.separator)
            return self.ask(contents) if contents else None
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(FIXED)
            hidden, labels = self._hidden(own)
        shown = self._cut(hidden, packing, self.separator)
        asked = self._cut(labels, packing, None if self.separator is None else IGNORED)
        kept = [number for number, wanted in enumerate(asked) if (wanted != IGNORED).any()]
        return self._framed([shown[i] for i in kept], [asked[i] for i in kept]) if kept else None

    def _cut(self, texts: TokenStore, packing: str, separator: int | None) -> list[np.ndarray]:
        every = np.arange(len(texts.ends))
        return list(Blocks(texts, every, size=self.content, packing=packing, separator=separator, keep_rest=True))

    def _hidden(self, texts: TokenStore) -> Iterator[TokenStore]:
        """The texts with some tokens hidden, and their labels."""
        drawn = [self._hide(torch.from_numpy(text)[None]) for text in np.split(texts.tokens, texts.ends[:-1])]
        return (texts._replace(tokens=torch.cat(each, dim=1)[0].numpy()) for each in zip(*drawn, strict=True))


def parted(blocks: AskedBlocks, at_once: int) -> list[AskedBlocks]:
    """Rows that pass through the model together, ``at_once``."""
    return [AskedBlocks(*each) for each in zip(*(each.split(at_once) for each in blocks), strict=True)]


def unigram_shares(counts: np.ndarray) -> np.ndarray:
    """Probability (V) of each token by how often it occurs, one added to each count."""
    return (counts + 1.0) / (counts.sum() + len(counts))


def unigram_loss(shares: np.ndarray, validation: Sequence[AskedBlocks]) -> float:
    """Nats a token that is asked for of predicting ``shares`` (V) everywhere."""
    labels = np.concatenate([part.labels.numpy().flatten() for part in validation])
    return float(-np.log(shares[labels[labels != IGNORED]]).mean())
