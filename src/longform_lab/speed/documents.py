"""Whole documents, end to end (tokens, passes, one vector each): seconds of every reading, taking turns in one process.

Each reading is checked first: its vectors of the shortest documents are what they should be.
"""

import statistics
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm
from transformers import AutoTokenizer

from longform.data.special_tokens import content_ids
from longform.errors import ConfigurationError, LongformError
from longform.functional.conditions import native_bfloat16
from longform.inference.encoders import Encoder
from longform.inference.settings import DEFAULT_BATCH_TOKENS
from longform_lab.licences import licence_documents
from longform_lab.records import Record, append_records, read_records
from longform_lab.speed.measuring import alternate, paired_ratio, spread
from longform_lab.speed.readings import CHUNKS, Reading, all_readings

NAME, RECORDS = "documents", "documents.jsonl"
CHECKED = 2  # documents, the shortest
BUNDLED = 12  # licence texts, where no documents are given: the longest
UNITS = {"seconds": "s", "tokens_per_second": "tokens/s", "documents_per_second": "documents/s"}


def bundled_documents() -> list[str]:
    """The longest licence texts of the demo's package."""
    return sorted((document.text for document in licence_documents()), key=len)[-BUNDLED:]


def measure_documents(
    texts: Sequence[str],
    original: str | Path,
    longforms: Mapping[str, Path],
    output: Path,
    *,
    threads: Sequence[int],
    repeats: int,
    batch_tokens: int = 0,
    only: Sequence[str] = (),
    also: Path | None = None,
    tell: Callable[[str], None] = tqdm.write,
) -> list[Record]:
    """A record for each reading and number of threads; those of a number that are in ``output`` are taken from there.

    ``only``: names, or beginnings of names, of readings. ``also``: another file that gets each new record.
    Raises ConfigurationError for a name that no reading begins with.
    """
    texts = sorted(texts, key=len)
    lengths = [len(ids) + 2 for ids in content_ids(AutoTokenizer.from_pretrained(original), texts)]
    about = {"documents": len(texts), "tokens": sum(lengths), "longest": max(lengths)}
    dtypes = ["float32", *(["bfloat16"] if native_bfloat16(torch.device("cpu")) else [])]
    path = output / RECORDS
    there = read_records([path]) if path.exists() else []
    records = []
    with tempfile.TemporaryDirectory(prefix="longform-") as folder:
        readings = all_readings(original, longforms, Path(folder), length=_room(max(lengths)), dtypes=dtypes)
        readings = _chosen(readings, only)
        for count in threads:
            settings = {**about, "threads": count}
            found = [record for record in there if record.settings.items() >= settings.items()]
            if {record.settings["reading"] for record in found} < {reading.name for reading in readings}:
                with _threads(count):
                    found = _measure(readings, texts, settings, repeats, batch_tokens or DEFAULT_BATCH_TOKENS, tell)
                for place in filter(None, (path, also)):
                    append_records(place, found)
            records += found
    return records


def _chosen(readings: Sequence[Reading], only: Sequence[str]) -> list[Reading]:
    """Readings whose names begin so, and what they are compared with; all where none is named."""
    names = [reading.name for reading in readings]
    if unknown := [each for each in only if not any(name.startswith(each) for name in names)]:
        raise ConfigurationError(f'no reading begins with "{unknown[0]}"; there are {"; ".join(names)}')
    return [each for each in readings if not only or each.name == CHUNKS or each.name.startswith(tuple(only))]


def _room(longest: int) -> int:
    """Tokens that a Longform is made for: a power of two that holds the longest document."""
    return max(1024, 2 ** (longest - 1).bit_length())


def _measure(
    readings: Sequence[Reading],
    texts: Sequence[str],
    settings: dict[str, Any],
    repeats: int,
    batch_tokens: int,
    tell: Callable[[str], None],
) -> list[Record]:
    missing: dict[str, str] = {}
    cosines: dict[str, float] = {}
    actions: dict[str, Callable[[], Any]] = {}

    def failed(name: str, error: Exception) -> None:
        missing[name] = " ".join(str(error).split())[:200]
        tell(f"{name}: {missing[name]}")

    for reading in readings:
        tell(f"checking {reading.name}, {settings['threads']} threads")
        try:
            encoder = reading.open(settings["threads"])
            _check_room(reading, encoder, settings["longest"])
            cosines[reading.name] = reading.check(encoder, texts[:CHECKED], batch_tokens)
        except (LongformError, RuntimeError, ImportError) as error:
            failed(reading.name, error)
        else:
            actions[reading.name] = partial(reading.vectors, encoder, texts, batch_tokens)
    seconds = alternate(actions, dict.fromkeys(actions, repeats), tell, failed=failed)
    return [_record(reading, seconds, settings, cosines, missing) for reading in readings]


def _check_room(reading: Reading, encoder: Encoder, longest: int) -> None:
    """Raise ConfigurationError where the longest document would be cut: what is not read takes no time."""
    if reading.strategy == "whole" and encoder.limit < longest:
        raise ConfigurationError(
            f"takes {encoder.limit:,} tokens, and the longest document has {longest:,}: convert it for more, or leave "
            "that document out"
        )


def _record(
    reading: Reading,
    seconds: Mapping[str, list[float]],
    settings: dict[str, Any],
    cosines: Mapping[str, float],
    missing: Mapping[str, str],
) -> Record:
    own = seconds.get(reading.name)
    metrics: dict[str, Any] = {"missing": missing.get(reading.name)}
    if own:
        median = statistics.median(own)
        metrics |= {
            "seconds": median,
            "spread": spread(own),
            "repeats": len(own),
            "cosine": cosines[reading.name],
            "tokens_per_second": settings["tokens"] / median,
            "documents_per_second": settings["documents"] / median,
            "against_chunks": paired_ratio(seconds.get(CHUNKS, []), own),
        }
    units = {name: unit for name, unit in UNITS.items() if name in metrics}
    return Record(name=NAME, settings={**settings, "reading": reading.name}, metrics=metrics, units=units)


@contextmanager
def _threads(count: int) -> Generator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def rows_of(records: Sequence[Record]) -> list[dict[str, Any]]:
    """A row a record, as the command prints it."""
    return [
        {
            "reading": record.settings["reading"],
            "threads": record.settings["threads"],
            "tokens/s": f"{record.metrics['tokens_per_second']:,.0f}",
            "spread": _percent(record.metrics["spread"]),
            "x chunks": f"{record.metrics['against_chunks']:.2f}",
            "cosine": f"{record.metrics['cosine']:.4f}",
        }
        if record.metrics["missing"] is None
        else {
            "reading": record.settings["reading"],
            "threads": record.settings["threads"],
            "tokens/s": record.metrics["missing"],
            "spread": "",
            "x chunks": "",
            "cosine": "",
        }
        for record in records
    ]


def _percent(value: Any) -> str:
    return "" if value is None else f"{value:.1%}"
