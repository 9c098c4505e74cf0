"""The window's Triton kernel beside its formula, its tiles, captured models, and the paper's Table 3, on a GPU.

::

    python -m benchmarks.gpu_kernels --records runs/gpu-check/gpu_kernels.jsonl --seconds 120

Values and gradients are compared with the formula's before anything is timed, on a short text. Medians by the GPU's own
clock; the floor of a call is its products over the rate of a product in the same process. In order of worth: the
kernel, its tiles, ``longform embed``, captured encoders, Table 3 (time as graphs, memory by the peak of a pass).

Axes: B texts, h heads, n tokens, S slots, d features of a head.
"""

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch import Tensor
from transformers import PreTrainedTokenizerFast

import longform
from benchmarks.gpu_timings import milliseconds, operations_a_second
from longform.functional.dispatch import use
from longform.functional.slots import Slots, leading_tokens, make_runs, with_exact_runs
from longform.functional.window import triton_kernel, windowed_attention
from longform.functional.window.triton_kernel import Tile
from longform.models.graphs import record
from longform_lab.records import Record, append_record
from longform_lab.speed import ours
from longform_lab.speed.full_attention import bert, twin
from longform_lab.speed.paper_table import SLOTS, TIME
from longform_lab.speed.precision import prepare, random_states
from longform_lab.speed.shapes import SIZES, Cell, Shape
from longform_lab.speed.worker import reason_of
from longform_text.cli.main import main as command
from longform_text.facts import commit

Found = Iterator[tuple[str, dict[str, Any], dict[str, float]]]  # what was measured, settings, numbers

LARGEST_ERROR = 0.02
COMMIT = os.environ.get("COMMIT")  # where the checkout came without its history
LENGTHS = (8_192, 65_536, 2_048, 32_768)
SELECTED = (0, 8)  # slots that each block of queries sees token by token
FORWARD = Tile(128, 64, 8, 3), Tile(128, 128, 8, 2), Tile(64, 64, 4, 3), Tile(128, 32, 4, 3)
BACKWARD = Tile(64, 64, 8, 2), Tile(64, 128, 8, 2), Tile(128, 64, 8, 2), Tile(32, 64, 4, 3)


