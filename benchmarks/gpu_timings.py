"""Time of a pass and of a training step on a GPU, eager and as a graph, beside full attention; records.

::

    python -m benchmarks.gpu_timings --records runs/gpu-check/gpu_timings.jsonl --seconds 80

Encoders of base size with random weights, hidden states in: medians by the GPU's own clock. Inference is in bfloat16;
a training step is forward and backward, float32 weights under autocast. What a graph gives is compared with what eager
mode gives before it is timed. The most telling lengths come first.
"""

import argparse
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from longform.functional.conditions import native_bfloat16
from longform.models.graphs import record
from longform_lab.records import Record, append_record
from longform_lab.speed import ours, peers
from longform_lab.speed.full_attention import bert, twin
from longform_lab.speed.precision import prepare, random_states
from longform_lab.speed.shapes import PASSES, Cell, Shape
from longform_lab.speed.worker import reason_of
from longform_text.facts import commit

REPEATS, WARM_UPS, LONG = 7, 3, 100.0  # passes; longer ones (milliseconds) are repeated less
LARGEST_ERROR = 0.02  # of what a graph gives, relative
CASES = (  # tokens, texts, work
    *((8_192, 1, work) for work in PASSES), (65_536, 1, "inference"), (512, 32, "inference"), (512, 1, "inference"),
    (2_048, 1, "inference"), (2_048, 1, "train"), (32_768, 1, "train"), (32_768, 1, "inference"),
)  # fmt: skip
COLUMNS = ("eager_ms", "graph_ms", "peak_mib")
DRY_CASES = tuple((128, 1, work) for work in PASSES)


KINDS: dict[str, Callable[[Shape], nn.Module]] = {
    "full attention": twin,
    "BERT": partial(bert, implementation="sdpa"),
    "linear, layerwise": partial(ours.pure, projection="linear", sharing="layerwise"),
    "mean": partial(ours.pure, projection="mean"),
    "weighted mean": partial(ours.pure, projection="weighted_mean"),
    "window": ours.windowed,
    "window, 8 selected": partial(ours.windowed, selected_slots=8),
    "lucidrains": partial(peers.lucidrains, share_kv=False),
}


def milliseconds(action: Callable[[], object], device: str) -> float:
    """The median time of a pass."""
    once = gpu_milliseconds if device == "cuda" else cpu_milliseconds
    first = once(action)
    return statistics.median([first, *(once(action) for _ in range(2 if first > LONG else REPEATS - 1))])


def gpu_milliseconds(action: Callable[[], object]) -> float:
    """One pass, by events before and behind it."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    action()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def cpu_milliseconds(action: Callable[[], object]) -> float:
    """One pass."""
    began = time.perf_counter()
    action()
    return 1_000 * (time.perf_counter() - began)


@torch.inference_mode()
def operations_a_second(device: str) -> float:
    """Operations a second of a product of two square bfloat16 matrices."""
    size = 8_192 if device == "cuda" else 128
    left, right = (torch.randn(size, size, device=device).bfloat16() for _ in range(2))
    for _ in range(WARM_UPS):
        left @ right
    return 2 * size**3 / (milliseconds(lambda: left @ right, device) / 1_000)


def graph_of(run: Callable[[], Tensor]) -> tuple[Callable[[], object], float]:
    """The replay of ``run`` and the relative error of what it gives. Raises RuntimeError on a large one."""
    expected = run().float()
    replay, found = record(run)
    found.fill_(math.nan)
    replay()
    error = float((found.float() - expected).norm() / expected.norm())
    if not error <= LARGEST_ERROR:
        raise RuntimeError(f"the graph's output is {error:.2g} away from eager mode's")
    return replay, error


def step_of(model: nn.Module, hidden: Tensor, device: str) -> Tensor:
    """Forward and backward: the gradient of the hidden states (B, n, D)."""
    model.zero_grad(set_to_none=True)
    given = hidden.detach().requires_grad_()
    with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda", cache_enabled=False):
        out = model(given)
    out.float().square().mean().backward()
    assert given.grad is not None
    return given.grad


def measure(build: Callable[[Shape], nn.Module], cell: Cell) -> dict[str, float]:
    """Milliseconds of a pass or a step, eager and, on a GPU, as a graph; the graph's error; MiB above the model."""
    torch.manual_seed(0)
    on_gpu, trains = cell.device == "cuda", cell.work == "train"
    with torch.device(cell.device):
        model = prepare(build(cell.shape).train(trains), cell)
    hidden = random_states(cell)
    run = partial(step_of, model, hidden, cell.device) if trains else partial(model, hidden)
    with torch.inference_mode(not trains):
        for _ in range(WARM_UPS):
            run()
        if not on_gpu:
            return {"eager_ms": milliseconds(run, cell.device)}
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        found = {"eager_ms": milliseconds(run, cell.device)}
        found["peak_mib"] = (torch.cuda.max_memory_allocated() - before) / 2**20
        replay, error = graph_of(run)
        return found | {"graph_ms": milliseconds(replay, cell.device), "error": error}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and append what the time allows."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_timings", description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=Path, help="file to append to")
    parser.add_argument("--seconds", type=float, default=80.0, help="after which no other encoder is begun")
    parser.add_argument("--kinds", nargs="+", choices=[*KINDS], default=[*KINDS], help="of encoders")
    parser.add_argument("--dry", action="store_true", help="small sizes, to see that all of it runs")
    options = parser.parse_args(arguments)
    began, device = time.monotonic(), "cuda" if torch.cuda.is_available() else "cpu"
    print(torch.cuda.get_device_name() if device == "cuda" else "CPU", flush=True)
    print(f"{'':18}  tokens x texts         eager     graph  peak MiB", flush=True)
    common: dict[str, Any] = {"slots": 256, "mode": "eager", "device": device}
    common |= {
        "dtype": "bfloat16" if native_bfloat16(torch.device(device)) else "float32",
        "threads": torch.get_num_threads(),
        "size": "tiny" if options.dry else "base",
    }
    for (length, batch, work), name in product(DRY_CASES if options.dry else CASES, options.kinds):
        if time.monotonic() - began > options.seconds:
            print("the time is over", flush=True)
            break
        row(name, Cell(length=length, batch=batch, work=work, **common), options.records)
    return 0


def row(name: str, cell: Cell, records: Path | None) -> None:
    """One line and one record; an encoder that does not run has its reason in the line."""
    place = f"{name:18} {cell.length:7} x {cell.batch:<3} {cell.work:9}"
    try:
        found = measure(KINDS[name], cell)
    except Exception as error:
        print(f"{place} {reason_of(error)}", flush=True)
        return
    print(place, *(f"{found.get(key, math.nan):9.3f}" for key in COLUMNS), flush=True)
    if records:
        units = {key: key.rpartition("_")[2] for key in found if "_" in key}
        settings = cell.settings(name)
        done = os.environ.get("COMMIT") or commit()
        append_record(records, Record(name="gpu_timings", metrics=found, settings=settings, units=units, commit=done))


if __name__ == "__main__":
    sys.exit(main())
