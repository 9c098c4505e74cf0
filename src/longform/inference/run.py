"""Predictions and embeddings of whole collections, written to a file or kept: the functions behind ``longform predict``
and ``longform embed``. Documents are streamed in order, in constant memory beside what is kept, and an interrupted run
is resumed: the same settings, model and names of sources, and the same documents as far as they were used.
"""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from longform.choices import STANDARD_OUTPUT
from longform.conversion.shipped import local_source
from longform.data.counting import count_documents
from longform.data.given import InMemory, Source, source_of
from longform.data.text import Document, ReadReport, read_documents, written
from longform.errors import ConfigurationError, DataError, InputError
from longform.inference.chunks import chunk_outcomes
from longform.inference.classifiers import Classifier, check_threshold
from longform.inference.encoders import Encoder
from longform.inference.kept_fields import kept_fields, kept_names
from longform.inference.memory_output import MemoryOutput
from longform.inference.resumable import ResumableOutput, place_of_output
from longform.inference.standard_output import StandardOutput
from longform.inference.strategies import DEFAULT_BATCH_TOKENS, Computed, TextModel
from longform.inference.together import Said, Team, own_device, together
from longform.runs.digest import content_key
from longform.runs.subject import model_identity
from longform.runs.summary import summary

CHUNKS = "chunks"  # the strategy of a run with a vector a chunk
READ_AT_LEAST, CHARACTERS_A_TOKEN = 2**20, 16  # of a document, however few tokens are taken of it
LOADING = ("max_length", "dtype", "device", "compile", "backend")  # settings that are needed to load the model


class Waiting(NamedTuple):
    """A document that was read, and has no result yet: its id, its key, and the fields that its records keep."""

    document: str
    key: str
    kept: dict[str, Any]


class Made(NamedTuple):
    """What a model made of one document: ``values`` (m, F), a row a record, and what else each record says."""

    values: np.ndarray
    facts: list[dict[str, Any]]


Results = Callable[[Iterator[Document], Computed], Iterator[Made]]  # of each document, in order
Formatted = Callable[[np.ndarray], dict[str, Any]]  # a row as a record has it
Output = ResumableOutput | StandardOutput | MemoryOutput


@dataclass(frozen=True)
class InferenceSettings:
    """How documents are read and a model is run; the same for prediction and embedding.

    Lengths are in tokens. ``strategy``: "whole" (up to ``max_length``; None: the model's limit) or "chunk-average" (the
    mean over chunks that share ``overlap`` tokens). ``max_characters``: read of a document at most, what is beyond is
    counted; None: 2^20, or 16 for each token that is taken of it where that is more, and everything where chunks use
    all of it. ``on_long``, of texts that are longer: "truncate" (counted) or "error". ``batch_tokens``: of a batch,
    padding included. ``compile``: by torch.compile, Longforms only; it costs tens of seconds at the start of a run.
    ``backend``: "torch", or what runs a graph of ``longform export``: "onnx", "onnx-int8", "openvino", "openvino-int8".
    ``restart``: begin anew instead of resuming an interrupted run or refusing a finished output. ``keep``: fields of a
    record that its output has too, "FIELD" or "NEW=FIELD". For a classifier, None of a length or field means that of
    its fine-tuning, where its folder says so.
    """

    text_field: str | None = None  # "text"
    pair_field: str | None = None
    id_field: str | None = None  # "id", else its place
    keep: Sequence[str] = ()
    stdin_format: str = "lines"
    max_length: int | None = None
    max_characters: int | None = None
    on_long: str = "truncate"
    strategy: str = "whole"
    overlap: int = 0
    batch_tokens: int = DEFAULT_BATCH_TOKENS
    dtype: str = "float32"
    device: str = "auto"
    compile: bool = False
    backend: str = "torch"
    restart: bool = False
    progress: bool = True

    def __post_init__(self) -> None:
        kept_names(self.keep)  # a name that cannot be is better refused now


