"""Smaller models: MiniLM converted with some of each layer's heads, before and after healing, and the time of a pass.

    python -m longform_lab.experiments.kept_heads score 8 --data FOLDER --output runs/kept_heads --tokens 1000000
    python -m longform_lab.experiments.kept_heads time 12 10 8 6 4 --data FOLDER

``score``: STS-B dev and the cosine to the original, as converted, and with ``--tokens`` healed on Wikipedia articles.
``--left-out``: what ``longform convert`` chooses, or for comparison any heads, or those whose maps are the most alike,
by ``--spectrum``, a folder of longform spectrum. ``time``: CPU milliseconds of a text in one thread, packed as for a
user, the models in turn; each must give what it gives unpacked, in float32. Each appends records.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from tqdm import tqdm
from transformers import AutoModel

import longform
from longform.conversion.convert import ConversionResult
from longform.data.bundled import bundled_encoder_folder
from longform.evaluation.embeddings import agreement, similarity_spearman
from longform.inference.encoders import Encoder
from longform.inference.loading import pick_dtype
from longform.models.modeling_linformer import LinformerPreTrainedModel
from longform.training.distillation import distill
from longform.training.settings import DistillationSettings
from longform_lab.experiments.quality import HELD_OUT, articles, encoder_of
from longform_lab.records import RECORDS, Record, append_record
from longform_lab.spectrum.heads import followers
from longform_lab.spectrum.results import read_result

LAYERS, HEADS, TEXTS = 6, 12, 16
LENGTHS = {128: 60, 512: 24, 4_096: 8}  # tokens -> passes of each model
DOCUMENTS = 30  # held out, for the cosine
CLOSE = 0.05  # of the norm of the last hidden states


def heads_of(kept: int, choice: str, spectrum: Path | None, data: Path) -> dict[str, Any]:
    """Options of ``longform.convert``: ``kept`` heads of each layer, chosen as ``choice`` says."""
    if choice == "the least needed":
        return {"heads": kept, "head_texts": articles(data)[:TEXTS]}
    if choice == "the most alike":
        assert spectrum is not None, "--spectrum says which heads are alike"
        compared = read_result(next((spectrum / "runs").glob("*.jsonl"))).heads
        assert compared is not None
        pairs = followers(compared.similarity, HEADS, across=False)
        return {"heads": heads_that_stay(pairs, layers=LAYERS, heads=HEADS, keep=kept)}
    generator = torch.Generator().manual_seed(int(choice.removeprefix("any (seed ").removesuffix(")")))
    return {"heads": [torch.randperm(HEADS, generator=generator)[:kept].tolist() for _ in range(LAYERS)]}


def heads_that_stay(pairs: Sequence[tuple[int, int]], *, layers: int, heads: int, keep: int) -> list[list[int]]:
    """Of each layer's ``heads`` the ``keep`` that are left when those that follow first in ``pairs`` are taken out.

    ``pairs``: of heads of one layer (``followers``); what comes back counts heads of each layer from 0.
    """
    out: list[list[int]] = [[] for _ in range(layers)]
    for follower, _ in pairs:
        layer, head = divmod(follower, heads)
        if len(out[layer]) < heads - keep:
            out[layer].append(head)
    return [[head for head in range(heads) if head not in gone] for gone in out]


def converted(kept: int, choice: str, options: argparse.Namespace) -> ConversionResult:
    """MiniLM for 4,096 tokens, as ``longform convert`` makes it."""
    heads = {} if kept == HEADS else heads_of(kept, choice, options.spectrum, options.data)
    return longform.convert(bundled_encoder_folder(), **heads)


def score(options: argparse.Namespace) -> None:
    """A record as converted, and one when healed."""
    for kept in options.heads:
        made = converted(kept, options.left_out, options)
        choice = "none" if made.report.heads_left_out is None else options.left_out
        settings: dict[str, Any] = {"kept": kept, "left_out": choice, "healed_tokens": 0}
        settings |= {"max_length": made.report.max_length}
        keep("kept_heads", settings, scores(made, made.model, options.data))
        if options.tokens:
            how = DistillationSettings(
                max_tokens=options.tokens, length=options.length, learning_rate=options.rate, evaluations=2
            )
            texts, began = articles(options.data)[:-HELD_OUT], time.process_time()
            folder = options.output / f"{kept}-{choice}-{options.tokens}".replace(" ", "-")
            done = distill(made, bundled_encoder_folder(), texts, how, output=folder)
            minutes = (time.process_time() - began) / 60
            settings |= {"healed_tokens": options.tokens, "crops": options.length, "learning_rate": options.rate}
            keep("kept_heads", settings, {**scores(made, done.student, options.data), "minutes": minutes})


def scores(made: ConversionResult, model: Any, data: Path) -> dict[str, float]:
    """STS-B dev (Spearman x 100), the cosine to the original, and the parameters, in all and in attention."""
    encoder = encoder_of(model.float(), made.tokenizer)
    pairs = pd.read_parquet(data / "stsb_dev.parquet")
    first, second = (encoder.encode(column.tolist()) for column in (pairs.sentence1, pairs.sentence2))
    texts, expected = originals_own(data)
    attention = sum(p.numel() for name, p in model.named_parameters() if ".attention." in name)
    return {
        "sts_spearman": 100 * similarity_spearman(first, second, pairs.score),
        "cosine": agreement(encoder.values(texts, strategy="cut", limit=512), expected).mean,
        "parameters": model.num_parameters(), "attention_parameters": attention,
    }  # fmt: skip


@cache
def originals_own(data: Path) -> tuple[list[str], Any]:
    """Held-out articles and the original's vectors of them, cut at 512 tokens."""
    texts = articles(data)[-DOCUMENTS:]
    return texts, Encoder.from_pretrained(bundled_encoder_folder()).values(texts, strategy="cut", limit=512)


