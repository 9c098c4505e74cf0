"""Labelled texts as a data set, longer ones cut: bytes, or a WordPiece vocabulary learned from the training part."""

from pathlib import Path
from typing import Any

import numpy as np

from longform.errors import DataError
from longform_lab.compare.sequences import LabelledSequences, SequenceTask
from longform_text.data.batching import tokenize
from longform_text.data.tokenizer_training import TokenizerSettings, train_tokenizer
from longform_text.training.labels import SINGLE, Examples, LabelScheme, examples_of, learn_scheme, split

TESTED, VALIDATED = 0.2, 0.1  # shares of the texts
BYTES = 257  # ids of bytes, and padding


def text_task(
    source: str | Path | Examples,
    *,
    text_field: str = "text",
    label_field: str = "label",
    pair_field: str | None = None,
    length: int,
    vocabulary: int | None,
    seed: int = 0,
) -> SequenceTask:
    """A task of the texts of ``source`` (Examples, or a .parquet, .jsonl or .csv file), split by ``seed``, stratified.

    ``length``: tokens that are kept of a text, [CLS] and [SEP] included; of a pair the longer side is cut.
    ``vocabulary``: tokens, or as many as the training part supports if those are fewer; None for bytes, as in Long
    Range Arena.
    Raises DataError for labels that are not classes, too few texts, a vocabulary too small for their characters.
    """
    given = isinstance(source, Examples)
    examples = examples_of(source, text_field=text_field, label_field=label_field, pair_field=pair_field)
    if any(isinstance(label, list) for label in examples.labels):
        raise DataError(f'"{label_field}" holds lists: a comparison takes one class a text')
    scheme = learn_scheme(examples.labels, SINGLE)
    rest, test = split(examples, scheme, fraction=TESTED, seed=seed, otherwise="give more texts")
    share = VALIDATED / (1 - TESTED)
    train, validation = split(rest, scheme, fraction=share, seed=seed + 1, otherwise="give more texts")
    tokenizer = None if vocabulary is None else _tokenizer_of(train, vocabulary)
    parts = [_sequences(tokenizer, part, scheme, length) for part in (train, validation, test)]
    name = "texts in memory" if given else Path(str(source)).name
    ids = BYTES if tokenizer is None else len(tokenizer)
    return SequenceTask(name, *parts, vocabulary=ids, raw=(_words(train), _words(validation), _words(test)))


def _tokenizer_of(train: Examples, vocabulary: int) -> Any:
    corpus = [*train.texts, *(train.pairs or ())]
    tokenizer = train_tokenizer(corpus, TokenizerSettings("wordpiece", vocabulary, lowercase=True), exact=False)
    assert tokenizer.pad_token_id == 0
    return tokenizer


def _words(examples: Examples) -> list[str]:
    """Texts as the baseline reads them, of a pair one after the other."""
    return [given if isinstance(given, str) else " ".join(given) for given in examples.inputs()]


def _sequences(tokenizer: Any, examples: Examples, scheme: LabelScheme, length: int) -> LabelledSequences:
    if tokenizer is None:
        sequences = [np.frombuffer(text.encode()[:length], np.uint8).astype(np.int32) + 1 for text in _words(examples)]
    else:
        encoded = tokenize(examples.inputs(), tokenizer, max_length=length)
        sequences = [np.array(text.input_ids, dtype=np.int32) for text in encoded]
    return LabelledSequences(sequences, np.array(scheme.encode(examples.labels, where="the data")), scheme.names)
