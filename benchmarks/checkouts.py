"""Speed and memory of this checkout beside another one, turn about: what a change costs; appends records.

::

    python -m benchmarks.checkouts ../before            # a folder with another checkout, its kernels compiled
    python -m benchmarks.checkouts ../before --only minilm-float32-window-4096-inference

For each cell a process of each checkout makes the same model and the same text, both warm up, and then they take turns,
one waiting while the other computes. Their outputs must agree first. A ratio is seconds before over seconds after, so
that more than 1 is faster; seconds are the least of all turns, and a peak is that of a whole process.
"""

import argparse
import itertools
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TURNS, TURN_SECONDS = 7, 0.6  # a turn has as many passes as fit into its seconds, at least one
SHAPES: dict[str, dict[str, Any]] = {
    "minilm": {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1_536},
    "base": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3_072},
}
LENGTHS = {"inference": (128, 512, 4_096, 65_536), "training": (512, 4_096)}
CELLS = [
    f"{size}-{dtype}-{kind}-{length}-{work}"
    for work, lengths in LENGTHS.items()
    for length, size, dtype, kind in itertools.product(lengths, SHAPES, ("float32", "bfloat16"), ("window", "linear"))
]


def attention(kind: str, longest: int) -> dict[str, Any]:
    """Attention with a window of 64 beside slots, or the paper's with a shared E."""
    if kind == "linear":
        return {
            "projection": "linear",
            "projection_sharing": "layerwise",
            "projected_length": 256 if longest > 512 else 128,
            "projection_init": "normal",
        }
    slots = max(64, longest // 64)
    return {
        "projection": "mean",
        "attention_window": 64,
        "projected_length": slots,
        "memory_budget": 64.0,
        "sink_tokens": 1,
    }


def passes(size: str, dtype: str, kind: str, length: int, work: str) -> Callable[[], float]:
    """One pass of a model over one text, or a training step; gives the mean size of the output."""
    import torch

    from longform import LinformerConfig, LinformerModel, pack_weights

    torch.manual_seed(0)
    longest = max(length, 512)
    config = LinformerConfig(
        vocab_size=1_000,
        max_position_embeddings=longest,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        use_pooler=False,
        **SHAPES[size],
        **attention(kind, longest),
    )
    model, ids, of_dtype = LinformerModel(config), torch.randint(5, 1_000, (1, length)), getattr(torch, dtype)
    if work == "inference":
        model = pack_weights(model.eval().to(of_dtype))

        def infer() -> float:
            with torch.inference_mode():
                return model(ids).last_hidden_state.float().abs().mean().item()

        return infer

    def step() -> float:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=of_dtype == torch.bfloat16):
            hidden = model.train()(ids).last_hidden_state
        hidden.float().square().mean().backward()
        model.zero_grad()
        return hidden.float().abs().mean().item()

    return step


def serve(cell: str) -> None:
    """Body of a checkout's process: warm up, then a turn for every line of standard input."""
    import longform

    size, dtype, kind, length, work = cell.split("-")
    run = passes(size, dtype, kind, int(length), work)
    run()
    began = time.perf_counter()
    output = run()
    count = max(1, int(TURN_SECONDS / (time.perf_counter() - began)))
    print(json.dumps({"output": output, "package": longform.__file__}), flush=True)
    for _ in sys.stdin:
        began = time.perf_counter()
        for _ in range(count):
            run()
        seconds = (time.perf_counter() - began) / count
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"seconds": seconds, "peak_mib": peak}), flush=True)


def child(checkout: Path, cell: str) -> subprocess.Popen[str]:
    """A process in which ``import longform`` finds this checkout's."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    command = [sys.executable, __file__, "--serve", cell]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str], line: str = "") -> dict[str, Any]:
    """Answer of a process, to a line if one is given."""
    assert process.stdin
    assert process.stdout
    if line:
        print(line, file=process.stdin, flush=True)
    answer = process.stdout.readline()
    if not answer:
        raise SystemExit(f"{process.args} ended with status {process.wait()}; its error is above")
    return json.loads(answer)


def _check_first(first: list[dict[str, Any]], cell: str, checkouts: tuple[Path, Path]) -> None:
    """End the program where the outputs differ, or a package is another checkout's."""
    if not math.isclose(*(answer["output"] for answer in first), rel_tol=1e-2):
        raise SystemExit(f"{cell}: outputs differ: {first}")
    packages = [Path(answer["package"]) for answer in first]
    if not all(package.is_relative_to(path) for package, path in zip(packages, checkouts, strict=True)):
        raise SystemExit(f"longform was imported from elsewhere: {packages}")


def measured(before: Path, after: Path, cell: str, turns: int) -> dict[str, float]:
    """Seconds and peaks of both checkouts, and the ratio of their least seconds."""
    with child(before, cell) as of_before, child(after, cell) as of_after:
        processes = {"before": of_before, "after": of_after}
        _check_first([said(process) for process in processes.values()], cell, (before, after))
        found: dict[str, list[dict[str, float]]] = {name: [] for name in processes}
        for turn in range(turns):
            for name in sorted(processes, reverse=bool(turn % 2)):
                found[name].append(said(processes[name], "go"))
    seconds = {name: [each["seconds"] for each in done] for name, done in found.items()}
    ratios = [first / second for first, second in zip(seconds["before"], seconds["after"], strict=True)]
    peaks = {f"{name}_peak_mib": done[-1]["peak_mib"] for name, done in found.items()}
    least = {f"{name}_seconds": min(each) for name, each in seconds.items()}
    ratio = least["before_seconds"] / least["after_seconds"]
    return {**least, **peaks, "ratio": ratio, "median_ratio": statistics.median(ratios)}


def main() -> None:
    """Measure, append, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkouts", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("before", nargs="?", help="folder of the other checkout")
    parser.add_argument("--only", nargs="+", choices=CELLS, metavar="CELL", help=f"of {', '.join(CELLS)}")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--serve", choices=CELLS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(options.serve)
    if options.before is None or not (Path(options.before) / "src" / "longform").is_dir():
        parser.error(f"{options.before!r} is no checkout: it has no src/longform")
    from tqdm import tqdm

    from longform_lab.records import RECORDS, ROOT, Record, append_record

    before = Path(options.before).resolve()
    commit = subprocess.run(
        ["git", "-C", str(before), "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True
    )
    for cell in tqdm(options.only or CELLS, desc="checkouts", unit="cell"):
        metrics = measured(before, ROOT, cell, options.turns)
        settings = {"cell": cell, "before": commit.stdout.strip(), "turns": options.turns}
        append_record(RECORDS / "checkouts.jsonl", Record(name="checkouts", settings=settings, metrics=metrics))
        tqdm.write(f"{cell:45}{metrics['ratio']:6.3f}{metrics['median_ratio']:6.3f}  {metrics}")
    return None


if __name__ == "__main__":
    main()
