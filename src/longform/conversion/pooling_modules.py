"""Modules of sentence-transformers that weigh tokens in a mean, put before a folder's pooling; idf among them.

Weights of tokens are that package's own WordWeights, so that vectors are the same wherever the folder is loaded; that
a repeated token weighs less is a module of ours (``longform.conversion.sublinear_tf``).
"""

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from longform.data.given import source_of
from longform.data.special_tokens import content_ids
from longform.data.text import read_documents
from longform.errors import ConversionError, require
from longform.pretrained.sentence_folder import SentenceFolder, kind_of

MODULES = "sentence_transformers.sentence_transformer.modules"
WORD_WEIGHTS, SUBLINEAR_TF, POOLING = "WordWeights", "SublinearTF", "Pooling"
TRANSFORMER = "sentence_transformers.base.modules.transformer.Transformer"


def with_token_weights(
    folder: SentenceFolder | None, tokenizer: Any, weights: np.ndarray, *, width: int
) -> SentenceFolder:
    """The modules of ``folder`` (None: a pooling alone) with ``weights`` (vocabulary,) of token ids in its mean.

    Those that it has already are replaced. ``width``: D of hidden states. Raises ConversionError where the pooling is
    no mean, MissingDependencyError without sentence-transformers.
    """
    kinds = require(MODULES, extra="embed")
    names = {number: word for word, number in tokenizer.get_vocab().items()}
    listed = [names.get(number, f"id {number}") for number in range(len(weights))]
    module = kinds.WordWeights(listed, dict(zip(listed, weights.tolist(), strict=True)))
    return _inserted(folder, module, width, asked="idf")


def with_sublinear_tf(folder: SentenceFolder | None, *, width: int) -> SentenceFolder:
    """Modules of a folder, with SublinearTF before the pooling."""
    require(MODULES, extra="embed")
    from longform.conversion.sublinear_tf import SublinearTF

    return _inserted(folder, SublinearTF(), width, asked="sublinear_tf")


def before_mean(folder: SentenceFolder | None, width: int, *, asked: str) -> tuple[SentenceFolder, int]:
    """The folder, and the place of its mean among its modules.

    Raises ConversionError, which names the option that is ``asked`` for, where the pooling is no mean.
    """
    kinds = require(MODULES, extra="embed")
    folder = _one_module(kinds.Pooling(width)) if folder is None else folder
    return folder, _place_of_mean(kinds, folder.modules, folder.files, asked)


def _inserted(folder: SentenceFolder | None, module: Any, width: int, *, asked: str) -> SentenceFolder:
    """The folder with ``module`` before its mean, in place of one of its kind."""
    if folder is not None:
        kept = [each for each in folder.modules if kind_of(each) != type(module).__name__]
        folder = replace(folder, modules=kept)
    folder, place = before_mean(folder, width, asked=asked)
    added = _one_module(module, place)
    modules = [*folder.modules[:place], *added.modules[1:], *folder.modules[place:]]
    numbered = [each | {"idx": at, "name": str(at)} for at, each in enumerate(modules)]
    return replace(folder, modules=numbered, files=folder.files | added.files)


def _one_module(module: Any, place: int = 1) -> SentenceFolder:
    """A folder of an encoder and one of sentence-transformers' modules, in the folder that it would call it."""
    kind, path = type(module), f"{place}_{type(module).__name__}"
    with tempfile.TemporaryDirectory(prefix="longform-") as folder:
        module.save(folder)
        files = {f"{path}/{file.name}": file.read_bytes() for file in sorted(Path(folder).iterdir())}
    encoder = {"idx": 0, "name": "0", "path": "", "type": TRANSFORMER}
    modules = [encoder, {"idx": 1, "name": "1", "path": path, "type": f"{kind.__module__}.{kind.__name__}"}]
    return SentenceFolder(modules, "", {}, {}, files)


def _place_of_mean(kinds: Any, modules: list[dict[str, Any]], files: Mapping[str, bytes], asked: str) -> int:
    """Where among ``modules`` the pooling by the mean is."""
    for place, module in enumerate(modules):
        if kind_of(module) == POOLING:
            mode = _pooling_mode(kinds, files.get(f"{module['path']}/config.json", b""))
            if mode == "mean":
                return place
            raise ConversionError(
                f"{asked} weights tokens of a mean, and the source pools by {mode}: convert it without {asked}"
            )
    there = " -> ".join(map(kind_of, modules))
    raise ConversionError(f"{asked} weights tokens of a mean, and the source has no Pooling (its modules: {there})")


def _pooling_mode(kinds: Any, config: bytes) -> Any:
    with tempfile.TemporaryDirectory(prefix="longform-") as folder:
        (Path(folder) / "config.json").write_bytes(config)
        try:
            return kinds.Pooling.load(folder).pooling_mode
        except (ValueError, TypeError, AttributeError) as error:
            raise ConversionError(f"the configuration of the source's pooling cannot be read: {error}") from error


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