class Window:
    """One call of attention with a window, as ``convert`` chooses it for the length; bfloat16 heads of 64."""

    def __init__(self, length: int, device: str, *, heads: int = 12, dim: int = 64, selected: int = 0) -> None:
        self.device, self.length, self.selected = device, length, selected
        shape = Shape(SIZES["base"], length, 256)
        self.window = shape.window
        most, dtype = shape.window_slots, torch.bfloat16 if device == "cuda" else torch.float32
        sizes = (-(-length // most),)
        where: Any = {"batch": 1, "length": length, "device": torch.device(device)}
        self.exact = leading_tokens(None, **where, sinks=1)
        runs = make_runs(None, self.exact.rest, **where, sizes=sizes, slots=most)
        self.slots = with_exact_runs(runs, self.exact)
        count = self.slots.count.shape[1]
        torch.manual_seed(0)
        self.leaves = [
            torch.randn(1, n, heads, dim, device=device).to(dtype).transpose(1, 2).requires_grad_()
            for n in (length, length, length, count, count)
        ]
        self.leaves.append(torch.zeros(heads, device=device, requires_grad=True))
        self.operations = 4.0 * length * heads * dim * (3 * self.window + count + selected * sizes[0])

    def forward(self) -> Tensor:
        """Out (1, h, n, d)."""
        memory = Slots(*self.leaves[3:5], None, self.slots)
        options: Any = {"window": self.window, "memory_bias": self.leaves[5], "exact": self.exact}
        options["selected"] = self.selected
        return windowed_attention(*self.leaves[:3], lambda: memory, **options)[0]

    def training(self) -> list[Tensor]:
        """Out and the gradients of all that goes in."""
        out = self.forward()
        return [out, *torch.autograd.grad(out, self.leaves, torch.ones_like(out))]

    def inference(self) -> Tensor:
        """``forward`` without gradients."""
        with torch.no_grad():
            return self.forward()


def kernels(device: str, lengths: Sequence[int], rate: float) -> Found:
    """Both kernels: inference, as a graph too, and forward and backward."""
    names = ("triton", "formula") if device == "cuda" else ("sdpa_training", "formula")
    for length, selected in product(lengths, SELECTED):
        call = Window(length, device, selected=selected)
        for name in names:
            with use(window=name):
                found = {"inference_ms": timed(call.inference, device), "training_ms": timed(call.training, device)}
                if device == "cuda":
                    found["graph_ms"] = timed(record(call.inference)[0], device)
            found["floor_ms"] = 1_000 * call.operations / rate
            yield "window", {"kernel": name, "length": length, "window": call.window, "selected": selected}, found


def agreement(device: str) -> Found:
    """The largest relative errors of a kernel's values and gradients from the formula's."""
    name = "triton" if device == "cuda" else "sdpa_training"
    for selected in SELECTED:
        call = Window(3_000 if device == "cuda" else 1_000, device, selected=selected)
        with use(window="formula"):
            expected = call.training()
        with use(window=name):
            found = call.training()
        pairs = zip(found, expected, strict=True)
        error = max(float(((one - other).float().norm() / other.float().norm()).detach()) for one, other in pairs)
        yield "agreement", {"kernel": name, "selected": selected}, {"error": error}
        if not error <= LARGEST_ERROR:
            print(f"{name} is {error:.2g} away from the formula", flush=True)


def tiles(device: str) -> Found:
    """Other tiles than those of the kernel's table, for 8,192 and 65,536 tokens."""
    if device != "cuda":
        return
    own = triton_kernel.TILES[128]
    for length in LENGTHS[:2]:
        call = Window(length, device)
        pairs = [own, *((tile, own[1]) for tile in FORWARD), *((own[0], tile) for tile in BACKWARD)]
        for pair in pairs:
            triton_kernel.TILES[128] = pair
            with use(window="triton"):
                graph = timed(record(call.inference)[0], device)
                found = {"graph_ms": graph, "training_ms": timed(call.training, device)}
            yield "tiles", {"length": length, "forward": list(pair[0]), "backward": list(pair[1])}, found
    triton_kernel.TILES[128] = own


def encoders(device: str, dry: bool) -> Found:
    """Tokens a second of a captured LinformerModel over batches of changing lengths, beside the same without graphs."""
    length, batch = (64, 2) if dry else (2_048, 4)
    cell = cell_of(length, 8 if dry else 256, device, dry, batch=batch)
    for name, build in (("window", ours.windowed), ("linear", lambda shape: ours.pure(shape, projection="linear"))):
        model: Any = prepare(build(cell.shape).eval(), cell).model
        lengths = [length - step for step in range(0, length // 10, max(1, length // 80))]
        batches = []
        for longest in lengths:
            ids = torch.randint(5, model.config.vocab_size, (batch, longest), device=device)
            mask = torch.ones_like(ids)
            mask[1:, longest - longest // 20 :] = 0
            batches.append({"input_ids": ids, "attention_mask": mask})

        def all_batches(model: Any = model, batches: Any = batches) -> None:
            for given in batches:
                model(**given)

        found = {}
        for kind in ("ordinary", "captured"):
            if kind == "captured":
                longform.capture(model)
            with torch.no_grad():
                for _ in range(3):
                    all_batches()
                found[f"{kind}_ms"] = timed(all_batches, device)
        yield "encoder", {"encoder": name, "batch": batch, "longest": length, "passes": len(batches)}, found


def embedding(device: str, dry: bool) -> Found:
    """Tokens a second of ``longform embed``, loading and writing included, beside those of a captured pass."""
    length, texts, batch = (32, 8, 2) if dry else (2_048, 1_000, 16)
    cell = cell_of(length, 8 if dry else 256, device, dry, batch=batch)
    model: Any = ours.pure(cell.shape, projection="weighted_mean").model
    words = [f"w{number}" for number in range(1_000)]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {word: place for place, word in enumerate((*special, *words))}
    backend = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = Whitespace()
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), special, strict=True))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=length, **names)
    with TemporaryDirectory() as place:
        folder, source = Path(place, "model"), Path(place, "texts.jsonl")
        model.resize_token_embeddings(len(vocabulary))
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        draw = random.Random(0)
        rows = (json.dumps({"text": " ".join(draw.choices(words, k=length))}) for _ in range(texts))
        source.write_text("\n".join(rows))
        began = time.perf_counter()
        given = [str(folder), str(source), "--output", str(Path(place, "vectors.parquet")), "--device", device]
        if command(["embed", *given, "--dtype", "auto"]) != 0:
            raise RuntimeError("longform embed failed")
        seconds = time.perf_counter() - began
    passes = passes_of(lambda shape: ours.pure(shape, projection="weighted_mean"), cell)
    alone = 1_000 * batch * length / passes["graph_ms" if device == "cuda" else "eager_ms"]
    found = {"seconds": seconds, "command_tokens": texts * length / seconds, "pass_tokens": alone}
    yield "embed", {"texts": texts, "length": length, "batch": batch}, found


def table3(device: str, dry: bool) -> Found:
    """A pass of each n and k, and full attention fused and unfused: milliseconds, and MiB above the loaded model."""
    lengths, slots = ((128,), (16,)) if dry else (sorted(TIME, reverse=True), SLOTS)
    for n in lengths:
        kinds = [(f"k = {k}", k, ours_of) for k in slots if 2 * k <= n]
        for name, k, build in [("sdpa", 256, twin), ("unfused", 256, unfused), *kinds]:
            yield "table 3", {"encoder": name, "length": n}, passes_of(build, cell_of(n, k, device, dry))


def cell_of(length: int, slots: int, device: str, dry: bool, *, batch: int = 1) -> Cell:
    """A pass of an encoder of base size in bfloat16, in the dry form of a tiny one."""
    dtype, size = "bfloat16" if device == "cuda" else "float32", "tiny" if dry else "base"
    common: Any = {"mode": "eager", "work": "inference", "device": device, "threads": 1}
    return Cell(length=length, batch=batch, slots=slots, dtype=dtype, size=size, **common)


def ours_of(shape: Shape) -> Any:
    """The paper's Linformer, layerwise sharing."""
    return ours.pure(shape, projection="linear", sharing="layerwise")


def unfused(shape: Shape) -> Any:
    """BERT with attention that writes all its weights, the paper's baseline."""
    return bert(shape, "eager")


def passes_of(build: Callable[[Shape], Any], cell: Cell) -> dict[str, float]:
    """Milliseconds of a pass, as a graph on a GPU, and MiB that it takes above the model."""
    with torch.device(cell.device):
        model = prepare(build(cell.shape).eval(), cell)
    hidden, on_gpu = random_states(cell), cell.device == "cuda"
    with torch.inference_mode():
        model(hidden)
        if on_gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated() if on_gpu else 0
        model(hidden)
        peak = torch.cuda.max_memory_allocated() - before if on_gpu else 0
        found = {"eager_ms": timed(lambda: model(hidden), cell.device), "peak_mib": peak / 2**20}
        if on_gpu:
            found["graph_ms"] = timed(record(lambda: model(hidden))[0], cell.device)
    return found


def timed(action: Callable[[], object], device: str) -> float:
    """The median time of a pass, after one that is not counted."""
    action()
    return milliseconds(action, device)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and append what the time allows; what does not run has its reason in its line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_kernels", description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=Path, help="file to append to")
    parser.add_argument("--seconds", type=float, default=120.0, help="after which nothing is begun")
    parser.add_argument("--dry", action="store_true", help="small sizes, to see that all of it runs")
    options = parser.parse_args(arguments)
    began, device = time.monotonic(), "cuda" if torch.cuda.is_available() else "cpu"
    rate, dry = operations_a_second(device), options.dry
    lengths = (256,) if dry else LENGTHS
    parts = (
        agreement(device), kernels(device, lengths, rate), tiles(device), embedding(device, dry),
        encoders(device, dry), table3(device, dry),
    )  # fmt: skip
    for part in parts:
        try:
            for name, settings, found in part:
                print(name, settings, {key: float(f"{value:.4g}") for key, value in found.items()}, flush=True)
                if options.records:
                    units = {key: key.rpartition("_")[2] for key in found if "_" in key}
                    given: Any = {"metrics": found, "settings": settings | {"device": device}, "units": units}
                    append_record(options.records, Record(name=f"gpu_{name}", commit=COMMIT or commit(), **given))
                if time.monotonic() - began > options.seconds:
                    print("the time is over", flush=True)
                    return 0
        except Exception as error:
            print(f"{part}: {reason_of(error)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
