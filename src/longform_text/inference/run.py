"""Predictions and embeddings of whole collections, written to a file or kept: the functions behind ``longform predict``
and ``longform embed``. Documents are streamed in order, in constant memory beside what is kept, and an interrupted run
is resumed: the same settings, model and names of sources, and the same documents as far as they were used.
"""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from longform.choices import STANDARD_OUTPUT
from longform.conversion.local import local_source
from longform.digests import content_key
from longform.errors import ConfigurationError, DataError, InputError
from longform_text.data.given import InMemory, Source, source_of
from longform_text.data.progress import hidden
from longform_text.data.text import Document, ReadReport, count_documents, read_documents
from longform_text.inference.chunks import check_weight, title_of
from longform_text.inference.classifiers import check_threshold, of_source
from longform_text.inference.kept_fields import kept_fields
from longform_text.inference.parts.run import run_parts
from longform_text.inference.prepared import Made, Prepared, Results, prepare_embedding, prepare_prediction
from longform_text.inference.resumable import DirectOutput, ResumableOutput, place_of_output, print_records
from longform_text.inference.settings import InferenceResult, InferenceSettings, in_parts, look_at


class Waiting(NamedTuple):
    """A document that was read, and has no result yet: its id, its key, and the fields that its records keep."""

    document: str
    key: str
    kept: dict[str, Any]


Output = ResumableOutput | DirectOutput


def predict(
    model: str | Path,
    sources: Any,
    output: str | Path | None = None,
    settings: InferenceSettings | None = None,
    *,
    threshold: float = 0.5,
    **options: Any,
) -> InferenceResult:
    """Label the documents of ``sources`` with a fine-tuned model.

    ``sources``: names of files (see ``read_documents``), or texts in memory: a list, an iterator, a column, rows or a
    table with ``text_field``. ``output``: jsonl, parquet, "-" (standard output), None to keep the records, or a folder
    (a name without suffix) of parquet parts, which is made of files alone (``longform_text.inference.parts.run``).
    ``options``: fields of the settings by name, such as ``text_field`` and ``pair_field``.

    A record has ``id``, ``label``, ``score`` and ``scores`` (a probability for each label); a multi-label model's has
    ``labels`` (those of at least ``threshold``) and ``scores``; a regression's ``score`` (one value) or ``scores``;
    all have ``tokens`` and ``truncated`` (tokens cut off, of what was read). Raises the errors of ``longform.errors``.
    """
    settings, source = replace(settings or InferenceSettings(), **options), source_of(sources)
    check_threshold(threshold)
    if output is not None and in_parts(output):
        look_at(source, output, settings, of_source(model)._asdict())
        prepare = partial(prepare_prediction, settings=settings, threshold=threshold)
        return run_parts(prepare, model, source, output, settings)
    with _place(output, model, source, settings) as place:
        look_at(source, output, settings, of_source(model)._asdict())
        prepared = prepare_prediction(model, settings, threshold, in_memory=output is None)
        return _run(prepared, model, source, place)


def embed(
    model: str | Path,
    sources: Any,
    output: str | Path | None = None,
    settings: InferenceSettings | None = None,
    *,
    pooling: str | None = None,
    normalise: bool | None = None,
    prompt_name: str | None = None,
    prompt: str | None = None,
    truncate_dim: int | None = None,
    chunk_tokens: int | None = None,
    boundaries: str = "tokens",
    document_weight: float = 0.0,
    title_field: str | None = None,
    **options: Any,
) -> InferenceResult:
    """Embed the documents of ``sources``; ``output``: jsonl, parquet, a folder, "-" (standard output), None to keep the
    vectors.

    ``sources``, ``output`` and ``options`` are those of ``predict``. A record has ``id``, ``embedding`` (D values
    of ``vector_dtype``), ``tokens`` and ``truncated`` (tokens cut off).
    ``pooling``, ``normalise``, prompts and ``truncate_dim`` as in ``Encoder.from_pretrained``.

    With ``chunk_tokens`` there is a record for every chunk of a document, which is read as a whole whatever its length:
    ``id``, ``chunk`` (0, 1, ...), ``start`` and ``end`` (characters), ``embedding`` and ``tokens``; ``boundaries``,
    ``document_weight``, ``title_field`` and ``settings.overlap`` as in ``encode_chunks``. Raises the errors of
    ``longform.errors``.
    """
    settings, source = replace(settings or InferenceSettings(), **options), source_of(sources)
    model = local_source(model)
    if chunk_tokens is not None and settings.strategy != "whole":
        raise ConfigurationError(
            f'chunk_tokens={chunk_tokens} gives a vector a chunk, strategy="{settings.strategy}" one of them all: '
            "choose one of the two"
        )
    check_weight(document_weight)
    if chunk_tokens is None and (document_weight or title_field is not None):
        raise ConfigurationError("document_weight and title_field go with chunks: give chunk_tokens")
    how: dict[str, Any] = {
        "pooling": pooling,
        "normalise": normalise,
        "prompt_name": prompt_name,
        "prompt": prompt,
        "truncate_dim": truncate_dim,
    }
    chunked = {
        "chunk_tokens": chunk_tokens,
        "boundaries": boundaries,
        "document_weight": document_weight,
        "title_field": title_field,
    }
    if output is not None and in_parts(output):
        look_at(source, output, settings, {"title_field": title_field})
        prepare = partial(prepare_embedding, settings=settings, how=how, chunked=chunked)
        return run_parts(prepare, model, source, output, settings)
    with _place(output, model, source, settings) as place:
        look_at(source, output, settings, {"title_field": title_field})
        return _run(prepare_embedding(model, settings, how, chunked), model, source, place)


