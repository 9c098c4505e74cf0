"""Settings of prediction and embedding: how documents are read and a model is run; and the result of a run."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from longform.choices import ENGINES, ON_ERROR, STANDARD_OUTPUT, VECTOR_DTYPES
from longform.errors import ConfigurationError
from longform.inference.kept_fields import kept_names
from longform.runs.settings import Settings, check_choices, check_device, check_least
from longform.runs.summary import summary

DEFAULT_BATCH_TOKENS = 8192  # padding included
OUTPUT_SUFFIXES = (".jsonl", ".parquet")


@dataclass(frozen=True)
class InferenceSettings(Settings):
    """How documents are read and a model is run; the same for prediction and embedding.

    Lengths are in tokens. ``strategy``: "whole" (up to ``max_length``; None: the model's limit) or "chunk-average" (the
    mean over chunks that share ``overlap`` tokens). ``max_characters``: read of a document at most, what is beyond is
    counted; None: 2^20, or 16 for each token that is taken of it where that is more, and everything where chunks use
    all of it. ``on_long``, of texts that are longer: "truncate" (counted) or "error". ``batch_tokens``: of a batch,
    padding included. ``compile``: by torch.compile, Longforms only; it costs tens of seconds at the start of a run.
    ``graphs``: on CUDA passes are captured and replayed, Longforms only (``longform.capture``).
    ``backend``: "torch", or what runs a graph of ``longform export``: "onnx", "onnx-int8", "openvino", "openvino-int8".
    ``vector_dtype``: of the vectors that are written, "float32" or "float16" (half the size, three digits).
    ``restart``: begin anew instead of resuming an interrupted run or refusing a finished output. ``keep``: fields of a
    record that its output has too, "FIELD" or "NEW=FIELD". For a classifier, None of a length or field means that of
    its fine-tuning, where its folder says so.

    Of an output that is a folder of parts (longform.inference.parts.run): ``part_rows``: rows of an input that make one
    part, at most. ``on_error``, of a row that cannot be read or computed: "fail", or "skip" (it is in the side file).
    ``engine``: "local", or "ray" with ``ray_address`` (None: a Ray of its own on this machine; "auto", "HOST:PORT",
    "ray://HOST:PORT"), at most ``actors`` copies of the model (None: as many as there is room for), and ``num_cpus``
    and ``num_gpus`` for each.
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
    graphs: bool = True
    vector_dtype: str = "float32"
    restart: bool = False
    progress: bool = True
    engine: str = "local"
    on_error: str = "fail"
    part_rows: int = 4096
    ray_address: str | None = None
    actors: int | None = None
    num_cpus: float = 1
    num_gpus: float = 0

    def __post_init__(self) -> None:
        kept_names(self.keep)  # a name that cannot be is better refused now
        check_choices(self, engine=ENGINES, on_error=ON_ERROR, vector_dtype=VECTOR_DTYPES)
        check_least(self, max_length=1, max_characters=1, overlap=0, batch_tokens=1)
        check_least(self, part_rows=1, actors=1, num_cpus=0, num_gpus=0)
        check_device(self.device)


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
    empty: int
    replaced_characters: int
    unread_characters: int  # of documents longer than ``max_characters``
    passed_over_files: int  # of folders: of no kind that is read
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
