"""Peak memory of one forward pass against length: it must grow as n, and no tensor may have n² elements.

::

    python -m longform_lab.experiments.memory                        # 4,096 ... 65,536 tokens; appends records
    python -m longform_lab.experiments.memory --lengths 4096 8192 --no-record

Each length runs in a process of its own. Growth is the process's peak resident memory during the pass less what it
held before it: the model, and what a first pass, over 4,096 tokens, leaves behind for good. The pass runs without
gradients, batch 1, float32; another one shows the largest tensor.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from longform_lab.records import RECORDS, ROOT, Record, append_record
from longform_lab.speed.memory import ALLOCATOR, peak_growth

LENGTHS = (4_096, 8_192, 16_384, 32_768, 65_536)
LARGEST_DEVIATION = 0.10  # of the memory ratio from the length ratio
MIB = 2**20
VOCABULARY = 30_522
GEOMETRY: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1_536,
    "max_position_embeddings": 65_536,
    "projected_length": 1_024,
    "projection": "mean",
    "attention_window": 64,
}


class LargestTensor(TorchDispatchMode):
    """Records the most elements that any tensor made while it is active has storage for.

    Storage counts, not shape: a broadcast view of a small tensor is small. Storages that already exist are skipped.
    """

    def __init__(self, existing: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.elements = 0
        self.operation = ""
        self._existing = {tensor.untyped_storage().data_ptr() for tensor in existing}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.untyped_storage().data_ptr() not in self._existing:
                elements = leaf.untyped_storage().nbytes() // leaf.element_size()
                if elements > self.elements:
                    self.elements, self.operation = elements, str(func)
        return result


def measure(length: int) -> dict[str, Any]:
    """One forward pass over random tokens; memory in MiB and KiB a token, the largest tensor in elements, seconds."""
    from longform import LinformerConfig, LinformerModel

    torch.manual_seed(0)
    model = LinformerModel(LinformerConfig(**GEOMETRY)).eval()
    tokens = torch.randint(5, VOCABULARY, (1, length))
    watch = LargestTensor([*model.parameters(), *model.buffers(), tokens])

    @torch.no_grad()
    def forward() -> None:
        model(input_ids=tokens)

    with torch.no_grad():
        model(input_ids=tokens[:, : LENGTHS[0]])  # leaves kernels and buffers behind
    start = time.perf_counter()
    growth = peak_growth(forward, "cpu")
    seconds = time.perf_counter() - start
    if growth is None:
        raise SystemExit("this system does not say how much memory a process used at most: run it on Linux")
    with watch:  # a pass of its own: what is watched takes torch's plain calls instead of fused ones
        forward()
    return {
        "peak_mib": growth / MIB,
        "kib_per_token": growth / 1_024 / length,
        "largest_tensor": watch.elements,
        "largest_of_square": watch.elements / length**2,
        "largest_operation": watch.operation,
        "seconds": seconds,
    }


def measure_in_fresh_process(length: int) -> dict[str, Any]:
    """Measure a length in a process of its own, with an allocator that gives freed memory back at once."""
    command = [sys.executable, "-m", "longform_lab.experiments.memory", "--one", str(length)]
    output = subprocess.run(
        command, cwd=ROOT, env=os.environ | ALLOCATOR, check=True, capture_output=True, text=True
    ).stdout
    return json.loads(output.splitlines()[-1])


def failures(results: dict[int, dict[str, Any]]) -> list[str]:
    """Failures of the bar: memory that does not grow as the length does, a tensor of n² elements."""
    lengths = sorted(results)
    first = lengths[0]
    messages = []
    for n in lengths:
        elements, operation = results[n]["largest_tensor"], results[n]["largest_operation"]
        if elements >= n * n:
            messages.append(f"{n:,} tokens: {operation} made a tensor of {elements:,} elements; n² is {n * n:,}")
    for n in lengths[1:]:
        growth = results[n]["peak_mib"] / results[first]["peak_mib"]
        if abs(growth / (n / first) - 1) > LARGEST_DEVIATION:
            messages.append(
                f"{first:,} -> {n:,} tokens is {n / first:.0f} times as long and {growth:.2f} times the memory"
            )
    return messages


def describe(result: dict[str, Any]) -> str:
    """One measurement in one line."""
    return (
        f"{result['peak_mib']:>8,.0f} MiB, {result['kib_per_token']:.1f} KiB a token, largest tensor "
        f"{result['largest_of_square']:.3f} n² ({result['largest_operation']}), {result['seconds']:.1f} s"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every length, append the records, print a line each; returns 1 when the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="in tokens")
    parser.add_argument("--no-record", action="store_true", help="only print")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        print(json.dumps(measure(options.one)))
        return 0
    results = {}
    for length in options.lengths:
        results[length] = result = measure_in_fresh_process(length)
        print(f"{length:>7,} tokens: {describe(result)}", flush=True)
        if not options.no_record:
            settings = {"length": length, "batch": 1, "dtype": "float32", **GEOMETRY}
            units = {"peak_mib": "MiB", "kib_per_token": "KiB", "largest_tensor": "elements", "seconds": "s"}
            append_record(
                RECORDS / "memory.jsonl", Record(name="memory", metrics=result, settings=settings, units=units)
            )
    missed = failures(results)
    print("\n".join(missed) or "memory grows as the length does; no tensor has n² elements")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