@contextlib.contextmanager
def _place(
    output: str | Path | None, model: str | Path, source: Source, settings: InferenceSettings
) -> Generator[Path | None]:
    """Place that this run alone writes, None where the results stay in memory."""
    if settings.engine != "local" or settings.on_error != "fail":
        raise ConfigurationError(
            f"engine={settings.engine} and on_error={settings.on_error} are of an output in parts: give a folder, "
            f"a name without suffix, as output, not {str(output)!r}"
        )
    if output is None:
        yield None
        return
    inputs = (model, *(() if isinstance(source, InMemory) else source))
    with place_of_output(output, inputs=inputs, restart=settings.restart) as place:
        yield place


def _opened(place: Path, identity: Callable[[], dict[str, Any]], settings: InferenceSettings) -> Output:
    if str(place) == STANDARD_OUTPUT:
        return DirectOutput(print_records)
    return ResumableOutput(place, identity(), vector_dtype=settings.vector_dtype, restart=settings.restart)


def _run(prepared: Prepared, model: str | Path, source: Source, output: Path | None) -> InferenceResult:
    """Write the records of each document."""
    settings, report = prepared.settings, ReadReport()
    documents = read_documents(source, **prepared.reading, report=report, pass_over=True)
    named = [str(source)] if isinstance(source, InMemory) else list(map(str, source))
    kept: list[dict[str, Any]] = []
    if output is None:
        result: Output = DirectOutput(kept.extend)
    else:
        result = _opened(output, lambda: prepared.identity(model) | {"sources": named}, settings)
    started, resumed, tokens_now = time.perf_counter(), result.done, 0
    total = count_documents(source) if settings.progress else None
    waiting = _waiting(documents, prepared.keep, settings.text_field, prepared.about.get("title_field"))
    try:
        _skip_done(waiting, result)
        bar = tqdm(total=total, initial=resumed, unit=" documents", disable=hidden(settings.progress))
        for one, made in _paired(prepared.results, waiting, bar):
            records = prepared.records(one.document, one.kept, made)
            tokens_now += sum(record["tokens"] for record in records)
            result.append(records, one.key)
        seconds = time.perf_counter() - started
        totals = result.totals()
        result.finish()
    finally:
        result.close()
    return InferenceResult(
        None if output is None else str(output),
        **asdict(report),
        **totals,
        resumed=resumed,
        seconds=seconds,
        tokens_per_second=tokens_now / max(seconds, 1e-9),
        results=kept if output is None else None,
    )


def _waiting(
    documents: Iterator[Document], keep: Mapping[str, str], text_field: str | None, title_field: str | None
) -> Iterator[tuple[Document, Waiting]]:
    """Each document with what its records are made of, beside the model's result."""
    for document in documents:
        kept = kept_fields(document, keep, text_field=text_field)
        titles = [] if title_field is None else [title_of(document, title_field)]
        parts = (document.id, document.text, document.pair, *([kept] if kept else []), *titles)
        yield document, Waiting(document.id, content_key(*parts), kept)


def _paired(
    results: Results, documents: Iterator[tuple[Document, Waiting]], bar: tqdm
) -> Iterator[tuple[Waiting, Made]]:
    """Results of each document; a model's error names the documents that it may be of.

    ``bar`` counts documents that are computed: they are given out in order, some much later.
    """
    waiting: deque[Waiting] = deque()  # a batch and more

    def remembered() -> Iterator[Document]:
        for document, one in documents:
            waiting.append(one)
            yield document

    try:
        with bar:
            for made in results(remembered(), bar.update):
                yield waiting.popleft(), made
    except (RuntimeError, IndexError) as error:
        if not waiting:
            raise
        raise InputError(
            f"one of the {len(waiting)} documents from {waiting[0].document} to {waiting[-1].document} failed: "
            f"{str(error).strip().splitlines()[0]}; all before them are kept, and a new start goes on there"
        ) from error


def _skip_done(documents: Iterator[tuple[Document, Waiting]], result: Output) -> None:
    """Read past the documents that an interrupted run has written; raises DataError at the first that is another now.

    They are compared here, where they are read anyway, and standard input can be gone on with. What comes after them
    may have changed or grown: it was not used yet.
    """
    for place, key in enumerate(result.documents(), start=1):
        document, now = next(documents, (None, None))
        if document is None or now is None or now.key != key:
            found = "missing" if document is None else f"another one ({document.id})"
            raise DataError(
                f"an interrupted run wrote {result.done} documents, but number {place} is {found} in the sources: "
                "they have changed; begin anew with restart=True (--restart)"
            )
