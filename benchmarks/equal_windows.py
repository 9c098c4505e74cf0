"""Processor seconds of Longform, Longformer, ModernBERT and full attention at one size, with equal windows.

MiniLM's size (6 layers of 384), one text of 4,096 tokens, one thread. Longform and Longformer see at least 64 tokens on
each side, ModernBERT 64 in two of three layers and all in the third. Passes take turns in one process; processor
seconds, because other jobs may run beside it.

    python -m benchmarks.equal_windows benchmarks/records/equal_windows.jsonl
"""

import statistics
import sys
import time
from dataclasses import replace
from functools import partial

import torch
import transformers

from longform_lab.records import Record, append_records
from longform_lab.speed.competitor import FromEmbeddings
from longform_lab.speed.competitors import all_competitors
from longform_lab.speed.other_architectures import _settings
from longform_lab.speed.precision import make_pass, prepare, random_states
from longform_lab.speed.shapes import Cell, Shape

NAMES = ("ours-window", "longformer", "modernbert", "sdpa")
CELLS = (("bfloat16", "inference"), ("float32", "inference"), ("bfloat16", "train"), ("float32", "train"))
ROUNDS, WINDOW = 5, 64


def longformer(shape: Shape) -> FromEmbeddings:
    """Longformer that sees 64 tokens on each side; its option counts both sides."""
    config = transformers.LongformerConfig(
        **_settings(shape, attention_window=2 * WINDOW, max_position_embeddings=shape.length + 2 * WINDOW + 1)
    )
    return FromEmbeddings(transformers.LongformerModel(config, add_pooling_layer=False))


def measured(dtype: str, work: str) -> list[Record]:
    """A record for each encoder; ratios are medians over rounds."""
    cell = Cell(
        size="minilm", length=4096, batch=1, slots=256, dtype=dtype, mode="eager", work=work, device="cpu", threads=1
    )
    assert cell.shape.window == WINDOW
    competitors = all_competitors()
    competitors["longformer"] = replace(competitors["longformer"], build=longformer)
    actions = {}
    for name in NAMES:
        torch.manual_seed(0)
        model = prepare(competitors[name].build(cell.shape).eval(), cell, autocast=competitors[name].autocast)
        actions[name] = partial(make_pass(model, cell), random_states(cell))
        actions[name]()
    seconds: dict[str, list[float]] = {name: [] for name in NAMES}
    for _ in range(ROUNDS):
        for name, action in actions.items():
            began = time.process_time()
            action()
            seconds[name].append(time.process_time() - began)
        print(dtype, work, {name: round(times[-1], 2) for name, times in seconds.items()}, flush=True)
    ours = seconds["ours-window"]
    return [
        Record(
            name="equal_windows",
            metrics={
                "cpu_seconds": statistics.median(times),
                "rounds": times,
                "times_ours": statistics.median(other / own for other, own in zip(times, ours, strict=True)),
            },
            settings={**cell.settings(name), "window_each_side": None if name == "sdpa" else WINDOW},
            units={"cpu_seconds": "s", "rounds": "s"},
        )
        for name, times in seconds.items()
    ]


if __name__ == "__main__":
    torch.set_num_threads(1)
    for each in CELLS:
        append_records(sys.argv[1], measured(*each))