def keep(name: str, settings: dict[str, Any], metrics: dict[str, Any]) -> None:
    """Append a record and print it."""
    append_record(RECORDS / f"{name}.jsonl", Record(name=name, settings=settings, metrics=metrics))
    print(name, settings, metrics, flush=True)


def packed_for_inference(made: ConversionResult, folder: Path) -> LinformerPreTrainedModel:
    """The model as a command of inference loads it with ``--dtype auto``."""
    made.model.save_pretrained(folder)
    dtype = pick_dtype("auto", torch.device("cpu"))
    return longform.pack_weights(AutoModel.from_pretrained(folder, dtype=dtype).eval())


@torch.inference_mode()
def check(packed: Any, plain: Any, ids: torch.Tensor) -> float:
    """The relative difference of last hidden states. Raises AssertionError where they are not the same."""
    found, expected = (model(input_ids=ids).last_hidden_state.float() for model in (packed, plain))
    difference = float((found - expected).norm() / expected.norm())
    assert difference < CLOSE, f"packed, it differs by {difference:.3f}: nothing is timed"
    return difference


@torch.inference_mode()
def milliseconds(models: dict[int, Any], ids: torch.Tensor, passes: int) -> dict[int, float]:
    """The median of a pass of each model, in turn; of CPU time."""
    taken: dict[int, list[float]] = {kept: [] for kept in models}
    for number in tqdm(range(passes + 2), desc=f"{ids.shape[1]:,} tokens"):
        for kept, model in models.items():
            began = time.process_time()  # of the CPU: others' work on the machine is not in it
            model(input_ids=ids)
            if number >= 2:  # warm
                taken[kept].append(1_000 * (time.process_time() - began))
    return {kept: statistics.median(each) for kept, each in taken.items()}


def timed(options: argparse.Namespace) -> None:
    """A record for each model and length."""
    torch.set_num_threads(1)
    made = {kept: converted(kept, "any (seed 0)", options) for kept in options.heads}
    ids = torch.randint(1_000, 20_000, (1, max(LENGTHS)), generator=torch.Generator().manual_seed(0))
    models = {kept: packed_for_inference(each, options.output / str(kept)) for kept, each in made.items()}
    differences = {
        (kept, length): check(models[kept], made[kept].model, ids[:, :length]) for kept in models for length in LENGTHS
    }
    for length, passes in LENGTHS.items():
        for kept, median in milliseconds(models, ids[:, :length], passes).items():
            settings = {"kept": kept, "tokens": length, "passes": passes, "dtype": str(models[kept].dtype)}
            metrics = {"milliseconds": median, "difference": differences[kept, length]}
            keep("kept_heads_time", settings, metrics)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one measurement."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    for name, run in (("score", score), ("time", timed)):
        command = commands.add_parser(name)
        command.add_argument("heads", type=int, nargs="+", help="heads that each layer keeps")
        command.add_argument("--spectrum", type=Path, default=None, help="folder of longform spectrum")
        command.add_argument("--data", type=Path, required=True, help="folder of the parquet files")
        command.add_argument("--output", type=Path, default=Path("runs/kept_heads"))
        command.set_defaults(run=run)
        if name == "score":
            command.add_argument("--tokens", type=int, default=0, help="to heal on; 0: as converted alone")
            command.add_argument("--length", type=int, default=512, help="tokens of the longest crop")
            command.add_argument("--rate", type=float, default=None, help="learning rate; default: that of distill")
            command.add_argument("--left-out", default="the least needed", help='or "the most alike", "any (seed 0)"')
    options = parser.parse_args(arguments)
    options.run(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
