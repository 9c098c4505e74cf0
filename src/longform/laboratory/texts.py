"""Labelled texts as a task: a WordPiece vocabulary is learned from the training part, longer texts are cut."""

from pathlib import Path
from typing import Any

import numpy as np

from longform.data.batching import tokenize
from longform.data.tokenizer_training import TokenizerSettings, train_tokenizer
from longform.laboratory.sequences import LabelledSequences, SequenceTask
from longform.training.labels import SINGLE, Examples, LabelScheme, check_examples, learn_scheme, read_examples, split


def text_task(
    source: str | Path | Examples, *, text_field: str = "text", label_field: str = "label", length: int,
    vocabulary: int, seed: int = 0, test_fraction: float = 0.2, validation_fraction: float = 0.1,
) -> SequenceTask:  # fmt: skip
    """A task of the texts of ``source`` (Examples, or a .parquet, .jsonl or .csv file), split by ``seed``, stratified.

    ``length``: tokens that are kept of a text, [CLS] and [SEP] included. ``vocabulary``: tokens.
    Raises DataError for labels that are not classes, too few texts, a vocabulary that the texts do not support.
    """
    given = isinstance(source, Examples)
    examples = source if given else read_examples(source, text_field=text_field, label_field=label_field)
    check_examples(examples, where="the data")
    scheme = learn_scheme(examples.labels, SINGLE)
    rest, test = split(examples, scheme, fraction=test_fraction, seed=seed)
    train, validation = split(rest, scheme, fraction=validation_fraction / (1 - test_fraction), seed=seed + 1)
    tokenizer = train_tokenizer(train.texts, TokenizerSettings("wordpiece", vocabulary, lowercase=True))
    assert tokenizer.pad_token_id == 0
    parts = [_sequences(tokenizer, part, scheme, length) for part in (train, validation, test)]
    name = "texts in memory" if given else Path(str(source)).name
    raw = (list(train.texts), list(validation.texts), list(test.texts))
    return SequenceTask(name, *parts, vocabulary=vocabulary, raw=raw)


def _sequences(tokenizer: Any, examples: Examples, scheme: LabelScheme, length: int) -> LabelledSequences:
    encoded = tokenize(list(examples.texts), tokenizer, max_length=length)
    sequences = [np.array(text.input_ids, dtype=np.int32) for text in encoded]
    return LabelledSequences(sequences, np.array(scheme.encode(examples.labels, where="the data")), scheme.names)
