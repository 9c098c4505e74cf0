"""Modules of sentence-transformers that weigh tokens in a mean, put before a folder's pooling; idf among them.

Weights of tokens are that package's own WordWeights, so that vectors are the same wherever the folder is loaded; that
a repeated token weighs less is a module of ours (``longform.conversion.sublinear_tf``).
"""

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from longform.errors import ConversionError, require
from longform.pretrained.sentence_folder import SentenceFolder, kind_of, pooling_modes
from longform.pretrained.tokenizers import content_ids

WORD_WEIGHTS, SUBLINEAR_TF, POOLING = "WordWeights", "SublinearTF", "Pooling"
TRANSFORMER = "sentence_transformers.base.modules.transformer.Transformer"


def with_token_weights(
    folder: SentenceFolder | None, tokenizer: Any, weights: np.ndarray, *, width: int
) -> SentenceFolder:
    """The modules of ``folder`` (None: a pooling alone) with ``weights`` (vocabulary,) of token ids in its mean.

    Those that it has already are replaced. ``width``: D of hidden states. Raises ConversionError where the pooling is
    no mean, MissingDependencyError without sentence-transformers.
    """
    names = {number: word for word, number in tokenizer.get_vocab().items()}
    listed = [names.get(number, f"id {number}") for number in range(len(weights))]
    module = _kinds().WordWeights(listed, dict(zip(listed, weights.tolist(), strict=True)))
    return _with_module(with_mean(folder, width, asked="idf"), module)


def with_sublinear_tf(folder: SentenceFolder | None, *, width: int) -> SentenceFolder:
    """Modules of a folder, with SublinearTF before the pooling.

    Raises as ``with_token_weights``.
    """
    folder = with_mean(folder, width, asked="sublinear_tf")
    _kinds()  # sentence-transformers, being imported, asks for the class (auto_tables): its module cannot come first
    from longform.conversion.sublinear_tf import SublinearTF

    return _with_module(folder, SublinearTF())


def with_mean(folder: SentenceFolder | None, width: int, *, asked: str) -> SentenceFolder:
    """The ``folder``, or one of an encoder and its mean (None), whose states have ``width`` D.

    Raises ConversionError, which names the option that is ``asked`` for, where the pooling is no mean.
    """
    if folder is None:
        encoder = {"idx": 0, "name": "0", "path": "", "type": TRANSFORMER}
        return _with_module(SentenceFolder([encoder], "", {}, {}), _kinds().Pooling(width))
    module = next((module for module in folder.modules if kind_of(module) == POOLING), None)
    if module is None:
        there = " -> ".join(map(kind_of, folder.modules))
        raise ConversionError(f"{asked} weights tokens of a mean, and the source has no Pooling (its modules: {there})")
    try:
        modes = pooling_modes(json.loads(folder.files.get(f"{module['path']}/config.json", b"{}")))
    except (ValueError, AttributeError) as error:
        raise ConversionError(f"the configuration of the source's pooling cannot be read: {error}") from error
    if modes != ["mean"]:
        raise ConversionError(
            f"{asked} weights tokens of a mean, and the source pools by {' and '.join(map(str, modes))}: convert it "
            f"without {asked}"
        )
    return folder


def _kinds() -> Any:
    return require("sentence_transformers.sentence_transformer.modules", extra="embed")


def _with_module(folder: SentenceFolder, module: Any) -> SentenceFolder:
    """The folder with a module of sentence-transformers before its pooling, in place of one of its kind."""
    kind = type(module).__name__
    modules = [each for each in folder.modules if kind_of(each) != kind]
    place = [*map(kind_of, modules), POOLING].index(POOLING)
    path = f"{place}_{kind}"
    modules.insert(place, {"idx": 0, "name": "", "path": path, "type": f"{type(module).__module__}.{kind}"})
    with tempfile.TemporaryDirectory(prefix="longform-") as saved:
        module.save(saved)
        files = {f"{path}/{file.name}": file.read_bytes() for file in sorted(Path(saved).iterdir())}
    numbered = [each | {"idx": at, "name": str(at)} for at, each in enumerate(modules)]
    return replace(folder, modules=numbered, files=folder.files | files)


def idf_pooled(
    folder: SentenceFolder | None, tokenizer: Any, texts: Any, *, width: int, vocabulary: int
) -> SentenceFolder:
    """The modules of ``folder`` (None: a pooling alone), with a weight for each token before the pooling.

    ``texts``, in which tokens are counted: strings, all of each. ``width``: D of hidden states; ``vocabulary``: token
    ids of the model. Raises ConversionError without a tokenizer, where the pooling is no mean, and for what are no
    texts.
    """
    if tokenizer is None:
        raise ConversionError("idf counts tokens, and the source has no tokenizer: give it (tokenizer=...)")
    with_mean(folder, width, asked="idf")  # what cannot be is better refused before texts are read
    lower = folder is not None and bool(folder.encoder_options.get("do_lower_case"))
    size = max(vocabulary, 1 + max(tokenizer.get_vocab().values()))
    counted = (text.lower() if lower else text for text in _strings(texts))
    return with_token_weights(folder, tokenizer, idf(counted, tokenizer, size), width=width)


def _strings(texts: Any) -> Iterator[str]:
    """``texts`` one by one. Raises ConversionError where there are none, and for names of files."""
    text, count = None, 0
    for count, text in enumerate([] if isinstance(texts, str) else texts, start=1):
        if not isinstance(text, str) or (count == 1 and os.path.exists(text)):
            break
        yield text
    else:
        if count:
            return
    raise ConversionError(
        f"idf={texts if isinstance(texts, str) else text!r}: give the texts themselves, at least one; those of files "
        "are read by longform_text.data.text.read_documents(files), each as .text"
    )


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
