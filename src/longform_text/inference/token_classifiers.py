"""Token classifiers run over texts: a label a word, and the entities that these mark.

Axes: m words of a text, n tokens, L labels.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from transformers import AutoModelForTokenClassification

from longform.errors import ConfigurationError, DataError
from longform_text.data.batching import group_by_length, padded
from longform_text.data.entities import entities
from longform_text.data.text import Document, Text, usable_texts
from longform_text.inference.classifiers import of_config
from longform_text.inference.loading import load_limited
from longform_text.inference.settings import DEFAULT_BATCH_TOKENS

WORD = re.compile(r"\w+|[^\w\s]")
AT_ONCE = 64  # texts that are tokenised together


class LabelledWords(NamedTuple):
    """``labels`` and their probabilities ``scores`` of the first words of a text, at the characters ``spans`` (m, 2).

    ``tokens``: that the model saw; ``truncated``: words that it did not see.
    """

    labels: list[str]
    scores: list[float]
    spans: list[tuple[int, int]]
    tokens: int
    truncated: int

    def entities(self, text: str) -> list[dict[str, Any]]:
        """Kind, mean probability, text and characters from-to of each, by the names of transformers' pipeline."""
        return [
            {
                "entity_group": kind,
                "score": sum(self.scores[first:last]) / (last - first),
                "word": text[self.spans[first][0] : self.spans[last - 1][1]],
                "start": self.spans[first][0],
                "end": self.spans[last - 1][1],
            }
            for kind, first, last in entities(self.labels)
        ]


@dataclass(eq=False)
class TokenClassifier:
    """A token classifier for use, with its tokenizer. ``limit``: tokens of a text, special ones included."""

    model: Any
    tokenizer: Any
    limit: int

    @classmethod
    def from_pretrained(
        cls, source: str | Path, *, max_length: int | None = None, dtype: str = "float32", device: str = "auto",
        backend: str = "torch", **how: Any,
    ) -> Self:  # fmt: skip
        """A token classifier of a folder or hub name. Raises CheckpointError when its head was never trained.

        ``max_length``: tokens of a text; None: all that the model takes, of which a text needs no more than it has.
        """
        how |= {"dtype": dtype, "device": device, "backend": backend}
        model, tokenizer, limit = load_limited(AutoModelForTokenClassification, source, max_length=max_length, **how)
        if not tokenizer.is_fast:
            raise ConfigurationError(f"{type(tokenizer).__name__} does not say which word a token is of")
        return cls(model, tokenizer, limit)

    @property
    def fine_tuning(self) -> Any:
        """Length and fields that it was fine-tuned with."""
        return of_config(self.model.config)

    def outcomes(
        self,
        texts: Iterable[Text | Sequence[str]],
        *,
        max_tokens_per_batch: int = DEFAULT_BATCH_TOKENS,
        on_long: str = "truncate",
        computed: Callable[[int], None] = lambda count: None,
    ) -> Iterator[LabelledWords]:
        """Labels of the words of each text, in order, streamed; a text is a string, a Document, or a list of words.

        Raises DataError for a longer text under ``on_long="error"``, and for a pair.
        """
        stream = iter(texts)
        while some := list(islice(stream, AT_ONCE)):
            found = self._labelled([_in_words(text) for text in some], max_tokens_per_batch)
            for text, each in zip(some, found, strict=True):
                if each.truncated and on_long == "error":
                    name = text.id if isinstance(text, Document) else str(text)[:40]
                    raise DataError(f"{name}: {each.truncated:,} words are beyond the limit of {self.limit:,} tokens")
                yield each
            computed(len(some))

    def _labelled(self, texts: list[tuple[list[str], list[tuple[int, int]]]], most: int) -> list[LabelledWords]:
        names = [self.model.config.id2label[number] for number in range(self.model.config.num_labels)]
        encoded = self.tokenizer(
            [words or [" "] for words, _ in texts],
            is_split_into_words=True,
            truncation=True,
            max_length=self.limit,
            verbose=False,
        )
        found: dict[int, LabelledWords] = {}
        for places in group_by_length([len(ids) for ids in encoded["input_ids"]], most):
            chances = self._chances(encoded, places)
            for row, place in enumerate(places):
                ids, (words, spans) = encoded.word_ids(place), texts[place]
                firsts = [at for at, word in enumerate(ids) if word is not None and word != ids[at - 1]][: len(words)]
                best = chances[row, firsts].max(dim=-1)
                labels = [names[number] for number in best.indices.tolist()]
                left = len(words) - len(labels)
                found[place] = LabelledWords(labels, best.values.tolist(), spans[: len(labels)], len(ids), left)
        return [found[place] for place in range(len(texts))]

    def _chances(self, encoded: Any, places: list[int]) -> torch.Tensor:
        """Probabilities (B, n, L) of some texts."""
        batch = {
            name: padded([encoded[name][place] for place in places], value=self._filler(name))[0].to(self.model.device)
            for name in self.tokenizer.model_input_names
            if name in encoded
        }
        with torch.inference_mode():
            return self.model(**batch).logits.float().softmax(dim=-1).cpu()

    def _filler(self, name: str) -> int:
        return (self.tokenizer.pad_token_id or 0) if name == "input_ids" else 0

    def predict(self, texts: Any, **options: Any) -> Any:
        """``entities`` of each text, and of a text in words ``labels`` and ``scores``, a dictionary each; one
        dictionary of one string.
        """
        if isinstance(texts, str):
            return self.predict([texts], **options)[0]
        listed = [each if isinstance(each, list | tuple) else next(iter(usable_texts([each]))) for each in texts]
        return [
            {"labels": found.labels, "scores": found.scores}
            if isinstance(text, list | tuple)
            else {"entities": found.entities(_string(text))}
            for text, found in zip(listed, self.outcomes(listed, **options), strict=True)
        ]


def _string(text: Any) -> str:
    return text.text if isinstance(text, Document) else text


def _in_words(text: Text | Sequence[str]) -> tuple[list[str], list[tuple[int, int]]]:
    """Words of a text, and where they are in it; of words that are given, in these joined by spaces."""
    if isinstance(text, list | tuple) and not isinstance(text, Document):
        words, spans, at = list(text), [], 0
        for word in words:
            spans.append((at, at + len(word)))
            at += len(word) + 1
        return [word or " " for word in words], spans
    if isinstance(text, Document) and text.pair is not None:
        raise DataError(f"{text.id} is a pair of texts; a token classifier reads single ones")
    found = list(WORD.finditer(_string(text)))
    return [match[0] for match in found], [match.span() for match in found]
