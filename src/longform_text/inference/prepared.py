"""Models that are loaded, and what is made of documents by them: what ``longform predict`` and ``longform embed`` run,
whichever the engine, in this process or on other machines.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import tee
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from longform.errors import InputError
from longform.pretrained.checkpoint_files import model_identity
from longform_text.data.text import Document, written
from longform_text.inference.chunks import chunk_outcomes
from longform_text.inference.classifiers import Classifier, labels_tokens
from longform_text.inference.encoders import Encoder
from longform_text.inference.kept_fields import kept_names
from longform_text.inference.settings import InferenceSettings, chosen
from longform_text.inference.strategies import Computed, TextModel
from longform_text.inference.token_classifiers import TokenClassifier

READ_AT_LEAST, CHARACTERS_A_TOKEN = 2**20, 16  # of a document, however few tokens are taken of it
LOADING = ("max_length", "dtype", "device", "compile", "backend", "graphs")  # settings that load a model
MAY_CHANGE = (
    "batch_tokens", "device", "compile", "graphs", "restart", "progress", "max_length", "engine", "ray_address",
    "actors", "num_cpus", "num_gpus", "on_error", "part_rows",
)  # fmt: skip  # between an interrupted run and the one that goes on


class Made(NamedTuple):
    """Result of a model for one document: ``values`` (m, F), a row a record, and what else each record says."""

    values: np.ndarray
    facts: list[dict[str, Any]]


Results = Callable[[Iterator[Document], Computed], Iterator[Made]]  # of each document, in order
Formatted = Callable[[np.ndarray], dict[str, Any]]  # a row as a record has it


@dataclass(frozen=True)
class Prepared:
    """A loaded model and how it is run. ``limit``: tokens that it takes; ``settings``: with the fields that it reads.

    ``about``: what, beside the settings, a run must have in common with an interrupted one that it goes on with.
    ``chunked``: a record is a chunk, and documents are read whole.
    """

    results: Results
    format_record: Formatted
    limit: int
    settings: InferenceSettings
    about: dict[str, Any]
    chunked: bool = False

    @property
    def reading(self) -> dict[str, Any]:
        """How documents are read: options of ``read_documents``."""
        return {
            **chosen(self.settings, "text_field", "pair_field", "id_field", "stdin_format"),
            "max_characters": most_characters(self.settings, self.limit, chunked=self.chunked),
        }

    @property
    def keep(self) -> dict[str, str]:
        """The name of each kept field in the output -> its name in the source."""
        return kept_names(self.settings.keep)

    def identity(self, model: str | Path) -> dict[str, Any]:
        """Facts that a run must have in common with the interrupted one that it resumes, beside its documents."""
        settings = {name: value for name, value in asdict(self.settings).items() if name not in MAY_CHANGE}
        return {**settings, **self.about, **model_identity(str(model)), "limit": self.limit}

    def records(self, document: str, kept: dict[str, Any], made: Made) -> list[dict[str, Any]]:
        """The records of the document with the id ``document``. Raises InputError where a value is no number."""
        if not np.isfinite(made.values).all():
            raise InputError(f"document {document}: the model's result is NaN or infinite; nothing is written for it")
        about, pairs = {"id": written(document), **kept}, zip(made.values, made.facts, strict=True)
        return [{**about, **self.format_record(row), **facts} for row, facts in pairs]


def most_characters(settings: InferenceSettings, tokens: int, *, chunked: bool = False) -> int | None:
    """Characters that are read of a document of which ``tokens`` are taken, or all in chunks; None: everything."""
    if settings.max_characters is not None or chunked or settings.strategy == "chunk-average":
        return settings.max_characters
    return max(READ_AT_LEAST, CHARACTERS_A_TOKEN * tokens)


def prepare_prediction(
    model: str | Path, settings: InferenceSettings, threshold: float, *, in_memory: bool = False
) -> Prepared:
    """A classifier, of texts or of their words, loaded; raises what ``Classifier.from_pretrained`` does.

    ``in_memory``: labels have the type that they had in training; in files they are text.
    """
    if labels_tokens(model):
        return _prepare_token_labels(model, settings)
    classifier = Classifier.from_pretrained(model, **chosen(settings, *LOADING))
    fields = classifier.fine_tuning.fields(model, **chosen(settings, "text_field", "pair_field"))
    settings = replace(settings, **fields)
    about = {"command": "predict", "threshold": threshold}
    formatted = classifier.record_format(threshold, classifier.classes_ if in_memory else None)
    return Prepared(_of_documents(classifier, settings), formatted, classifier.limit, settings, about)


def _prepare_token_labels(model: str | Path, settings: InferenceSettings) -> Prepared:
    """Records have the entities of a text."""
    classifier = TokenClassifier.from_pretrained(model, **chosen(settings, *LOADING))
    settings = replace(settings, text_field=settings.text_field or classifier.fine_tuning.text_field or "text")
    options: Any = {"max_tokens_per_batch": settings.batch_tokens, "on_long": settings.on_long}

    def results(documents: Iterator[Document], computed: Computed) -> Iterator[Made]:
        read, again = tee(documents)
        for document, found in zip(again, classifier.outcomes(read, computed=computed, **options), strict=True):
            facts = {"entities": found.entities(document.text), "tokens": found.tokens, "truncated": found.truncated}
            yield Made(np.ones((1, 1), np.float32), [facts])

    about = {"command": "predict", "kind": "token-classification"}
    return Prepared(results, lambda row: {}, classifier.limit, settings, about)


def prepare_embedding(
    model: str | Path, settings: InferenceSettings, how: dict[str, Any], chunked: dict[str, Any]
) -> Prepared:
    """An encoder, loaded; ``how``: options of ``Encoder.from_pretrained``, ``chunked``: those of its chunks."""
    encoder = Encoder.from_pretrained(model, **how, **chosen(settings, *LOADING))
    settings = replace(settings, text_field=settings.text_field or "text")
    about = {
        "command": "embed",
        "pooling": encoder.pooling,
        "normalise": encoder.normalise,
        "prompt": encoder.prompt,
        "truncate_dim": encoder.dimensions,
        **chunked,
    }
    vector = partial(_vector, dtype=settings.vector_dtype)
    if chunked["chunk_tokens"] is None:
        return Prepared(_of_documents(encoder, settings), vector, encoder.limit, settings, about)
    about["strategy"] = "chunks"
    return Prepared(_of_chunks(encoder, settings, **chunked), vector, encoder.limit, settings, about, chunked=True)


def _vector(vector: np.ndarray, dtype: str) -> dict[str, Any]:
    return {"embedding": vector.astype(dtype, copy=False)}


def _of_documents(runner: TextModel, settings: InferenceSettings) -> Results:
    options = chosen(settings, "strategy", "overlap", "on_long") | {"max_tokens_per_batch": settings.batch_tokens}

    def results(documents: Iterator[Document], computed: Computed) -> Iterator[Made]:
        for outcome in runner.run(documents, computed=computed, **options):
            yield Made(outcome.values[None], [{"tokens": outcome.tokens, "truncated": outcome.truncated}])

    return results


def _of_chunks(encoder: Encoder, settings: InferenceSettings, **options: Any) -> Results:
    options |= {"overlap": settings.overlap, "max_tokens_per_batch": settings.batch_tokens}

    def results(documents: Iterator[Document], computed: Computed) -> Iterator[Made]:
        for found in chunk_outcomes(encoder, documents, **options):
            computed(1)
            places = zip(found.spans.tolist(), found.tokens.tolist(), strict=True)
            yield Made(
                found.vectors,
                [
                    {"chunk": number, "start": start, "end": end, "tokens": tokens}
                    for number, ((start, end), tokens) in enumerate(places)
                ],
            )

    return results
