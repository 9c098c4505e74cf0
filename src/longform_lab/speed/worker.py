"""A process that measures a cell. Its parent (``cells``) outlives whatever happens to it, and it ends with its parent.

::

    python -m longform_lab.speed.worker '{"task": "memory", "cell": {...}, "repeats": {"sdpa": 5}, ...}'

"memory" runs one pass of each competitor, one after another; "time" checks all, holds them at once and alternates.
Events go to standard output, a JSON object a line with "event" as its first key: begin, found, missing.
"""

import copy
import gc
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from longform.errors import LongformError, is_out_of_memory
from longform_lab.speed.competitor import Competitor
from longform_lab.speed.competitors import all_competitors
from longform_lab.speed.measuring import alternate
from longform_lab.speed.memory import limit_memory, peak_growth, process_peak
from longform_lab.speed.precision import forward_of, make_pass, prepare, random_states, weight_bytes
from longform_lab.speed.shapes import Cell
from longform_text.facts import commit, hardware

SHORT_PASS = 30.0  # seconds
CHECKED_TOKENS = 512
LARGEST_ERROR = {"float32": 1e-4, "bfloat16": 6e-2}  # relative, after all layers of random weights
Emit = Callable[..., None]


class WrongOutput(LongformError):
    """A competitor whose output is not what it should be; it is not timed."""


def emit(event: str, **values: Any) -> None:
    """One line for the parent."""
    print(json.dumps({"event": event, **values}), flush=True)


def measure_memory(cell: Cell, names: list[str], emit: Emit) -> None:
    """One pass of each: the peak above the loaded model, the process's peak, seconds, weights in bytes.

    The seconds are those of a first pass, unless something is compiled in it.
    """
    for name in names:
        emit("begin", name=name)
        with attempt(name, emit):
            weights, run = built(all_competitors()[name], cell)
            hidden = random_states(cell)
            if cell.mode == "compiled" or cell.device != "cpu":
                run(hidden)  # compiling takes memory and time of its own; a GPU always compiles Triton's programs
            began = time.perf_counter()
            growth = peak_growth(partial(run, hidden), cell.device)
            seconds = time.perf_counter() - began
            if cell.work == "inference" and seconds < SHORT_PASS:  # the first pass loads kernels, which stay
                growth = peak_growth(partial(run, hidden), cell.device)
            emit("found", name=name, growth=growth, weights=weights, seconds=seconds, process=process_peak())
        run = hidden = None  # before the next is built
        gc.collect()


def measure_time(cell: Cell, repeats: dict[str, int], limit: float, emit: Emit) -> None:
    """Check all, then let them alternate; seconds of every round. ``limit``: seconds for the turns of each."""
    errors: dict[str, float | None] = {}
    actions: dict[str, Callable[[], None]] = {}
    for name in repeats:
        emit("begin", name=name)
        with attempt(name, emit):
            errors[name] = check(all_competitors()[name], cell)
            actions[name] = partial(built(all_competitors()[name], cell)[1], random_states(cell))
            if cell.mode == "compiled":
                actions[name]()

    def failed(name: str, error: Exception) -> None:
        report_failure(name, error, emit)
        del actions[name]  # and its memory
        gc.collect()

    seconds = alternate(actions, repeats, limit, lambda name: emit("begin", name=name), failed)
    about = {"hardware": hardware(), "commit": commit()}
    for name, rounds in seconds.items():
        emit("found", name=name, seconds=rounds, error=errors[name], **about)


def built(competitor: Competitor, cell: Cell) -> tuple[int, Callable[[Tensor], None]]:
    """The bytes of a prepared model's weights, and its pass, which takes hidden states (B, n, D)."""
    torch.manual_seed(0)
    model = prepare(competitor.build(cell.shape).eval(), cell, autocast=competitor.autocast)
    return weight_bytes(model), make_pass(model, cell)


def check(competitor: Competitor, cell: Cell) -> float | None:
    """Relative error ||difference|| / ||expected|| of the output for one text of 512 tokens at most.

    Expected is what the same weights give in float64 on a CPU. Architectures that draw random numbers or have no
    float64 (family "sparse") must give finite numbers, and have no error. Raises WrongOutput.
    """
    cell = replace(cell, length=min(cell.length, CHECKED_TOKENS), batch=1)
    torch.manual_seed(0)
    model = competitor.build(cell.shape).eval()
    hidden = torch.randn(1, cell.length, cell.shape.size.hidden)
    prepared = prepare(copy.deepcopy(model), cell, autocast=competitor.autocast)
    out = forward_of(prepared, cell)(hidden)
    if out.shape != hidden.shape or not bool(torch.isfinite(out).all()):
        raise WrongOutput(f"its output is not finite numbers of shape {tuple(hidden.shape)}")
    if competitor.family == "sparse":
        return None
    with torch.no_grad():
        expected = model.double()(hidden.double())
    error = float((out.double() - expected).norm() / expected.norm())
    if error > LARGEST_ERROR[cell.dtype]:
        raise WrongOutput(f"its output is wrong: {error:.2e} from float64, allowed {LARGEST_ERROR[cell.dtype]:.1e}")
    return error


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
    limit_memory(job["memory_limit"])
    if job["task"] == "memory":
        measure_memory(cell, list(job["repeats"]), emit)
    else:
        measure_time(cell, job["repeats"], job["limit"], emit)


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
