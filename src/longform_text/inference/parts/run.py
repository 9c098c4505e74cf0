"""Prediction and embedding of files in parts: the driver, which plans the parts, has them made and keeps the manifest.

A part is a range of rows of one file; it is read, computed and written by one worker, in this process or on Ray.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain, count, repeat
from pathlib import Path
from typing import Any

from tqdm import tqdm

from longform.digests import content_key
from longform.errors import ConfigurationError, DataError
from longform_text.data.files import ENCODING
from longform_text.data.given import DATASET_PREFIX, InMemory, Source
from longform_text.data.parts import parts_of
from longform_text.data.places import InputFile, input_files
from longform_text.data.progress import hidden
from longform_text.data.text import STANDARD_INPUT
from longform_text.inference.parts.output import Manifest, place_of_parts
from longform_text.inference.parts.ray_engine import RayEngine, connected
from longform_text.inference.parts.worker import PartWorker
from longform_text.inference.prepared import Prepared
from longform_text.inference.settings import InferenceResult, InferenceSettings

READERS = 8  # files that are read at a time


def run_parts(
    prepare: Callable[[str], Prepared],
    model: str | Path,
    source: Source,
    output: str | Path,
    settings: InferenceSettings,
) -> InferenceResult:
    """Write the parts of all inputs to the folder ``output``; ``prepare`` loads ``model``, and may be pickled.

    Raises ConfigurationError for texts that are not in files.
    """
    if isinstance(source, InMemory) or (streams := list(filter(_is_stream, map(str, source)))):
        named = source if isinstance(source, InMemory) else streams[0]
        raise ConfigurationError(f'"{output}" is a folder of parts, which are made of files, not of {named}')
    passed_over: list[str] = []
    files, model = input_files(source, passed_over), _from_anywhere(model)
    listed = {
        "sources": list(map(str, source)),
        "part_rows": settings.part_rows,
        "files": content_key(file.name for file in files),
        "encoding": ENCODING.get(),
    }
    with (
        place_of_parts(output, inputs=(model, *source), restart=settings.restart) as place,
        _engine(prepare, model, place, settings) as engine,
        contextlib.closing(Manifest(place, engine.identity | listed)) as manifest,
    ):
        started = time.perf_counter()
        tokens = _make_all(engine, files, manifest, settings)
        seconds = time.perf_counter() - started
        totals: dict[str, Any] = dict(manifest.totals())
        if not totals["documents"] and not totals["failed"]:
            raise DataError(f"no documents in {', '.join(map(str, source))}")
        manifest.finish()
        totals["passed_over_files"] = len(passed_over)
        return InferenceResult(
            str(place),
            **totals,
            passed_over=passed_over,
            truncated_documents=manifest.cut(),
            resumed=manifest.begun,
            seconds=seconds,
            tokens_per_second=tokens / max(seconds, 1e-9),
        )


@contextlib.contextmanager
def _engine(
    prepare: Callable[[str], Prepared], model: str, place: Path, settings: InferenceSettings
) -> Generator[PartWorker | RayEngine]:
    make = partial(PartWorker, prepare, model, place.absolute(), skip=settings.on_error == "skip")
    if settings.engine == "local":
        yield make()
    else:
        with connected(settings.ray_address) as ray:
            yield RayEngine(ray, make, place.absolute(), settings)


def _make_all(
    engine: PartWorker | RayEngine, files: Sequence[InputFile], manifest: Manifest, settings: InferenceSettings
) -> int:
    """Have the parts made that are not done; the number of tokens in them."""
    with ThreadPoolExecutor(READERS) as readers:
        cut = readers.map(parts_of, count(), files, repeat(settings.part_rows))
        shown = tqdm(cut, "cutting into parts", len(files), unit=" files", delay=2.0, disable=hidden(settings.progress))
        parts = list(chain.from_iterable(shown))
    refused = next((part for part in parts if part.refused is not None), None)
    if refused is not None and settings.on_error == "fail":
        raise DataError(f'"{refused.file.name}" is {refused.refused}; on_error=skip (--on-error skip) leaves it out')
    missing, now, started = manifest.missing(parts), Counter[str](tokens=0), time.perf_counter()
    total = sum(part.rows for part in parts)
    with tqdm(total=total, initial=manifest.begun, unit=" documents", disable=hidden(settings.progress)) as bar:
        for row in engine.made(missing):
            manifest.record(row)
            now.update(row["counts"])
            bar.update(row["counts"]["documents"])
            bar.set_postfix({"tokens/s": f"{now['tokens'] / (time.perf_counter() - started):,.0f}"}, refresh=False)
    return now["tokens"]


def _is_stream(source: str) -> bool:
    return source == STANDARD_INPUT or source.startswith(DATASET_PREFIX)


def _from_anywhere(model: str | Path) -> str:
    """A model's folder by its whole path; a hub name as it is."""
    folder = Path(model).expanduser()
    return str(folder.resolve() if folder.is_dir() else model)
