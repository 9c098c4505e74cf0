"""A process that measures a cell. Its parent (``grid``) outlives whatever happens to it, and it ends with its parent.

::

    python -m longform_lab.speed.worker '{"task": "memory", "cell": {...}, "names": [...], ...}'

"memory" runs one pass of each competitor, one after another; "time" holds all of them at once and alternates. Events
go to standard output, a JSON object a line with "event" as its first key: begin, memory, missing, round, time.
"""

import copy
import gc
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from longform.errors import is_out_of_memory
from longform.runs.facts import commit, hardware
from longform_lab.speed.checks import WrongOutput, check_gradients, check_output, checkable, verify
from longform_lab.speed.competitor import Competitor
from longform_lab.speed.competitors import all_competitors
from longform_lab.speed.floor import Floor
from longform_lab.speed.measuring import alternate
from longform_lab.speed.memory import limit_memory, peak_growth, process_peak
from longform_lab.speed.precision import forward_of, make_pass, prepare, random_states, weight_bytes
from longform_lab.speed.shapes import Cell
from longform_lab.speed.timed_floor import TimedFloor

SHORT_PASS = 30.0  # seconds
FLOOR = "floor of "
Emit = Callable[..., None]


def emit(event: str, **values: Any) -> None:
    """One line for the parent."""
    print(json.dumps({"event": event, **values}), flush=True)


def measure_memory(cell: Cell, names: list[str], emit: Emit) -> None:
    """One pass of each: the peak above the loaded model, the process's peak, seconds, weights in bytes.

    The seconds are those of a first pass, unless something is compiled in it.
    """
    every = all_competitors()
    for name in names:
        emit("begin", name=name)
        with attempt(name, emit):
            torch.manual_seed(0)
            model = prepare(every[name].build(cell.shape).eval(), cell, autocast=every[name].autocast)
            weights = weight_bytes(model)
            run = make_pass(model, cell)
            hidden = random_states(cell)
            if cell.mode == "compiled" or cell.device != "cpu":
                run(hidden)  # compiling takes memory and time of its own; a GPU always compiles Triton's programs
            began = time.perf_counter()
            growth = peak_growth(partial(run, hidden), cell.device)
            seconds = time.perf_counter() - began
            if cell.work == "inference" and seconds < SHORT_PASS:  # the first pass loads kernels, which stay
                growth = peak_growth(partial(run, hidden), cell.device)
            emit("memory", name=name, growth=growth, weights=weights, seconds=seconds, process=process_peak())
        model = run = hidden = None  # before the next is built
        gc.collect()


def measure_time(cell: Cell, repeats: dict[str, int], floored: Sequence[str], limit: float, emit: Emit) -> None:
    """Check all, then let them alternate with the floors of ``floored``; seconds of every round.

    ``limit``: seconds for the turns of each.
    """
    every = all_competitors()
    ready = _ready({name: every[name] for name in repeats}, cell, emit)
    floors = _floors(cell, {name: every[name] for name in filter(floored.__contains__, ready)}, emit)
    actions = {name: action for name, (action, _) in ready.items()}
    actions |= {name: run for name, (_, run) in floors.items()}
    rounds = repeats | {floor: max(repeats[name] for name in names) for floor, (names, _) in floors.items()}

    begun = {floor: names[0] for floor, (names, _) in floors.items()}

    def failed(name: str, error: Exception) -> None:
        report_failure(name, error, emit)
        del actions[name]
        ready.pop(name, None)
        gc.collect()

    def next_turn(name: str) -> None:
        emit("round", name=begun.get(name, name))

    seconds = alternate(actions, rounds, next_turn, limit=limit, failed=failed)
    floor_of = {name: seconds.get(floor, []) for floor, (names, _) in floors.items() for name in names}
    _emit_times(ready, seconds, floor_of, emit)


