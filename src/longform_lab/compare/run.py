"""One task, one budget, several architectures side by side. A finished architecture is a file in the folder."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save

from longform.errors import ConfigurationError, InputError, MissingDependencyError, is_out_of_memory, require
from longform.files import atomic_write, locked, open_run_folder
from longform_lab.compare.architectures import ARCHITECTURES, build
from longform_lab.compare.learning import CHECKPOINT, Learner, LearningSettings
from longform_lab.compare.memory import step_memory, texts_at_once
from longform_lab.compare.plots import draw_comparison
from longform_lab.compare.report import report_comparison
from longform_lab.compare.results import Result, folder_of, read_result, write_result
from longform_lab.compare.sequences import SequenceTask
from longform_lab.compare.tfidf_baseline import logistic_regression
from longform_lab.records import write_records
from longform_lab.speed.sizes import Sizes
from longform_text.facts import commit, record_facts
from longform_text.inference.loading import pick_device

BASELINE, IDENTITY = "tfidf", "run.json"
LOCK, LOG = "lock", "memory.log"  # of the process that is at an architecture, of one that measures memory
WEIGHTS = "model.safetensors"  # of an architecture, the tested ones: state dict of architectures.build
EVERY = (*ARCHITECTURES, BASELINE)


class Setup(NamedTuple):
    """Setup that every architecture is measured with: data, sizes, budget, folder, device."""

    task: SequenceTask
    sizes: Sizes
    learning: LearningSettings
    output: Path
    device: torch.device
    memory: bool
    progress: bool


def _check(task: SequenceTask, learning: LearningSettings, architectures: Sequence[str]) -> None:
    """Raise what ``compare`` raises before the first training."""
    unknown = [name for name in architectures if name not in EVERY]
    if unknown or not architectures:
        raise ConfigurationError(f"architectures {unknown or 'none'}: choose among {', '.join(EVERY)}")
    count = task.counts()["train_texts"]
    if learning.batch_size > count:
        raise ConfigurationError(
            f"batch_size={learning.batch_size}, but there are only {count:,} texts to train on: a smaller one "
            "(--batch-size), or more texts"
        )
    require("matplotlib", extra="train")  # before the first training, not after
    if BASELINE in architectures:
        require("sklearn", extra="train")


def compare(
    task: SequenceTask,
    sizes: Sizes,
    learning: LearningSettings,
    output: str | Path,
    *,
    architectures: Sequence[str] = EVERY,
    device: str = "auto",
    memory: bool = True,
    progress: bool = True,
    described: Mapping[str, Any] | None = None,
) -> list[Result]:
    """Train and test every architecture on ``task``, and write plot, records and report into ``output``.

    Results are in the order asked for.

    Called again with the same folder and settings, it goes on where it was interrupted; architectures may be added.
    Several processes may work in the same folder: each takes an architecture that no other is at.
    ``memory``: measure the peak memory of a training step too, in processes of their own. An architecture that
    cannot be built, needs more memory than there is or diverges is a row that says so; the others go on.
    ``described``: more settings for the records, such as the kind of task and the scale's name.

    Raises ConfigurationError for an unknown architecture, for another comparison in the folder and for fewer texts than
    a batch has; MissingDependencyError for what tables and pictures need.
    """
    _check(task, learning, architectures)
    setup = Setup(task, sizes, learning, Path(output), pick_device(device), memory, progress)
    commit()  # of the code that runs, whatever is checked out by the end
    settings = {
        **(described or {}),
        "task": task.name,
        "device": setup.device.type,
        **task.counts(),
        **asdict(sizes),
        **asdict(learning),
    }
    identity = {"kind": "comparison", "settings": settings, "data": task.digest()}
    open_run_folder(setup.output, IDENTITY, identity, what="comparison")
    asked: dict[str, Result] = {}
    for wait, name in product((False, True), architectures):  # in the end, what another process was at
        if name in asked:
            continue
        with locked(folder_of(setup.output, name) / LOCK, wait=wait) as mine:
            if mine:
                asked[name] = _result(name, setup)
        if mine:
            _write(task, setup.output, settings, asked)
    return [asked[name] for name in dict.fromkeys(architectures)]


def _result(name: str, setup: Setup) -> Result:
    """Result that is in the folder, or that is measured now and written there."""
    found = read_result(setup.output, name)
    if found is None:
        found = _baseline(setup.task) if name == BASELINE else _attempt(name, setup)
    if found.skipped:
        return found
    write_result(setup.output, found)
    (folder_of(setup.output, name) / CHECKPOINT).unlink(missing_ok=True)
    if setup.memory and name != BASELINE and found.memory_mib is None and not found.memory_reason:
        texts = texts_at_once(setup.learning.batch_size, setup.learning.tokens_per_forward, setup.sizes.length)
        mib, reason = step_memory(name, setup.sizes, texts, setup.device, folder_of(setup.output, name) / LOG)
        found = replace(found, memory_mib=mib, memory_reason=reason)
        write_result(setup.output, found)
    return found


def _write(task: SequenceTask, output: Path, settings: dict[str, Any], asked: dict[str, Result]) -> None:
    """Records, picture and report of all that is in the folder, and of what was skipped now."""
    results = [result for name in EVERY if (result := asked.get(name) or read_result(output, name)) is not None]
    write_records(output / "records.jsonl", [result.record(settings) for result in results if not result.skipped])
    draw_comparison(results, task, output / "comparison.png")
    report_comparison(results, task, settings, output)


def _attempt(name: str, setup: Setup) -> Result:
    """The result, or a row that says why there is none."""
    row = ARCHITECTURES[name]
    try:
        return _train(name, setup)
    except (MissingDependencyError, ConfigurationError, InputError) as error:
        reason = str(error)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        reason = f"out of memory on {setup.device}: a smaller --batch-size or --length needs less"
    if setup.device.type == "cuda":
        torch.cuda.empty_cache()
    return Result(name, row.title, row.family, row.source, row.pads, skipped=reason)


def _train(name: str, setup: Setup) -> Result:
    task, device, row, folder = setup.task, setup.device, ARCHITECTURES[name], folder_of(setup.output, name)
    model = build(name, setup.sizes, seed=setup.learning.seed)
    how = {"device": device, "folder": folder, "name": row.title, "progress": setup.progress}
    learner = Learner(model, task, setup.learning, **how)
    done = learner.learn()
    with atomic_write(folder / WEIGHTS, "wb") as file:
        file.write(save(learner.best))
    began = time.process_time() if device.type == "cpu" else time.perf_counter()
    scores = learner.scores(task.test)
    testing = (time.process_time() if device.type == "cpu" else time.perf_counter()) - began
    return Result(
        name, row.title, row.family, row.source, row.pads, accuracy=scores.accuracy, macro_f1=scores.macro_f1,
        validation_accuracy=done.best_accuracy, seconds=done.seconds, cpu_seconds=done.cpu_seconds,
        milliseconds_per_text=1000 * testing / len(task.test.labels),
        parameters=sum(parameter.numel() for parameter in model.parameters()), tokens=done.tokens, steps=done.step,
        best_step=done.best_step, rows=done.rows, confusion=scores.confusion, labels=scores.labels,
        facts=record_facts(device),
    )  # fmt: skip


def _baseline(task: SequenceTask) -> Result:
    validation, test, spent = logistic_regression(task)
    classes = len(test.labels)
    rows = classes if classes > 2 else 1  # scikit-learn fits one where there are two classes
    return Result(
        BASELINE,
        f"{task.reads} + logistic regression",
        source="scikit-learn",
        pads="nothing, and cuts nothing",
        accuracy=test.accuracy,
        macro_f1=test.macro_f1,
        validation_accuracy=validation.accuracy,
        seconds=spent["seconds"],
        cpu_seconds=spent["cpu_seconds"],
        parameters=int(spent["features"] + 1) * rows,
        confusion=test.confusion,
        labels=test.labels,
        facts=record_facts(torch.device("cpu")),
    )
