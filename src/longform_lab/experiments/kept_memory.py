"""What it brings that training keeps its memory: steps with and without, in turn, by length; appends records.

::

    python -m longform_lab.experiments.kept_memory

MiniLM's size, one text, float32 weights under autocast; a step is forward, backward and AdamW. Each turn is a process
of its own, so the peak of that whole process is of this turn alone; its first two steps, in which memory that is kept
still grows, are not timed. Both must end with the same output.
"""

import contextlib
import math
import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch
from tqdm import tqdm

from longform import LinformerConfig, LinformerModel
from longform.training.kept_memory import kept_memory
from longform.training.settings import compute_dtype
from longform_lab.records import RECORDS, Record, append_record
from longform_lab.speed.memory import process_peak

TURNS, WARM_UP = 3, 2
CPU = torch.device("cpu")
DTYPE = compute_dtype("auto", CPU)
CLOSE = 1e-2  # of a component of the last output, which is about 1
ENCODERS: dict[str, dict[str, Any]] = {
    "linear": {"sharing": "layerwise"},
    "window": {"projection": "mean", "attention_window": 64},
}
STEPS = {  # of a turn, timed
    ("linear", 512): 20, ("linear", 2_048): 10, ("linear", 8_192): 4, ("linear", 16_384): 3, ("linear", 65_536): 2,
    ("window", 2_048): 8, ("window", 16_384): 3,
}  # fmt: skip


def step_of(encoder: str, length: int) -> Callable[[], float]:
    """A training step on random tokens; gives a component of the output."""
    torch.manual_seed(0)
    config = LinformerConfig(
        vocab_size=1_000, hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1_536,
        max_position_embeddings=length, projected_length=256, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, **ENCODERS[encoder],
    )  # fmt: skip
    model = LinformerModel(config).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    ids = torch.randint(5, 1_000, (1, length))

    def step() -> float:
        with torch.autocast("cpu", dtype=DTYPE, enabled=torch.float32 != DTYPE):
            hidden = model(input_ids=ids).last_hidden_state
        hidden.float().square().mean().backward()
        optimiser.step()
        optimiser.zero_grad()
        return hidden[0, -1, 0].item()

    return step


def turn(encoder: str, length: int, kept: bool) -> dict[str, float]:
    """Seconds, page faults and the system's seconds of a step; the process's peak; a component of the last output."""
    step = step_of(encoder, length)
    with kept_memory(CPU) if kept else contextlib.nullcontext():
        for _ in range(WARM_UP):
            step()
        steps = STEPS[encoder, length]
        before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        for _ in range(steps):
            output = step()
        seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    return {
        "seconds": seconds / steps,
        "faults": (after.ru_minflt - before.ru_minflt) / steps,
        "system_seconds": (after.ru_stime - before.ru_stime) / steps,
        "peak_mib": process_peak() / 2**20,
        "output": output,
    }


def check_outputs(turns: dict[str, list[dict[str, float]]], encoder: str, length: int) -> None:
    """Stop where memory that is kept changes what is computed."""
    outputs = [each["output"] for done in turns.values() for each in done]
    if not all(math.isclose(each, outputs[0], rel_tol=0, abs_tol=CLOSE) for each in outputs):
        raise SystemExit(f"{encoder}, {length} tokens: outputs differ: {outputs}")


def measured(encoder: str, length: int) -> Record:
    """Turns without and with kept memory: medians, and the median of the turns' ratios."""
    turns: dict[str, list[dict[str, float]]] = {"plain": [], "kept": []}
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as processes:
        for _ in range(TURNS):
            for name, done in turns.items():
                done.append(processes.submit(turn, encoder, length, name == "kept").result())
    check_outputs(turns, encoder, length)
    ratios = [plain["seconds"] / kept["seconds"] for plain, kept in zip(turns["plain"], turns["kept"], strict=True)]
    metrics = {
        f"{name}_{what}": statistics.median(each[what] for each in done)
        for name, done in turns.items() for what in done[0] if what != "output"
    }  # fmt: skip
    return Record(
        name="kept_memory",
        settings={
            "encoder": encoder, "tokens": length, "dtype": str(DTYPE).removeprefix("torch."), "turns": TURNS,
            "steps": STEPS[encoder, length], "threads": torch.get_num_threads(),
        },
        metrics={
            **metrics, "ratio": statistics.median(ratios), "lowest_ratio": min(ratios), "highest_ratio": max(ratios),
        },
    )  # fmt: skip


def main() -> None:
    """Measure, append, print."""
    for encoder, length in tqdm(STEPS, desc="kept memory", unit="cell"):
        record = measured(encoder, length)
        append_record(RECORDS / "kept_memory.jsonl", record)
        tqdm.write(f"{record.settings} {record.metrics}")


if __name__ == "__main__":
    main()
