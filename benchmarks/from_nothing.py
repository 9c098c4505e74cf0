"""Masked-language models from nothing, one kind of attention beside another on the same batches; appends records.

::

    python -m benchmarks.from_nothing --prepare TEXTS.parquet             # token ids, once
    python -m benchmarks.from_nothing weighted_mean+conv5 --seed 1        # one training
    python -m benchmarks.from_nothing_queue --seconds 420                 # what is worth knowing first, in that order

6 layers of width 384, rotary positions, norms before; 2,000 steps of 16,384 tokens, AdamW 1e-3 with a tenth of warm-up
and a cosine, bfloat16 autocast on a GPU; ``--size bytes``, in both commands, is 2 layers of width 128 for a CPU. The
texts that are kept aside and the order of those that are read do not depend on the length, nor batches and masks on the
kind of attention. After each tenth of the steps (``--evaluations``) the texts aside are read.

Axes: B texts of a step, n tokens, m hidden tokens.
"""

import argparse
import math
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import longform
from benchmarks.captured_passes import FALLBACK, TrainingPass
from longform import LinformerConfig, LinformerForMaskedLM
from longform.errors import require
from longform_lab.records import Record, append_record
from longform_text.facts import commit, hardware

DATA = Path(".gpu-data/wiki.npy")
VOCABULARY, BEGINNING, MASK, FIRST_WORD = 8_192, 0, 1, 2
BYTES = 256 + FIRST_WORD  # the vocabulary of the size of that name
MOST_TOKENS = 45 * 2**20 // 2  # of two bytes: what travels to a lent machine is limited
LONGEST = 4_096  # texts are shared out in blocks of so many tokens, whatever n
KEPT_ASIDE = 64  # blocks
HIDDEN = 0.15
WEIGHT_DECAY = 0.01
FULL, CONVOLUTION, NETWORK_RATE = "full", "conv", "@network"
ATTENTION: dict[str, dict[str, Any]] = {  # fields of LinformerConfig
    FULL: {"projection": "mean"},  # and a window across the whole text
    "linear": {"projection": "linear", "projection_init": "block_mean"},
    "mean": {"projection": "mean"},
    "weighted_mean": {"projection": "weighted_mean"},
    "window": {"projection": "mean", "attention_window": 32},
    "weighted_mean_window16": {"projection": "weighted_mean", "attention_window": 16},
    "weighted_mean_window32": {"projection": "weighted_mean", "attention_window": 32},
    "weighted_mean_window64": {"projection": "weighted_mean", "attention_window": 64},
    "weighted_mean_window64_selected8": {"projection": "weighted_mean", "attention_window": 64, "selected_slots": 8},
}
SIZES: dict[str, dict[str, Any]] = {
    "small": {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 6, "intermediate_size": 1_536},
    "bytes": {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512},
    "tiny": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64},
}


def fields_of(variant: str, length: int) -> dict[str, Any]:
    """Fields of LinformerConfig of ``variant``: a name of ATTENTION, perhaps with "+conv5" or "@network" behind it."""
    name, _, rest = variant.removesuffix(NETWORK_RATE).partition("+")
    taps = rest.removeprefix(CONVOLUTION)
    if name not in ATTENTION or (rest and not (rest.startswith(CONVOLUTION) and taps.isdigit())):
        raise SystemExit(f'no attention "{variant}"; there are {", ".join(ATTENTION)}, each also with +{CONVOLUTION}5')
    fields = ATTENTION[name] | ({"attention_window": length} if name == FULL else {})
    return fields | {"short_convolution": int(taps) if rest else 0}


def vocabulary_of(size: str) -> int:
    """Number of token ids of a model of ``size``."""
    return BYTES if size == "bytes" else VOCABULARY


def make_model(variant: str, *, length: int, slots: int, size: str) -> LinformerForMaskedLM:
    """A model with new weights, without dropout; the head is the word embeddings alone."""
    config = LinformerConfig(
        **SIZES[size],
        **fields_of(variant, length),
        vocab_size=vocabulary_of(size),
        max_position_embeddings=length,
        projected_length=slots,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        normalization="pre",
        embed_norm=False,
        layer_norm_eps=1e-5,
        type_vocab_size=0,
        pad_token_id=None,
        prediction_head="eurobert",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return LinformerForMaskedLM(config)


def make_optimiser(model: LinformerForMaskedLM, rate: float, *, own_rates: bool) -> torch.optim.AdamW:
    """AdamW, vectors without decay; ``own_rates``: as longform.parameter_groups has them, E's and F's among them."""
    grouped = getattr(longform, "parameter_groups", None)
    if own_rates and grouped is not None:
        groups = grouped(model, lr=rate, weight_decay=WEIGHT_DECAY)
    else:
        kinds = [(WEIGHT_DECAY, [p for p in model.parameters() if p.dim() > 1])]
        kinds += [(0.0, [p for p in model.parameters() if p.dim() < 2])]
        groups = [{"params": parameters, "weight_decay": decay} for decay, parameters in kinds]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.98), fused=True)


