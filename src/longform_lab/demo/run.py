"""The whole demo: its steps, a report, a summary; interrupted and started again, it goes on."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from longform.errors import ConfigurationError
from longform.runs.output import entries, sole_output
from longform_lab.demo import finding, learning
from longform_lab.demo.pipeline import IDENTITY, RESULTS, WORK, Pipeline

OWN = (IDENTITY, RESULTS, WORK, "model", "report.html", "table.md", "records.jsonl")


def run_demo(
    output: str | Path,
    *,
    seed: int = 0,
    scale: str = "full",
    restart: bool = False,
    say: Callable[[str], None] = print,
) -> dict[str, dict[str, Any]]:
    """Train small stacks on digits, and let passages find the speeches that they were taken from.

    Writes ``output`` (model/, report.html, records.jsonl).

    Called again with the same folder, it goes on from the step where it was stopped; a finished demo is only summed up.
    ``restart``: forget what is there. Returns the results of the steps.
    Raises ConfigurationError when the folder holds something else.
    """
    if scale not in finding.SCALES:
        raise ConfigurationError(f'scale="{scale}"; it is one of {", ".join(finding.SCALES)}')
    with sole_output(output, folder=True) as folder:
        if restart:
            _clear(folder)
        pipeline = Pipeline(folder, {"task": "learn and find", "seed": seed, "scale": scale})
        pipeline.open()
        if "finish" in pipeline.results:
            say(f"This demo is finished (--restart does it again). {folder}/report.html has everything.\n")
        else:
            if pipeline.results:
                say(f"Going on where it was interrupted: {len(pipeline.results)} results are in {folder}.")
            learning.run_learning(pipeline, learning.SCALES[scale], seed, say)
            finding.run_finding(pipeline, finding.SCALES[scale], seed, say)
        say(finding.summary(pipeline.results, folder))
        return pipeline.results


def _clear(folder: Path) -> None:
    if entries(folder) and not (folder / IDENTITY).is_file():
        raise ConfigurationError(f'"{folder}" was not made by the demo, so it is not cleared: give another --output')
    for name in reversed(OWN):  # the file that says whose folder it is goes last
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
