"""Labelled texts as a data set: a WordPiece vocabulary is learned from the training part, longer texts are cut."""

from pathlib import Path
from typing import Any

import numpy as np

from longform.data.batching import tokenize
from longform.data.tokenizer_training import TokenizerSettings, train_tokenizer
from longform.errors import DataError
from longform.training.labels import SINGLE, Examples, LabelScheme, examples_of, learn_scheme, split
from longform_lab.compare.sequences import LabelledSequences, SequenceTask

TESTED, VALIDATED = 0.2, 0.1  # shares of the texts


def text_task(
    source: str | Path | Examples,
    *,
    text_field: str = "text",
    label_field: str = "label",
    pair_field: str | None = None,
    length: int,
    vocabulary: int,
    seed: int = 0,
) -> SequenceTask:
    """A task of the texts of ``source`` (Examples, or a .parquet, .jsonl or .csv file), split by ``seed``, stratified.

    ``length``: tokens that are kept of a text, [CLS] and [SEP] included; of a pair the longer side is cut.
    ``vocabulary``: tokens, or as many as the training part supports if those are fewer.
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
    corpus = [*train.texts, *(train.pairs or ())]
    tokenizer = train_tokenizer(corpus, TokenizerSettings("wordpiece", vocabulary, lowercase=True), exact=False)
    assert tokenizer.pad_token_id == 0
    parts = [_sequences(tokenizer, part, scheme, length) for part in (train, validation, test)]
    name = "texts in memory" if given else Path(str(source)).name
    return SequenceTask(name, *parts, vocabulary=len(tokenizer), raw=(_words(train), _words(validation), _words(test)))


def _words(examples: Examples) -> list[str]:
    """Texts as the baseline reads them, of a pair one after the other."""
    return [given if isinstance(given, str) else " ".join(given) for given in examples.inputs()]


def _sequences(tokenizer: Any, examples: Examples, scheme: LabelScheme, length: int) -> LabelledSequences:
    encoded = tokenize(examples.inputs(), tokenizer, max_length=length)
    sequences = [np.array(text.input_ids, dtype=np.int32) for text in encoded]
    return LabelledSequences(sequences, np.array(scheme.encode(examples.labels, where="the data")), scheme.names)