class Batch(NamedTuple):
    """``ids`` long (B, n), some hidden; ``places`` long (m): of the B * n; ``labels`` long (m): what was there."""

    ids: Tensor
    places: Tensor
    labels: Tensor


def hide(texts: Tensor, generator: torch.Generator, vocabulary: int = VOCABULARY) -> Batch:
    """Some tokens of ``texts`` int32 (B, n) hidden: of these 0.8 become the mask, 0.1 another word."""
    flat = texts.flatten().long()
    count = round(HIDDEN * texts.shape[1]) * texts.shape[0]
    where: Any = {"device": flat.device, "generator": generator}
    places = torch.randperm(len(flat), **where)[:count]
    labels, fate = flat[places], torch.rand(count, **where)
    other = torch.where(fate < 0.9, torch.randint(FIRST_WORD, vocabulary, (count,), **where), labels)
    flat[places] = torch.where(fate < 0.8, MASK, other)
    return Batch(flat.view_as(texts), places, labels)


def texts_of(tokens: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Texts to learn from and those kept aside, (N, n) each, of ``tokens`` int32."""
    blocks = tokens[: len(tokens) // LONGEST * LONGEST].view(-1, LONGEST)
    order = torch.randperm(len(blocks), generator=torch.Generator().manual_seed(1)).to(tokens.device)
    aside = min(KEPT_ASIDE, len(blocks) // 4)
    return blocks[order[aside:]].reshape(-1, length), blocks[order[:aside]].reshape(-1, length)


def batches(texts: Tensor, size: int, seed: int, vocabulary: int = VOCABULARY) -> Iterator[Batch]:
    """Batches of ``size`` texts, without end; texts of (N, n), in a new order each time."""
    generator = torch.Generator(device=texts.device).manual_seed(seed + 1)
    while True:
        order = torch.randperm(len(texts), device=texts.device, generator=generator)
        for rows in order.split(size)[: len(order) // size]:
            yield hide(texts[rows], generator, vocabulary)


@torch.no_grad()
def loss_aside(training: TrainingPass, texts: Tensor, size: int, vocabulary: int) -> float:
    """The mean loss of texts (N, n), in nats; the same tokens are hidden each time."""
    generator = torch.Generator(device=texts.device).manual_seed(5)
    parts = (part for part in texts.split(size) if len(part) == size)
    losses = [training.loss(*hide(part, generator, vocabulary)) for part in parts]
    return torch.stack(losses).mean().item()


def rate_at(step: int, steps: int) -> float:
    """The part of the highest rate: up over the first tenth, then down a cosine."""
    warm = max(1, steps // 10)
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / (steps - warm)))


def train(options: argparse.Namespace, tokens: Tensor) -> dict[str, Any]:
    """One training: its metrics. It ends early, without a final loss, where the process is asked to end."""
    asked_to_end: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: asked_to_end.append(number))
    torch.manual_seed(options.seed)
    model = make_model(options.variant, length=options.length, slots=options.slots, size=options.size).to(tokens.device)
    optimiser = make_optimiser(model, options.learning_rate, own_rates=not options.variant.endswith(NETWORK_RATE))
    highest = [group["lr"] for group in optimiser.param_groups]
    (texts, aside), size = texts_of(tokens, options.length), options.tokens_per_step // options.length
    vocabulary = vocabulary_of(options.size)
    given = batches(texts, size, options.seed, vocabulary)
    training = TrainingPass(model, next(given), mode=options.mode)
    options.mode = training.mode
    began, curve, step = time.perf_counter(), [], 0
    for step in range(1, options.steps + 1):
        for group, rate in zip(optimiser.param_groups, highest, strict=True):
            group["lr"] = rate * rate_at(step - 1, options.steps)
        training(next(given))
        optimiser.step()
        if step % max(1, options.steps // options.evaluations) == 0:
            curve.append(finite(loss_aside(training, aside, size, vocabulary)))
            say(options, f"step {step:,}: {curve[-1]}, {time.perf_counter() - began:.0f} s")
        if asked_to_end:
            break
    seconds = time.perf_counter() - began
    return {
        "loss": curve[-1] if curve and step == options.steps else None,
        "curve": curve,
        "steps_done": step,
        "tokens_per_second": step * options.tokens_per_step / seconds,
        "minutes": seconds / 60,
        "memory_gib": torch.cuda.max_memory_allocated() / 2**30 if tokens.is_cuda else None,
        "parameters": sum(p.numel() for p in model.parameters()),
    }


def finite(loss: float) -> float | None:
    """A loss that a record can hold; None for NaN, of a training that diverged."""
    return round(loss, 4) if math.isfinite(loss) else None


def say(options: argparse.Namespace, text: str) -> None:
    """One line for people."""
    print(f"{options.variant} n={options.length} k={options.slots} seed {options.seed}: {text}", flush=True)


def prepare(texts: Path, output: Path, size: str) -> None:
    """Token ids of a Parquet file's column "text", uint16; 0 begins a text, 1 is the mask. They are those of a BPE
    trained on a quarter, or bytes.
    """
    documents = require("pyarrow.parquet", extra="cli").read_table(texts)["text"].to_pylist()
    output.parent.mkdir(parents=True, exist_ok=True)
    tokens = byte_ids(documents) if size == "bytes" else word_ids(documents)
    np.save(output, tokens[:MOST_TOKENS])


def byte_ids(documents: Sequence[str]) -> np.ndarray:
    """Bytes of UTF-8, each moved up by FIRST_WORD."""
    parts = [np.frombuffer(text.encode(), np.uint8).astype(np.uint16) + FIRST_WORD for text in documents]
    return np.concatenate([part for text in parts for part in (np.array([BEGINNING], np.uint16), text)])


def word_ids(documents: Sequence[str]) -> np.ndarray:
    """Ids of a byte-level BPE."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=["[CLS]", "[MASK]"], initial_alphabet=alphabet)
    tokenizer.train_from_iterator(documents[::4], trainer)
    parts = []
    for start in range(0, len(documents), 500):
        ids = [[BEGINNING, *one.ids] for one in tokenizer.encode_batch(documents[start : start + 500])]
        parts.append(np.array([token for text in ids for token in text], dtype=np.uint16))
    return np.concatenate(parts)


def read_tokens(path: Path) -> Tensor:
    """Token ids, int32, on the GPU where there is one."""
    if not path.exists():
        raise SystemExit(f"{path} does not exist; make it: python -m benchmarks.from_nothing --prepare TEXTS.parquet")
    return torch.from_numpy(np.load(path).astype(np.int32)).to("cuda" if torch.cuda.is_available() else "cpu")


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Options on the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.from_nothing", description=__doc__.splitlines()[0])
    parser.add_argument("variant", nargs="?", default=FULL, help=f"{', '.join(ATTENTION)}; + {CONVOLUTION}")
    parser.add_argument("--prepare", type=Path, help="Parquet with a column text, from which --data is made")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--records", type=Path, help="file to append to")
    parser.add_argument("--mode", choices=("eager", *FALLBACK), default="graph")
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--evaluations", type=int, default=10)
    for name, value in {"seed": 0, "length": 512, "slots": 128, "steps": 2_000, "tokens-per-step": 16_384}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train one model and append its record, or prepare the data."""
    options = options_of(arguments)
    if options.prepare:
        prepare(options.prepare, options.data, options.size)
        return 0
    torch.set_float32_matmul_precision("high")
    tokens = read_tokens(options.data)
    metrics = train(options, tokens)
    settings = {name: value for name, value in vars(options).items() if name not in ("prepare", "data", "records")}
    record = Record(
        name="from_nothing",
        metrics=metrics,
        hardware=hardware(tokens.device),
        settings=settings | {"tokens": len(tokens), "own_rates": hasattr(longform, "parameter_groups")},
        units={"loss": "nats", "minutes": "min", "memory_gib": "GiB"},
        commit=os.environ.get("COMMIT") or commit(),
    )
    say(options, f"loss {record.metrics['loss']}, {record.metrics['tokens_per_second']:,.0f} tokens a second")
    if options.records:
        append_record(options.records, record)
    return 0


if __name__ == "__main__":
    sys.exit(main())
