"""Inverse document frequency as weights of tokens: one that few texts have weighs more in a mean."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from longform.conversion.pooling_modules import before_mean, with_token_weights
from longform.conversion.sentence_transformers_folder import SentenceFolder
from longform.data.given import source_of
from longform.data.special_tokens import content_ids
from longform.data.text import read_documents
from longform.errors import ConversionError


def idf_pooled(
    folder: SentenceFolder | None, tokenizer: Any, texts: Any, *, width: int, vocabulary: int
) -> SentenceFolder:
    """The modules of ``folder`` (None: a pooling alone), with a weight for each token before the pooling.

    ``texts``, where tokens are counted: names of files, or texts in memory, all of each. ``width``: D of hidden states;
    ``vocabulary``: token ids of the model. Raises ConversionError without a tokenizer, and where the pooling is no
    mean; DataError for the texts.
    """
    if tokenizer is None:
        raise ConversionError("idf counts tokens, and the source has no tokenizer: give it (tokenizer=...)")
    before_mean(folder, width, asked="idf")  # what cannot be is better refused before texts are read
    lower = folder is not None and bool(folder.encoder_options.get("do_lower_case"))
    size = max(vocabulary, 1 + max(tokenizer.get_vocab().values()))
    documents = (each.text.lower() if lower else each.text for each in read_documents(source_of(texts)))
    return with_token_weights(folder, tokenizer, idf(documents, tokenizer, size), width=width)


def idf(texts: Iterable[str], tokenizer: Any, vocabulary: int) -> np.ndarray:
    """log((2 + N) / (1 + n)) of each token id, float64 (vocabulary,): n of N ``texts`` have it.

    A token that all have weighs next to nothing, and more than nothing: a text of such tokens alone has a vector too.
    Special tokens stand in every text.
    """
    total, having = 0, np.zeros(vocabulary, dtype=np.int64)
    for text in texts:
        (ids,) = content_ids(tokenizer, [text])
        having[np.unique(np.array(ids, dtype=np.int64))] += 1
        total += 1
    having[tokenizer.all_special_ids] = total
    return np.log((2 + total) / (1 + having))
