"""Prediction and embedding of files in parts: the driver, which plans the parts, has them made and keeps the manifest.

A part is a range of rows of one file; it is read, computed and written by one worker, in this process or on Ray.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from tqdm import tqdm

from longform.data.files import ENCODING
from longform.data.given import DATASET_PREFIX, InMemory, Source
from longform.data.part_plans import FilePlan, Part, part_name, plan_file
from longform.data.places import InputFile, input_files
from longform.data.progress import hidden
from longform.data.text import STANDARD_INPUT
from longform.errors import ConfigurationError, DataError
from longform.inference.parts.output import PartsOutput, place_of_parts
from longform.inference.parts.ray_engine import RayEngine
from longform.inference.parts.worker import PartWorker
from longform.inference.prepared import Prepared
from longform.inference.settings import InferenceResult, InferenceSettings
from longform.runs.digest import content_key


class Engine(Protocol):
    """Engine that has parts made."""

    def identity(self) -> dict[str, Any]:
        """Facts that the run must have in common with an interrupted one, beside its inputs."""
        ...

    def plans(self, files: Sequence[InputFile]) -> Iterator[FilePlan]:
        """The plans of the files, in order."""
        ...

    def made(self, parts: Iterator[Part]) -> Iterator[dict[str, Any]]:
        """The line of the manifest of each part, when it is written; parts are asked for as workers are free."""
        ...


class LocalEngine:
    """One worker, in this process."""

    def __init__(self, worker: PartWorker, part_rows: int) -> None:
        self._worker, self._part_rows = worker, part_rows

    def identity(self) -> dict[str, Any]:
        """Facts that the run must have in common with an interrupted one, beside its inputs."""
        return self._worker.identity()

    def plans(self, files: Sequence[InputFile]) -> Iterator[FilePlan]:
        """The plans of the files, in order."""
        return (plan_file(number, file, self._part_rows) for number, file in enumerate(files))

    def made(self, parts: Iterator[Part]) -> Iterator[dict[str, Any]]:
        """The line of the manifest of each part, in order."""
        return map(self._worker.work, parts)


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
        _engine(partial(prepare, model), model, place, settings) as engine,
        contextlib.closing(PartsOutput(place, engine.identity() | listed)) as written,
    ):
        found = _run(engine, files, written, source, settings)
        return replace(found, passed_over_files=len(passed_over), passed_over=passed_over)


@contextlib.contextmanager
def _engine(prepare: Callable[[], Prepared], model: str, place: Path, settings: InferenceSettings) -> Generator[Engine]:
    skip = settings.on_error == "skip"
    if settings.engine == "local":
        yield LocalEngine(PartWorker(prepare, model, place, skip=skip), settings.part_rows)
    else:
        with RayEngine(prepare, model, place, settings) as engine:
            yield engine


def _run(
    engine: Engine,
    files: Sequence[InputFile],
    written: PartsOutput,
    source: Iterable[str | Path],
    settings: InferenceSettings,
) -> InferenceResult:
    started, now = time.perf_counter(), Counter[str](tokens=0)
    with tqdm(total=0, initial=written.begun, unit=" documents", disable=hidden(settings.progress)) as bar:
        for row in engine.made(_to_do(engine.plans(files), written, settings, bar)):
            written.record(row)
            now.update(row["counts"])
            bar.update(row["counts"]["documents"])
            bar.set_postfix({"tokens/s": f"{now['tokens'] / (time.perf_counter() - started):,.0f}"}, refresh=False)
    seconds = time.perf_counter() - started
    totals: dict[str, Any] = dict(written.totals())
    if not totals["documents"] and not totals["failed"]:
        raise DataError(f"no documents in {', '.join(map(str, source))}")
    written.finish()
    return InferenceResult(
        str(written.place),
        **totals,
        passed_over=[],
        truncated_documents=written.cut(),
        resumed=written.begun,
        seconds=seconds,
        tokens_per_second=now["tokens"] / max(seconds, 1e-9),
    )


def _to_do(plans: Iterator[FilePlan], written: PartsOutput, settings: InferenceSettings, bar: tqdm) -> Iterator[Part]:
    """The parts that are not done yet; files that cannot be read are recorded on the way. ``bar`` learns what comes."""
    for number, plan in enumerate(plans):
        bar.total = (bar.total or 0) + sum(part.rows for part in plan.parts)
        if plan.refused is None:
            yield from (part for part in plan.parts if not written.has(part))
        elif settings.on_error == "fail":
            raise DataError(f'"{plan.file.name}" is {plan.refused}; on_error=skip (--on-error skip) leaves it out')
        elif not written.has_refused(number, plan):
            written.record(_refused(number, plan))


def _refused(number: int, plan: FilePlan) -> dict[str, Any]:
    counts = dict.fromkeys(("documents", "records"), 0) | {"failed": 1}
    return {
        "part": part_name(number, 0),
        "file": plan.file.name,
        "first": 0,
        "rows": 0,
        "input": plan.digest,
        "counts": counts,
        "digest": None,
        "failed": [{"row": plan.file.name, "reason": plan.refused}],
    }


def _is_stream(source: str) -> bool:
    return source == STANDARD_INPUT or source.startswith(DATASET_PREFIX)


def _from_anywhere(model: str | Path) -> str:
    """A model's folder by its whole path; a hub name as it is."""
    folder = Path(model).expanduser()
    return str(folder.resolve() if folder.is_dir() else model)
