"""Token classification: texts in words, each with a label, of which the first token of a word says the word's.

Axes: N texts, n tokens, L labels.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
from transformers import DataCollatorForTokenClassification

from longform.errors import DataError
from longform_text.data.given import python_values
from longform_text.data.records import Record, field, records_of
from longform_text.evaluation.token_labels import token_scores
from longform_text.training.finetuning.task import Part, TextTask
from longform_text.training.labels import Examples, Labels, LabelScheme
from longform_text.training.students import TOKEN_CLASSIFIER
from longform_text.training.trainer import IGNORED

TOKENS = "token-classification"


def is_in_words(given: Any, text_field: str, label_field: str) -> bool:
    """Whether the first text that is given is a list of words."""
    first = next(_records(given, text_field, label_field), None)
    return first is not None and isinstance(python_values(first.values.get(text_field)), list | tuple)


def _records(given: Any, text_field: str, label_field: str) -> Iterator[Record]:
    return records_of(given[:2] if isinstance(given, tuple) else given, text_field, label_field)


def words_of(
    given: Any, *, text_field: str = "text", label_field: str = "label", pair_field: str | None = None
) -> Examples:
    """Texts in words with a label a word, of a file of records, rows, a table or columns in a tuple.

    Raises DataError, with its place, for a text that is no list of words, and for labels that are not as many.
    """
    texts: list[Any] = []
    labels, names = [], None
    for record in _records(given, text_field, label_field):
        words, tags = _labelled(record, text_field, label_field)
        names = record.classes.get(label_field, names)
        texts.append([word or " " for word in words])
        labels.append([str(tag) for tag in tags])
    if not any(labels):
        raise DataError("there is no word with a label: nothing to learn from")
    return Examples(texts, Labels(labels, names))


def _labelled(record: Record, text_field: str, label_field: str) -> tuple[list[str], list[Any]]:
    """The words of a record, and as many labels."""
    words, tags = (python_values(field(record, name)) for name in (text_field, label_field))
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise DataError(f'{record.location}: the field "{text_field}" is {str(words)[:40]!r}, not a list of words')
    if not isinstance(tags, list | tuple) or len(tags) != len(words):
        found = f"{len(tags)} labels" if isinstance(tags, list | tuple) else repr(tags)[:40]
        raise DataError(f'{record.location}: the field "{label_field}" has {found} for {len(words)} words')
    return list(words), list(tags)


class TokenTask(TextTask):
    """Texts with a label a word."""

    head, measurements = TOKEN_CLASSIFIER, {TOKENS: ("f1", "accuracy", "loss")}
    read = staticmethod(words_of)

    def learn(self, task: str) -> LabelScheme:
        """See TextTask: "O" comes first."""
        occurring = set(chain.from_iterable(self.train.labels))
        known = getattr(self.train.labels, "names", None)
        names = list(known or sorted(occurring, key=lambda name: (name != "O", name)))
        if len(names) < 2:
            raise DataError(f'all words have the label "{names[0]}": a classifier needs two or more')
        return LabelScheme(TOKENS, names)

    def part(self, examples: Examples, tokenizer: Any, max_length: int, *, where: str) -> Part:
        """Rows whose labels stand at the first token of each word; at all other tokens -100."""
        if not tokenizer.is_fast:
            raise DataError(f"{type(tokenizer).__name__} does not say which word a token is of: a fast one does")
        rows, truncated = [], 0
        targets = iter(self.scheme.encode(examples.labels, where=where))
        for texts in self.pieces(examples.texts, where):
            how: Any = {"truncation": True, "max_length": max_length, "verbose": False}
            found = tokenizer(texts, is_split_into_words=True, **how)
            for number, text in enumerate(texts):
                ids, labels = found.word_ids(number), next(targets)
                first = [word is not None and word != before for before, word in zip([None, *ids], ids, strict=False)]
                truncated += max((word for word in ids if word is not None), default=-1) + 1 < len(text)
                row = {name: found[name][number] for name in tokenizer.model_input_names if name in found}
                row["labels"] = [labels[word] if new else IGNORED for word, new in zip(ids, first, strict=True)]
                rows.append(row)
        return Part(rows, truncated)

    def collator(self, tokenizer: Any) -> Any:
        """Collator that makes a batch of rows."""
        return DataCollatorForTokenClassification(tokenizer, label_pad_token_id=IGNORED)

    def scores(self, logits: Any, targets: Any) -> dict[str, Any]:
        """Scores of the labels of words; ``logits`` (N, n, L), ``targets`` long (N, n)."""
        asked = targets != IGNORED
        self.check(logits[asked])
        names = np.array(self.labels, dtype=object)
        said = [names[row.argmax(axis=-1)[there]].tolist() for row, there in zip(logits, asked, strict=True)]
        true = [names[row[there]].tolist() for row, there in zip(targets, asked, strict=True)]
        return token_scores(said, true)
