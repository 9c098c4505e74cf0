"""Settings of prediction and embedding: how documents are read and a model is run; and the result of a run."""

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from longform.choices import (
    BACKENDS,
    DTYPES,
    ENGINES,
    ON_ERROR,
    ON_LONG,
    STANDARD_OUTPUT,
    STRATEGIES,
    VECTOR_DTYPES,
)
from longform.errors import ConfigurationError
from longform_text.data.given import InMemory, Source
from longform_text.data.text import look, read_documents
from longform_text.inference.kept_fields import kept_fields, kept_names
from longform_text.settings import Settings, check_choices, check_device, check_least, one_of
from longform_text.summary import summary

DEFAULT_BATCH_TOKENS = 8192  # padding included
OUTPUT_SUFFIXES = (".jsonl", ".parquet")


@dataclass(frozen=True)
class InferenceSettings(Settings):
    """How documents are read and a model is run; the same for prediction and embedding.

    Args:
        text_field: field of a record that holds its text; null: as in the model's fine-tuning, else "text".
        pair_field: field with the second text of a pair; null: as in the model's fine-tuning.
        id_field: field with the id; null: id, else file and line.
        keep: fields to copy from the record to its output; NEW=FIELD renames one.
        stdin_format: format of standard input (-).
        max_length: tokens taken of a text; null: as in the model's fine-tuning, else all that fit.
        max_characters: most characters read of a document, the rest is counted; null: 2^20 or 16 for each token taken,
            whichever is more, and all of it for chunks.
        on_long: for a text over the limit: cut and count it, or stop.
        strategy: whole: one pass over the text; chunk-average: the mean over chunks.
        overlap: tokens that neighbouring chunks share.
        batch_tokens: tokens in a batch, padding included.
        dtype: auto: bfloat16 where it is fast.
        device: auto: the first CUDA GPU if there is one, else the CPU; cpu, cuda, cuda:1, mps, xpu, ...
        compile: use torch.compile (Longforms only); compiling takes tens of seconds, so use it for long runs.
        backend: what runs the model: torch, or a graph that longform export wrote.
        graphs: capture and replay passes on CUDA (Longforms only).
        vector_dtype: dtype of the written vectors; float16: half the size, three digits.
        restart: start over; discard a finished or interrupted output.
        progress: show a bar on standard error.
        engine: ray: make the parts of a folder on a Ray cluster.
        on_error: for an output folder: stop at a row that fails, or leave it out and list it.
        part_rows: for an output folder: most rows of one part.
        ray_address: auto or HOST:PORT; null: start Ray on this machine.
        actors: most copies of the model on Ray; null: as many as fit.
        num_cpus: CPU cores of an actor.
        num_gpus: GPUs of an actor; 0.5 puts two actors on one.

    A folder is an output in parts (inference.parts.run). Raises ConfigurationError for a value that cannot be.
    """

    text_field: str | None = None
    pair_field: str | None = None
    id_field: str | None = None
    keep: Sequence[str] = ()
    stdin_format: str = one_of(("lines", "jsonl"), "lines")
    max_length: int | None = None
    max_characters: int | None = None
    on_long: str = one_of(ON_LONG, "truncate")
    strategy: str = one_of(STRATEGIES, "whole")
    overlap: int = 0
    batch_tokens: int = DEFAULT_BATCH_TOKENS
    dtype: str = one_of(DTYPES, "float32")
    device: str = "auto"
    compile: bool = False
    backend: str = one_of(BACKENDS, "torch")
    graphs: bool = True
    vector_dtype: str = one_of(VECTOR_DTYPES, "float32")
    restart: bool = False
    progress: bool = True
    engine: str = one_of(ENGINES, "local")
    on_error: str = one_of(ON_ERROR, "fail")
    part_rows: int = 4096
    ray_address: str | None = None
    actors: int | None = None
    num_cpus: float = 1
    num_gpus: float = 0

    def __post_init__(self) -> None:
        kept_names(self.keep)  # a name that cannot be is better refused now
        check_choices(self)
        check_least(self, max_length=1, max_characters=1, overlap=0, batch_tokens=1)
        check_least(self, part_rows=1, actors=1, num_cpus=0, num_gpus=0)
        check_device(self.device)


def look_at(
    source: Source,
    output: str | Path | None,
    settings: InferenceSettings,
    own: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Raise DataError, before a model is loaded, for sources that are empty or lack a field; ``own``: fields that
    a model names, and ``title_field``.

    Iterators are not looked at, nor files of which what fails is left out.
    """
    text = settings.text_field or own.get("text_field") or "text"
    pair, kept = settings.pair_field or own.get("pair_field"), kept_names(settings.keep)
    if not isinstance(source, InMemory):
        if settings.on_error == "fail":
            parts = output is not None and in_parts(output)  # which say how a bad file is left out
            more = [field for field in kept.values() if field != text]
            how = {"kept": more, "stdin_format": settings.stdin_format, "unreadable": parts}
            look(source, text, pair, settings.id_field, own.get("title_field"), **how)
    elif isinstance(source.given, Sized):
        first = next(read_documents(source, text_field=text, pair_field=pair, id_field=settings.id_field))
        kept_fields(first, kept, text_field=text)


def in_parts(output: str | Path) -> bool:
    """Whether an output is a folder of parts, which a name without suffix is."""
    return str(output) != STANDARD_OUTPUT and Path(output).suffix == ""


def check_suffix(output: str | Path) -> None:
    """Raise ConfigurationError for an output of a kind that is not written."""
    if str(output) != STANDARD_OUTPUT and not in_parts(output) and Path(output).suffix not in OUTPUT_SUFFIXES:
        raise ConfigurationError(
            f'output is "{output}"; its suffix is one of {", ".join(OUTPUT_SUFFIXES)}, or none for a folder'
        )


def chosen(settings: InferenceSettings, *names: str) -> dict[str, Any]:
    """Some of the settings, by name."""
    return {name: getattr(settings, name) for name in names}


@dataclass(frozen=True)
class InferenceResult:
    """Result of a run. Counts are of the whole output; ``seconds`` and ``tokens_per_second`` leave out what an
    interrupted run had done before. ``results``: the records, where no output was named, else None.
    """

    output: str | None
    documents: int
    records: int  # one a document, or one a chunk
    resumed: int  # documents that were done before, by an interrupted run
    tokens: int
    truncated: int  # documents that were cut
    truncated_tokens: int
    truncated_documents: list[str]  # the first of those that were cut
    empty: int
    replaced_characters: int
    unread_characters: int  # of documents longer than ``max_characters``
    passed_over_files: int  # of folders: of no kind that is read, or that cannot be read
    passed_over: list[str]  # their names, and why they cannot be read
    seconds: float
    tokens_per_second: float
    failed: int | None = None  # rows that could not be read or computed, of an output in parts
    results: list[dict[str, Any]] | None = field(default=None, repr=False)

    @property
    def report(self) -> str:
        """Lines that the command prints: the counts, one a line."""
        return summary(self)

    @property
    def vectors(self) -> np.ndarray:
        """The embeddings (records, D). Raises ConfigurationError where there are none in memory."""
        if self.results is None or "embedding" not in self.results[0]:
            where = f'the results are in "{self.output}"' if self.results is None else "labels were predicted"
            raise ConfigurationError(f"no vectors in memory: {where}; embed without an output has them")
        return np.stack([each["embedding"] for each in self.results])