@dataclass(frozen=True)
class InferenceResult:
    """What a run did. Counts are of the whole output; ``seconds`` and ``tokens_per_second`` leave out what an
    interrupted run had done before. ``results``: the records, where no output was named, else None.
    """

    output: str | None
    documents: int
    records: int  # one a document, or one a chunk
    resumed: int  # documents that were done before, by an interrupted run
    tokens: int
    truncated: int  # documents that were cut
    truncated_tokens: int
    empty: int
    replaced_characters: int
    unread_characters: int  # of documents longer than ``max_characters``
    passed_over_files: int  # of folders: of no kind that is read
    seconds: float
    tokens_per_second: float
    results: list[dict[str, Any]] | None = field(default=None, repr=False)

    @property
    def report(self) -> str:
        """What the command prints: the counts, one a line."""
        return summary(self)

    @property
    def vectors(self) -> np.ndarray:
        """The embeddings float32 (records, D). Raises ConfigurationError where there are none in memory."""
        if self.results is None or "embedding" not in self.results[0]:
            where = f'the results are in "{self.output}"' if self.results is None else "labels were predicted"
            raise ConfigurationError(f"no vectors in memory: {where}; embed without an output has them")
        return np.stack([each["embedding"] for each in self.results])


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
    table with ``text_field``. ``output``: jsonl, parquet, "-" (standard output), None to keep the records.
    ``options``: fields of the settings by name, such as ``text_field`` and ``pair_field``.

    A record has ``id``, ``label``, ``score`` and ``scores`` (a probability for each label); a multi-label model's has
    ``labels`` (those of at least ``threshold``) and ``scores``; a regression's ``score`` (one value) or ``scores``;
    all have ``tokens`` and ``truncated`` (tokens cut off, of what was read). Raises the errors of ``longform.errors``.
    """
    settings, source = replace(settings or InferenceSettings(), **options), source_of(sources)
    check_threshold(threshold)
    with _place(output, model, source, settings) as place:
        classifier = Classifier.from_pretrained(model, **_chosen(settings, *LOADING))
        format_record = classifier.record_format(threshold)
        fields = classifier.fine_tuning.fields(model, **_chosen(settings, "text_field", "pair_field"))
        settings = replace(settings, **fields)
        identity = {"command": "predict", "threshold": threshold}
        results = _of_documents(classifier, settings)
        return _run(results, format_record, classifier.limit, model, source, place, settings, identity)


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
    sequence_parallel: int | None = None,
    **options: Any,
) -> InferenceResult:
    """Embed the documents of ``sources``; ``output``: jsonl, parquet, "-" (standard output), None to keep the vectors.

    ``sources`` and ``options`` are those of ``predict``. A record has ``id``, ``embedding`` (D float32 values),
    ``tokens`` and ``truncated`` (tokens cut off).
    ``pooling``, ``normalise``, prompts and ``truncate_dim`` as in ``Encoder.from_pretrained``.

    With ``chunk_tokens`` there is a record for every chunk of a document, which is read as a whole whatever its length:
    ``id``, ``chunk`` (0, 1, ...), ``start`` and ``end`` (characters), ``embedding`` and ``tokens``; ``boundaries`` and
    ``settings.overlap`` as in ``encode_chunks``.

    ``sequence_parallel``: processes, started by torchrun, that compute each text together (a Longform, with one of
    longform.choices.POOLINGS); all of them call this function, the first one reads and writes, and all get its result.
    Raises the errors of ``longform.errors``.
    """
    settings, source = replace(settings or InferenceSettings(), **options), source_of(sources)
    model = local_source(model)
    if chunk_tokens is not None and settings.strategy != "whole":
        raise ConfigurationError(
            f'chunk_tokens={chunk_tokens} gives a vector a chunk, strategy="{settings.strategy}" one of them all: '
            "choose one of the two"
        )
    how: dict[str, Any] = {
        "pooling": pooling, "normalise": normalise, "prompt_name": prompt_name, "prompt": prompt,
        "truncate_dim": truncate_dim,
    }  # fmt: skip
    chunked = {"chunk_tokens": chunk_tokens, "boundaries": boundaries}
    if sequence_parallel is None:
        return _embed(model, source, output, settings, how, chunked, None)
    if chunk_tokens is not None or settings.compile:
        raise ConfigurationError(
            f"sequence_parallel={sequence_parallel} gives vectors of whole documents, by a model that is not compiled: "
            "leave chunk_tokens and compile out"
        )
    with together(sequence_parallel) as team:
        settings = replace(settings, device=own_device(settings.device))
        if not team.leads:
            loading = _chosen(settings, *LOADING)
            return team.follow(lambda: Encoder.from_pretrained(model, **how, **loading).shared_out(team).vectors_of)
        result = _embed(model, source, output, settings, how, chunked, team)
        team.tell(Said(result=replace(result, results=None)))
        return result


def _embed(
    model: str | Path, source: Source, output: str | Path | None, settings: InferenceSettings, how: dict[str, Any],
    chunked: dict[str, Any], team: Team | None,
) -> InferenceResult:  # fmt: skip
    with _place(output, model, source, settings) as place:
        encoder = Encoder.from_pretrained(model, **how, **_chosen(settings, *LOADING))
        encoder = encoder if team is None else encoder.shared_out(team)
        settings = replace(settings, text_field=settings.text_field or "text")
        identity = {
            "command": "embed", "pooling": encoder.pooling, "normalise": encoder.normalise, "prompt": encoder.prompt,
            "truncate_dim": encoder.dimensions, **chunked,
        }  # fmt: skip
        if chunked["chunk_tokens"] is None:
            results = _of_documents(encoder, settings)
        else:
            settings = replace(settings, strategy=CHUNKS)
            results = _of_chunks(encoder, settings, **chunked)
        format_record = _embedding_record if place else _kept_vector
        return _run(results, format_record, encoder.limit, model, source, place, settings, identity)


@contextlib.contextmanager
def _place(
    output: str | Path | None, model: str | Path, source: Source, settings: InferenceSettings
) -> Generator[Path | None]:
    """What this run alone writes, None where the results stay in memory."""
    if output is None:
        yield None
        return
    inputs = (model, *(() if isinstance(source, InMemory) else source))
    with place_of_output(output, inputs=inputs, restart=settings.restart) as place:
        yield place


def _opened(place: Path | None, identity: Callable[[], dict[str, Any]], *, restart: bool) -> Output:
    if place is None:
        return MemoryOutput()
    return StandardOutput() if str(place) == STANDARD_OUTPUT else ResumableOutput(place, identity(), restart=restart)


def _max_characters(settings: InferenceSettings, tokens: int) -> int | None:
    if settings.max_characters is not None or settings.strategy in ("chunk-average", CHUNKS):
        return settings.max_characters
    return max(READ_AT_LEAST, CHARACTERS_A_TOKEN * tokens)


def _chosen(settings: InferenceSettings, *names: str) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in names}


def _run(
    results: Results, format_record: Formatted, limit: int, model: str | Path, source: Source, output: Path | None,
    settings: InferenceSettings, identity: dict[str, Any],
) -> InferenceResult:  # fmt: skip
    """Write the records of each document; ``limit``: tokens that the model takes.

    ``identity``: what, beside ``settings``, a resumed run must have in common.
    """
    report, keep = ReadReport(), kept_names(settings.keep)
    fields: Any = _chosen(settings, "text_field", "pair_field", "id_field", "stdin_format")
    documents = read_documents(source, **fields, max_characters=_max_characters(settings, limit), report=report)
    result = _opened(output, lambda: identity | _identity(model, source, settings, limit), restart=settings.restart)
    started, resumed, tokens_now = time.perf_counter(), result.done, 0
    total = count_documents(source) if settings.progress else None
    waiting = _waiting(documents, keep, settings.text_field)
    try:
        _skip_done(waiting, result)
        bar = tqdm(total=total, initial=resumed, unit=" documents", disable=not settings.progress)
        for one, made in _paired(results, waiting, bar):
            if not np.isfinite(made.values).all():
                raise InputError(
                    f"document {one.document}: the model's result is NaN or infinite; nothing is written for it"
                )
            tokens_now += sum(facts["tokens"] for facts in made.facts)
            about, pairs = {"id": written(one.document), **one.kept}, zip(made.values, made.facts, strict=True)
            result.append([{**about, **format_record(row), **facts} for row, facts in pairs], one.key)
        seconds = time.perf_counter() - started
        totals = result.totals()
        result.finish()
    finally:
        result.close()
    return InferenceResult(
        None if output is None else str(output), **asdict(report), **totals, resumed=resumed, seconds=seconds,
        tokens_per_second=tokens_now / max(seconds, 1e-9),
        results=result.kept if isinstance(result, MemoryOutput) else None,
    )  # fmt: skip


def _of_documents(runner: TextModel, settings: InferenceSettings) -> Results:
    options = _chosen(settings, "strategy", "overlap", "on_long") | {"max_tokens_per_batch": settings.batch_tokens}

    def results(documents: Iterator[Document], computed: Computed) -> Iterator[Made]:
        for outcome in runner.outcomes(documents, computed=computed, **options):
            yield Made(outcome.values[None], [{"tokens": outcome.tokens, "truncated": outcome.truncated}])

    return results


def _of_chunks(encoder: Encoder, settings: InferenceSettings, **options: Any) -> Results:
    options |= {"overlap": settings.overlap, "max_tokens_per_batch": settings.batch_tokens}

    def results(documents: Iterator[Document], computed: Computed) -> Iterator[Made]:
        for found in chunk_outcomes(encoder, documents, **options):
            computed(1)
            places = zip(found.spans.tolist(), found.tokens.tolist(), strict=True)
            yield Made(found.vectors, [
                {"chunk": number, "start": start, "end": end, "tokens": tokens}
                for number, ((start, end), tokens) in enumerate(places)
            ])  # fmt: skip

    return results


def _waiting(
    documents: Iterator[Document], keep: Mapping[str, str], text_field: str | None
) -> Iterator[tuple[Document, Waiting]]:
    """Each document with what its records are made of, beside the model's result."""
    for document in documents:
        kept = kept_fields(document, keep, text_field=text_field)
        parts = (document.id, document.text, document.pair, *([kept] if kept else []))
        yield document, Waiting(document.id, content_key(*parts), kept)


def _paired(
    results: Results, documents: Iterator[tuple[Document, Waiting]], bar: tqdm
) -> Iterator[tuple[Waiting, Made]]:
    """What was made of each document; a model's error names the documents that it may be of.

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


def _identity(model: str | Path, source: Source, settings: InferenceSettings, limit: int) -> dict[str, Any]:
    """What a run must have in common with the interrupted one that it resumes; ``limit`` stands for ``max_length``."""
    may_change = ("batch_tokens", "device", "compile", "restart", "progress", "max_length")
    chosen = {name: value for name, value in asdict(settings).items() if name not in may_change}
    named = [str(source)] if isinstance(source, InMemory) else list(map(str, source))
    return {**chosen, **model_identity(str(model)), "sources": named, "limit": limit}


def _kept_vector(vector: np.ndarray) -> dict[str, Any]:
    return {"embedding": vector}


def _embedding_record(vector: np.ndarray) -> dict[str, Any]:
    return {"embedding": [float(f"{value:.9g}") for value in vector.tolist()]}  # nine digits give float32 back exactly
