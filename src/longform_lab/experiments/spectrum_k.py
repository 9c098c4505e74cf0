"""Spectrum-chosen k against uniform k at the same total, and the accuracy, time and memory of the spectrum itself.

    python -m longform_lab.experiments.spectrum_k check runs/spectrum --data FOLDER
    python -m longform_lab.experiments.spectrum_k choices runs/spectrum/many/runs/NAME.jsonl --data FOLDER
    python -m longform_lab.experiments.spectrum_k ranks runs/spectrum/many/runs/NAME.jsonl --data FOLDER

``choices``: the bundled MiniLM is converted without training and without a window, and its embeddings are compared with
the original's. Two projections: "mean", whose slots are runs of whole tokens of one size, so that only some k exist;
and "linear" as it starts, block means of any k. Beside the cosine stands the error that each layer makes alone.
``ranks``: the same with every map replaced by the best one of rank k, which is what the spectrum speaks of.
``check`` makes runs/spectrum/many, and runs/spectrum/few of fewer texts: time, peak memory of both, and singular values
against numpy's SVD in float64.
One record each in benchmarks/records/spectrum_k.jsonl and spectrum.jsonl.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModel, AutoTokenizer

import longform
from longform.data.bundled import bundled_encoder_folder
from longform.evaluation.embeddings import agreement
from longform.inference.encoders import Encoder
from longform.layers.sequence_projection import block_mean_matrix
from longform.spectrum.capture import LayerAttention, captured_layers
from longform.spectrum.choose import allowed_slots, head_k_at_total, k_at_total, kept_share
from longform.spectrum.singular_values import singular_values
from longform_lab.experiments.quality import articles, encoder_of
from longform_lab.experiments.rank_k_encoder import rank_k_cosines
from longform_lab.records import RECORDS, Record, append_record
from longform_lab.spectrum.heads import inside_and_across
from longform_lab.spectrum.results import RunResult, read_result
from longform_lab.spectrum.settings import OpenedModel

TOKENS = 512
SAMPLE = 2  # texts whose every singular value is compared
FEW, MANY = 20, 100  # texts after which memory is compared


def keep(name: str, settings: dict[str, Any], metrics: dict[str, Any]) -> None:
    """Append a record and print it."""
    append_record(RECORDS / f"{name}.jsonl", Record(name=name, metrics=metrics, settings=settings))
    print(name, settings, metrics, flush=True)


def opened_encoder() -> OpenedModel:
    """The bundled encoder with attention weights."""
    folder = bundled_encoder_folder()
    model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    return OpenedModel(model, AutoTokenizer.from_pretrained(folder), TOKENS)


def layers_of(opened: OpenedModel, texts: Sequence[str]) -> Iterator[LayerAttention]:
    """The attention of every layer on every text, cut at 512 tokens."""
    for text in texts:
        ids = opened.tokenizer(text, truncation=True, max_length=TOKENS, return_tensors="pt")["input_ids"]
        yield from captured_layers(opened.model, ids)


def layer_errors(texts: Sequence[str], candidates: Sequence[int]) -> Tensor:
    """|softmax(Q (E K)ᵀ) E V - P V| / |P V| of each layer alone, for E of block means: (layers, candidates).

    Measured on the original's own hidden states, so that no error of an earlier layer counts; mean over texts.
    """
    opened = opened_encoder()
    matrices = [block_mean_matrix(k, TOKENS) for k in candidates]
    total = torch.zeros(opened.model.config.num_hidden_layers, len(candidates), dtype=torch.float64)
    for layer in layers_of(opened, texts):
        assert layer.values is not None
        assert layer.logits is not None
        full = layer.probabilities @ layer.values
        for place, matrix in enumerate(matrices):  # Q (E K)ᵀ = (Q Kᵀ) Eᵀ
            short = (layer.logits @ matrix.T).softmax(-1) @ (matrix @ layer.values)
            total[layer.layer, place] += float((short - full).norm() / full.norm())
    return total / len(texts)


def interpolated(errors: Tensor, candidates: Sequence[int]) -> Tensor:
    """Errors (layers, candidates), made falling, at every k from 1 to 512: (layers, 512)."""
    falling = errors.cummin(1).values.numpy()
    every = np.arange(1, TOKENS + 1)
    return torch.from_numpy(np.stack([np.interp(every, candidates, row) for row in falling]))


def ways(run: RunResult, errors: Tensor, uniform: int, *, pooled: bool) -> dict[str, Any]:
    """Ways to share out layers x ``uniform`` slots: name -> k of each layer, or of each head."""
    cumulative = run.spectrum.cumulative
    layers, total = len(cumulative), len(cumulative) * uniform
    spectrum = k_at_total(cumulative.mean(1), total, pooled=pooled)
    return {
        "the same everywhere": [uniform] * layers,
        "spectrum, per layer": spectrum,
        "spectrum, layers reversed": spectrum[::-1],
        "spectrum, per head": head_k_at_total(cumulative, total, pooled=pooled),
        "least error of a layer": k_at_total(1 - errors, total, pooled=pooled),
    }


def choices(options: argparse.Namespace) -> None:
    """A record for each way to choose k and each projection."""
    run = read_result(options.path)
    curves = run.spectrum.cumulative.mean(1)
    texts = articles(options.data)
    held_out = texts[-options.documents :]
    teacher = Encoder.from_pretrained(bundled_encoder_folder()).values(held_out, strategy="cut", limit=TOKENS)
    candidates = [slots for slots in allowed_slots(TOKENS, pooled=True) if slots >= 8]
    errors = interpolated(layer_errors(texts[:8], candidates), candidates)
    for projection, pooled in (("mean", True), ("linear", False)):
        for name, chosen in ways(run, errors, options.uniform, pooled=pooled).items():
            by_head = isinstance(chosen[0], list)
            result = longform.convert(
                bundled_encoder_folder(), max_length=TOKENS, projected_length=chosen, projection=projection,
                attention_window=None, sink_tokens=options.sinks, sharing="none" if by_head else "headwise",
            )  # fmt: skip
            student = encoder_of(result.model, result.tokenizer)
            same = agreement(student.values(held_out, strategy="cut", limit=TOKENS), teacher)
            mean_k = [sum(layer) / len(layer) for layer in chosen] if by_head else chosen
            metrics = {
                "cosine": same.mean, "lowest": same.lowest, "total": round(sum(mean_k)),
                "least_share": None if by_head else min(kept_share(curves, chosen)),
                "layer_error": None if by_head else float(np.mean(kept_share(errors, chosen))),
                "k": ", ".join(f"{k:.0f}" for k in mean_k),
            }  # fmt: skip
            settings = {
                "projection": projection, "choice": name, "tokens": TOKENS, "documents": options.documents,
                "sinks": options.sinks, "uniform": options.uniform,
            }  # fmt: skip
            keep("spectrum_k", settings, metrics)


def ranks(options: argparse.Namespace) -> None:
    """A record for each way to choose k, with the best map of rank k in the place of every map."""
    cumulative = read_result(options.path).spectrum.cumulative
    opened = opened_encoder()
    texts = [
        opened.tokenizer(text, truncation=True, max_length=TOKENS, return_tensors="pt")["input_ids"][0]
        for text in articles(options.data)[-options.documents :]
    ]
    for uniform in (options.uniform, options.uniform // 4, options.uniform // 16):
        total = len(cumulative) * uniform
        layers = k_at_total(cumulative.mean(1), total, pooled=False)
        found: dict[str, Any] = {
            "the same everywhere": [uniform] * len(cumulative),
            "spectrum, per layer": layers,
            "spectrum, layers reversed": layers[::-1],
            "spectrum, per head": head_k_at_total(cumulative, total, pooled=False),
        }
        for name, chosen in found.items():
            cosines = rank_k_cosines(opened.model, texts, chosen)
            mean_k = [float(np.mean(layer)) for layer in chosen]
            settings = {
                "projection": "best of rank k", "choice": name, "tokens": TOKENS, "documents": options.documents,
                "sinks": 0, "uniform": uniform,
            }  # fmt: skip
            metrics = {
                "cosine": float(np.mean(cosines)), "lowest": min(cosines), "total": round(sum(mean_k)),
                "least_share": None if name == "spectrum, per head" else min(kept_share(cumulative.mean(1), chosen)),
                "layer_error": None, "k": ", ".join(f"{k:.0f}" for k in mean_k),
            }  # fmt: skip
            keep("spectrum_k", settings, metrics)


def spectrum_command(data: Path, output: Path, texts: int) -> dict[str, float]:
    """``longform spectrum`` in a process of its own: its seconds, CPU seconds and peak memory in MiB."""
    command = [
        sys.executable, "-m", "longform.cli.main", "spectrum", "bundled", "--text", f"{data}/wikipedia_long.parquet",
        "--output", str(output), "--texts", str(texts), "--min-tokens", str(TOKENS), "--index", "[128,64,256]",
        "--total-k", "768",
    ]  # fmt: skip
    began = time.perf_counter()
    child = subprocess.Popen(command)
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    return {
        "seconds": time.perf_counter() - began, "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "peak_mib": usage.ru_maxrss / 1024,
    }  # fmt: skip


def check(options: argparse.Namespace) -> None:
    """One record: seconds, memory with few and with many texts, largest difference from numpy's float64 SVD."""
    few = spectrum_command(options.data, options.path / "few", FEW)
    many = spectrum_command(options.data, options.path / "many", MANY)
    run = read_result(next((options.path / "many" / "runs").glob("*.jsonl")))
    largest = 0.0
    for layer in layers_of(opened_encoder(), articles(options.data)[:SAMPLE]):
        found = singular_values(layer.probabilities)[0].numpy()
        exact = np.linalg.svd(layer.probabilities[0].double().numpy(), compute_uv=False)
        largest = max(largest, float(np.abs(found - exact).max()))
    layers, heads = run.spectrum.effective_rank.shape
    assert run.heads is not None
    inside, across = inside_and_across(run.heads.similarity, heads)
    settings = {
        "model": run.model, "corpus": run.corpus, "texts": MANY, "few_texts": FEW, "tokens": run.spectrum.longest,
        "layers": layers, "heads": heads,
    }  # fmt: skip
    metrics = {
        "maps": run.spectrum.texts * layers * heads, "seconds": many["seconds"], "cpu_seconds": many["cpu_seconds"],
        "peak_mib_few": few["peak_mib"], "peak_mib_many": many["peak_mib"], "largest_difference": largest,
        "alike_inside": float(inside.mean()), "alike_across": across,
    }  # fmt: skip
    keep("spectrum", settings, metrics)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the three."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=["choices", "ranks", "check"])
    parser.add_argument("path", type=Path, help="check: a new folder; others: its many/runs/NAME.jsonl")
    parser.add_argument("--data", type=Path, required=True, help="folder with wikipedia_long.parquet")
    parser.add_argument("--documents", type=int, default=100, help="held-out articles, cut at 512 tokens")
    parser.add_argument("--uniform", type=int, default=128, help="k of each layer that sets the total")
    parser.add_argument("--sinks", type=int, default=0, help="leading tokens seen exactly, beside the slots")
    options = parser.parse_args(arguments)
    {"choices": choices, "ranks": ranks, "check": check}[options.command](options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