def _emit_times(
    ready: Mapping[str, Any], seconds: Mapping[str, list[float]], floors: Mapping[str, list[float]], emit: Emit
) -> None:
    """Report the rounds of what was timed of ``ready``, in which the checked error is second."""
    about = {"hardware": hardware(), "commit": commit()}
    for name in filter(seconds.__contains__, ready):
        _, error = ready[name]
        emit("time", name=name, seconds=seconds[name], error=error, floor=floors.get(name, []), **about)


def _ready(competitors: Mapping[str, Competitor], cell: Cell, emit: Emit) -> dict[str, tuple[Callable[[], Any], Any]]:
    """The checked pass of each competitor and its error, without those that failed."""
    ready = {}
    for name, competitor in competitors.items():
        emit("begin", name=name)
        with attempt(name, emit):
            ready[name] = _checked_pass(competitor, cell)
            if cell.mode == "compiled":
                ready[name][0]()  # compiles for what is timed, which is another mode or shape than what was checked
    return ready


def _checked_pass(competitor: Competitor, cell: Cell) -> tuple[Callable[[], None], float | None]:
    """Pass that is timed, after its output was found right, and the error of that output."""
    torch.manual_seed(0)
    verify(competitor, cell.shape)
    checked = checkable(competitor, cell)
    model = competitor.build(checked.shape).eval()
    prepared = prepare(copy.deepcopy(model), checked, autocast=competitor.autocast)
    hidden = torch.randn(checked.batch, checked.length, checked.shape.size.hidden)
    error = check_output(competitor, model, forward_of(prepared, checked), checked, hidden)
    if cell.work == "train":
        check_gradients(competitor, model, prepared, checked, hidden)
    if checked != cell:
        prepared = prepare(competitor.build(cell.shape).eval(), cell, autocast=competitor.autocast)
    return partial(make_pass(prepared, cell), random_states(cell)), error


def _floors(
    cell: Cell, competitors: dict[str, Competitor], emit: Emit
) -> dict[str, tuple[list[str], Callable[[], None]]]:
    """Each different floor by its label: the competitors that it is of, and what runs it; none where it fails."""
    plans: dict[Floor, list[str]] = {}
    for name, competitor in competitors.items():
        plans.setdefault(competitor.plan(cell), []).append(name)
    found = {}
    for plan, names in plans.items():
        label = FLOOR + names[0]
        with attempt(label, emit):
            timed = TimedFloor(plan, dtype=cell.dtype, work=cell.work, device=torch.device(cell.device))
            found[label] = (names, timed)
    return found


@contextmanager
def attempt(name: str, emit: Emit) -> Generator[None]:
    """Turn what goes wrong inside into an event that says why there is no result."""
    gc.collect()
    try:
        yield
    except Exception as error:
        report_failure(name, error, emit)


def report_failure(name: str, error: Exception, emit: Emit) -> None:
    """The whole error to the log, why there is no result to the parent."""
    traceback.print_exception(error)
    emit("missing", name=name, reason=reason_of(error))


def reason_of(error: Exception) -> str:
    """Why a competitor has no result, in one line."""
    if is_out_of_memory(error):
        return "out of memory"
    if isinstance(error, WrongOutput):
        return str(error)
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def main(job: dict[str, Any], emit: Emit = emit) -> None:
    """Do what the parent asks."""
    commit()  # of the code that this process has just imported
    cell = Cell(**job["cell"])
    torch.set_num_threads(cell.threads)
    limit_memory(job.get("memory_limit"))
    if job["task"] == "memory":
        measure_memory(cell, list(job["repeats"]), emit)
    else:
        measure_time(cell, job["repeats"], job["floored"], job["limit"], emit)


def end_with_parent(parent: int, *, seconds: float = 1.0) -> None:
    """End this process within ``seconds`` of its parent, whose process number is ``parent``, also where that is killed
    and can tell it nothing."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(seconds)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="end-with-parent").start()


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    end_with_parent(asked["parent"])
    main(asked)
