"""Token classification: texts in words, each with a label, of which the first token of a word says the word's.

Axes: N texts, n tokens, L labels.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
from transformers import DataCollatorForTokenClassification

from longform.errors import DataError, InputError, some
from longform_text.data.given import python_values
from longform_text.data.records import Record, field, records_of
from longform_text.evaluation.token_labels import token_scores
from longform_text.inference import classifiers
from longform_text.training.finetuning.settings import FinetuningSettings
from longform_text.training.finetuning.task import Part
from longform_text.training.labels import SHOWN, split_places
from longform_text.training.students import TOKEN_CLASSIFIER
from longform_text.training.trainer import IGNORED

TOKENS = "token-classification"


class Words(NamedTuple):
    """Texts in words, with a label a word; ``names``: all that there may be, where that is known."""

    texts: list[list[str]]
    labels: list[list[str]]
    names: Sequence[str] | None = None

    def take(self, places: Sequence[int]) -> "Words":
        """Some of them."""
        return Words([self.texts[place] for place in places], [self.labels[place] for place in places], self.names)


def is_in_words(given: Any, text_field: str, label_field: str) -> bool:
    """Whether the first text that is given is a list of words."""
    first = next(_records(given, text_field, label_field), None)
    return first is not None and isinstance(python_values(first.values.get(text_field)), list | tuple)


def _records(given: Any, text_field: str, label_field: str) -> Iterator[Record]:
    if not isinstance(given, tuple):
        return records_of(given)
    return records_of(tuple(each for each in given if each is not None)[:2], text_field, label_field)


def words_of(given: Any, text_field: str, label_field: str) -> Words:
    """Texts in words with their labels, of a file of records, rows, a table or columns in a tuple.

    Raises DataError, with its place, for a text that is no list of words, and for labels that are not as many.
    """
    texts, labels, names = [], [], None
    for record in _records(given, text_field, label_field):
        words, tags = _labelled(record, text_field, label_field)
        names = record.classes.get(label_field, names)
        texts.append([word or " " for word in words])
        labels.append([str(tag) for tag in tags])
    if not any(labels):
        raise DataError("there is no word with a label: nothing to learn from")
    return Words(texts, labels, names)


def _labelled(record: Record, text_field: str, label_field: str) -> tuple[list[str], list[Any]]:
    """The words of a record, and as many labels."""
    words, tags = (python_values(field(record, name)) for name in (text_field, label_field))
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise DataError(f'{record.location}: the field "{text_field}" is {str(words)[:40]!r}, not a list of words')
    if not isinstance(tags, list | tuple) or len(tags) != len(words):
        found = f"{len(tags)} labels" if isinstance(tags, list | tuple) else repr(tags)[:40]
        raise DataError(f'{record.location}: the field "{label_field}" has {found} for {len(words)} words')
    return list(words), list(tags)


class TokenTask:
    """Texts with a label a word."""

    head, name = TOKEN_CLASSIFIER, TOKENS
    metrics = ("f1", "accuracy", "loss")
    config: dict[str, Any] = {}  # noqa: RUF012  read, never written

    def __init__(self, train: Any, validation: Any, settings: FinetuningSettings, fields: dict[str, Any]) -> None:
        self.rate = settings.argument("learning_rate")
        names = fields["text_field"], fields["label_field"]
        self.train = words_of(train, *names)
        if validation is None:
            strata = [""] * len(self.train.texts)
            kept, held = split_places(strata, fraction=settings.validation_fraction, seed=settings.seed)
            self.train, self.validation = self.train.take(kept), self.train.take(held)
        else:
            self.validation = words_of(validation, *names)
        occurring = set(chain.from_iterable(self.train.labels))
        self.labels = list(self.train.names or sorted(occurring, key=lambda name: (name != "O", name)))
        if len(self.labels) < 2:
            raise DataError(f'all words have the label "{self.labels[0]}": a classifier needs two or more')
        if unseen := sorted(set(chain.from_iterable(self.validation.labels)).difference(self.labels)):
            raise DataError(
                f"the validation part: the label {', '.join(map(repr, unseen[:5]))} does not occur in the training "
                f"part, which has {some(self.labels, SHOWN)}"
            )

    def remembered(self, max_length: int, fields: dict[str, Any]) -> classifiers.FineTuning:
        """Record of the fine-tuning for the model's config."""
        return classifiers.FineTuning(TOKENS, "str", max_length, False, **fields)

    def parts(self, tokenizer: Any, max_length: int, *, progress: bool) -> tuple[Part, Part]:
        """Training and validation part."""
        if not tokenizer.is_fast:
            raise DataError(f"{type(tokenizer).__name__} does not say which word a token is of: a fast one does")
        place = {name: number for number, name in enumerate(self.labels)}
        one, other = (token_part(words, place, tokenizer, max_length) for words in (self.train, self.validation))
        return one, other

    def described(self, rows: Sequence[dict[str, Any]]) -> str:
        """In words."""
        words = sum(map(len, self.train.texts))
        return f"{len(self.labels):,} labels of {words:,} words: {some(self.labels, SHOWN)}"

    def collator(self, tokenizer: Any) -> Any:
        """Collator that makes a batch of rows."""
        return DataCollatorForTokenClassification(tokenizer, label_pad_token_id=IGNORED)

    def scores(self, logits: Any, targets: Any) -> dict[str, Any]:
        """Scores of the labels of words; ``logits`` (N, n, L), ``targets`` long (N, n)."""
        asked = targets != IGNORED
        if not np.isfinite(logits[asked]).all():
            raise InputError(
                f"what the model says of the validation part is NaN or infinite: lower learning_rate ({self.rate})"
            )
        names = np.array(self.labels, dtype=object)
        said = [names[row.argmax(axis=-1)[there]].tolist() for row, there in zip(logits, asked, strict=True)]
        true = [names[row[there]].tolist() for row, there in zip(targets, asked, strict=True)]
        return token_scores(said, true)


def token_part(words: Words, place: dict[str, int], tokenizer: Any, max_length: int) -> Part:
    """Rows whose labels stand at the first token of each word; at all other tokens -100."""
    rows, truncated = [], 0
    pairs = zip(words.texts, words.labels, strict=True)
    while some_pairs := list(islice(pairs, 256)):
        texts = [text for text, _ in some_pairs]
        found = tokenizer(texts, is_split_into_words=True, truncation=True, max_length=max_length, verbose=False)
        for number, (text, labels) in enumerate(some_pairs):
            ids = found.word_ids(number)
            first = [word is not None and word != before for before, word in zip([None, *ids], ids, strict=False)]
            targets = [place[labels[word]] if new else IGNORED for word, new in zip(ids, first, strict=True)]
            truncated += max((word for word in ids if word is not None), default=-1) + 1 < len(text)
            row = {name: found[name][number] for name in tokenizer.model_input_names if name in found}
            rows.append({**row, "labels": targets})
    return Part(rows, truncated)
