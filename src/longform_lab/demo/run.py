"""The whole demo: its steps, a report, a summary; interrupted and started again, it goes on."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from longform.errors import ConfigurationError
from longform.files import entries, sole_output, write_lines
from longform_lab.demo import learning, searching
from longform_lab.demo.pipeline import DOCUMENTS, IDENTITY, RESULTS, WORK, Pipeline
from longform_lab.demo.report import learned_gain, report_demo, shown_learned
from longform_text.facts import environment

OWN = (IDENTITY, RESULTS, WORK, DOCUMENTS, "report.html", "table.md", "records.jsonl")


def run_demo(
    output: str | Path,
    *,
    seed: int = 0,
    scale: str = "full",
    restart: bool = False,
    say: Callable[[str], None] = print,
) -> dict[str, dict[str, Any]]:
    """Train small stacks on digits, and ask questions to long speeches.

    Writes ``output`` (documents/ with their index, report.html, records.jsonl).

    Called again with the same folder, it goes on from the step where it was stopped; a finished demo is only summed up.
    ``restart``: forget what is there. Returns the results of the steps.
    Raises ConfigurationError when the folder holds something else.
    """
    if scale not in learning.SCALES:
        raise ConfigurationError(f'scale="{scale}"; it is one of {", ".join(learning.SCALES)}')
    with sole_output(output, folder=True) as folder:
        if restart:
            _clear(folder)
        pipeline = Pipeline(folder, {"task": "learn and search", "seed": seed, "scale": scale})
        pipeline.open()
        if "finish" in pipeline.results:
            say(f"This demo is finished (--restart does it again). {folder}/report.html has everything.\n")
        else:
            if pipeline.results:
                say(f"Going on where it was interrupted: {len(pipeline.results)} results are in {folder}.")
            learning.run_learning(pipeline, learning.SCALES[scale], seed, say)
            searching.run_searching(pipeline, searching.SCALES[scale], say)
            _finish(pipeline)
        say(summary(pipeline.results, folder))
        return pipeline.results


def _finish(pipeline: Pipeline) -> None:
    """Report and records."""
    made_on, results = environment(), pipeline.results
    report_demo(pipeline.folder, results, made_on)
    rows = [{"record": "learned", "name": name, **results[name]} for name in learning.STACKS]
    rows += [{"record": name, **row} for name in ("layer", "answers") for row in results[name]["rows"]]
    write_lines(pipeline.folder / "records.jsonl", [{"record": "run", **pipeline.identity, **made_on}, *rows])
    pipeline.step("finish", dict)


def summary(results: dict[str, dict[str, Any]], folder: Path) -> str:
    """A summary for the terminal; the first line says what was gained or lost."""
    minutes = sum(result["seconds"] for result in results.values()) / 60
    found = results["answers"]
    return "\n".join(
        [
            f"Longform demo: {learned_gain(results)}",
            f"  a layer     {shown_learned(results)}",
            f"  answers     to {len(found['rows'])} questions, of {found['passages']} passages of {found['documents']} "
            f"speeches; {minutes:.1f} minutes",
            f"  report      {folder}/report.html  (records: {folder}/records.jsonl)",
            f'  next        longform search {folder}/{DOCUMENTS} "your question"  (or a folder of your own)',
        ]
    )


def _clear(folder: Path) -> None:
    if entries(folder) and not (folder / IDENTITY).is_file():
        raise ConfigurationError(f'"{folder}" was not made by the demo, so it is not cleared: give another --output')
    for name in reversed(OWN):  # the file that says whose folder it is goes last
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
