"""The whole demo: the steps of its task, a report, a summary; interrupted and started again, it goes on."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from longform.choices import DEMO_TASKS
from longform.errors import ConfigurationError
from longform.runs.output import entries, sole_output
from longform_lab.demo import classifying, finding
from longform_lab.demo.pipeline import IDENTITY, RESULTS, WORK, Pipeline

OWN = (IDENTITY, RESULTS, WORK, "model", "report.html", "records.jsonl")
RUN = dict(zip(DEMO_TASKS, (finding.run_finding, classifying.run_classifying), strict=True))
SUMMARY = dict(zip(DEMO_TASKS, (finding.summary, classifying.summary), strict=True))


def run_demo(
    output: str | Path, *, task: str = DEMO_TASKS[0], seed: int = 0, scale: str = "full", restart: bool = False,
    say: Callable[[str], None] = print,
) -> dict[str, dict[str, Any]]:  # fmt: skip
    """Do a ``task`` of the demo; write ``output`` (model/, report.html, records.jsonl).

    "find": passages find the speeches that they were taken from. "classify": an encoder is converted, healed,
    fine-tuned and compared with its original on licence texts.

    Called again with the same folder, it goes on from the step, and in training from the checkpoint, where it was
    stopped; a finished demo is only summed up. ``restart``: forget what is there. Returns the results of the steps.
    Raises ConfigurationError when the folder holds something else.
    """
    if task not in DEMO_TASKS:
        raise ConfigurationError(f'task is "{task}"; it is one of {", ".join(DEMO_TASKS)}')
    with sole_output(output, folder=True) as folder:
        if restart:
            _clear(folder)
        pipeline = Pipeline(folder, {"task": task, "seed": seed, "scale": scale})
        pipeline.open()
        if "finish" in pipeline.results:
            say(f"This demo is finished (--restart does it again). {folder}/report.html has everything.\n")
        else:
            if pipeline.results:
                say(f"Going on where it was interrupted: {len(pipeline.results)} results are in {folder}.")
            RUN[task](pipeline, scale, seed, say)
        say(SUMMARY[task](pipeline.results, folder))
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
