"""What it brings that training keeps its memory: steps with and without, in turn, by length; appends records.

::

    python -m benchmarks.kept_memory

MiniLM's size, one text, float32 weights under autocast; a step is forward, backward and AdamW. Each turn is a process
of its own, whose peak is told by nothing else; its first two steps, in which memory that is kept still grows, are not
timed.
"""

import contextlib
import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch
from tqdm import tqdm

from benchmarks.records import RECORDS, Record, append_record
from longform import LinformerConfig, LinformerModel
from longform.benchmarking.memory import process_peak
from longform.functional.hardware import native_bfloat16
from longform.training.kept_memory import kept_memory

TURNS, WARM_UP = 3, 2
ENCODERS: dict[str, dict[str, Any]] = {
    "linear": {"sharing": "layerwise"},
    "window": {"projection": "mean", "attention_window": 64},
}
STEPS = {  # of a turn, timed
    ("linear", 512): 20, ("linear", 2_048): 10, ("linear", 8_192): 4, ("linear", 16_384): 3, ("linear", 65_536): 2,
    ("window", 2_048): 8, ("window", 16_384): 3,
}  # fmt: skip


def step_of(encoder: str, length: int) -> Callable[[], object]:
    """A training step on random tokens."""
    torch.manual_seed(0)
    config = LinformerConfig(
        vocab_size=1_000, hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1_536,
        max_position_embeddings=length, projected_length=256, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, **ENCODERS[encoder],
    )  # fmt: skip
    model = LinformerModel(config).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    ids, dtype = torch.randint(5, 1_000, (1, length)), _dtype()

    def step() -> None:
        with torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32):
            hidden = model(input_ids=ids).last_hidden_state
        hidden.float().square().mean().backward()
        optimiser.step()
        optimiser.zero_grad()

    return step


def _dtype() -> torch.dtype:
    return torch.bfloat16 if native_bfloat16(torch.device("cpu")) else torch.float32


def turn(encoder: str, length: int, kept: bool) -> dict[str, float]:
    """Seconds, page faults and the system's seconds of a step; the process's peak."""
    step = step_of(encoder, length)
    with kept_memory(torch.device("cpu")) if kept else contextlib.nullcontext():
        for _ in range(WARM_UP):
            step()
        steps = STEPS[encoder, length]
        before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        for _ in range(steps):
            step()
        seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    return {
        "seconds": seconds / steps,
        "faults": (after.ru_minflt - before.ru_minflt) / steps,
        "system_seconds": (after.ru_stime - before.ru_stime) / steps,
        "peak_mib": process_peak() / 2**20,
    }


def measured(encoder: str, length: int) -> Record:
    """Turns without and with kept memory: medians, and the median of the turns' ratios."""
    turns: dict[str, list[dict[str, float]]] = {"plain": [], "kept": []}
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as processes:
        for _ in range(TURNS):
            for name, done in turns.items():
                done.append(processes.submit(turn, encoder, length, name == "kept").result())
    ratios = [plain["seconds"] / kept["seconds"] for plain, kept in zip(turns["plain"], turns["kept"], strict=True)]
    metrics = {
        f"{name}_{what}": statistics.median(each[what] for each in done)
        for name, done in turns.items() for what in done[0]
    }  # fmt: skip
    return Record(
        name="kept_memory",
        settings={
            "encoder": encoder, "tokens": length, "dtype": str(_dtype()).removeprefix("torch."), "turns": TURNS,
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
