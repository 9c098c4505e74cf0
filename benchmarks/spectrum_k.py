"""Spectrum-chosen k against uniform k at the same total, and the accuracy, time and memory of the spectrum itself.

    longform spectrum bundled --text wikipedia_long.parquet --output runs/spectrum --min-tokens 512
    python -m benchmarks.spectrum_k choices runs/spectrum/runs/NAME.jsonl --data FOLDER
    python -m benchmarks.spectrum_k ranks runs/spectrum/runs/NAME.jsonl --data FOLDER
    python -m benchmarks.spectrum_k check runs/spectrum/runs/NAME.jsonl --data FOLDER

``choices``: the bundled MiniLM is converted without training and without a window, and its embeddings are compared with
the original's. Two projections: "mean", whose slots are runs of whole tokens of one size, so that only some k exist;
and "linear" as it starts, block means of any k. Beside the cosine stands the error that each layer makes alone.
``ranks``: the same with every map replaced by the best one of rank k, which is what the spectrum speaks of.
``check``: singular values against numpy's SVD in float64, and peak memory after few and after more texts.
One record each in benchmarks/records/spectrum_k.jsonl and spectrum.jsonl.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModel, AutoTokenizer

import longform
from benchmarks.quality import articles, encoder_of
from benchmarks.rank_k_encoder import rank_k_cosines
from benchmarks.records import RECORDS, Record, append_record
from longform.benchmarking.memory import peak_growth, process_peak
from longform.data.bundled import bundled_encoder_folder
from longform.evaluation.encoders import load_encoder
from longform.evaluation.similarity import agreement
from longform.functional.spectrum import singular_values
from longform.layers.sequence_projection import block_mean_matrix
from longform.spectrum.capture import LayerAttention, captured_layers
from longform.spectrum.choose import allowed_slots, head_k_at_total, k_at_total, kept_share
from longform.spectrum.heads import inside_and_across
from longform.spectrum.measure import measure_spectrum
from longform.spectrum.results import RunResult, read_result
from longform.spectrum.settings import OpenedModel, SpectrumSettings

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
    run = read_result(options.spectrum)
    curves = run.spectrum.cumulative.mean(1)
    texts = articles(options.data)
    held_out = texts[-options.documents :]
    teacher = load_encoder(bundled_encoder_folder()).embed(held_out, strategy="cut", limit=TOKENS)
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
            same = agreement(student.embed(held_out, strategy="cut", limit=TOKENS), teacher)
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
    cumulative = read_result(options.spectrum).spectrum.cumulative
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


def check(options: argparse.Namespace) -> None:
    """One record: seconds of the run, largest difference from numpy's float64 SVD, and memory."""
    run = read_result(options.spectrum)
    opened, texts = opened_encoder(), articles(options.data)
    peaks = []
    for count in (2, FEW, MANY):  # the first warms up
        settings = SpectrumSettings(texts=count, head_texts=0)
        peak_growth(partial(measure_spectrum, opened, texts, settings, progress=True), "cpu")
        peaks.append(process_peak() / 2**20)
    largest = 0.0
    for layer in layers_of(opened, texts[:SAMPLE]):
        found = singular_values(layer.probabilities)[0].double().numpy()
        exact = np.linalg.svd(layer.probabilities[0].double().numpy(), compute_uv=False)
        largest = max(largest, float(np.abs(found - exact).max()))
    assert run.heads is not None
    layers, heads = run.spectrum.effective_rank.shape
    inside, across = inside_and_across(run.heads.similarity, heads)
    settings = {
        "model": run.model, "corpus": run.corpus, "texts": run.spectrum.texts, "tokens": run.spectrum.longest,
        "layers": layers, "heads": heads, "few_texts": FEW, "many_texts": MANY,
    }  # fmt: skip
    metrics = {
        "maps": run.spectrum.texts * layers * heads, "seconds": run.seconds, "largest_difference": largest,
        "peak_mib_few": peaks[1], "peak_mib_many": peaks[2],
        "alike_inside": float(inside.mean()), "alike_across": across,
    }  # fmt: skip
    keep("spectrum", settings, metrics)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the three."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=["choices", "ranks", "check"])
    parser.add_argument("spectrum", type=Path, help="runs/NAME.jsonl of longform spectrum, of the bundled encoder")
    parser.add_argument("--data", type=Path, required=True, help="folder with wikipedia_long.parquet")
    parser.add_argument("--documents", type=int, default=100, help="held-out articles, cut at 512 tokens")
    parser.add_argument("--uniform", type=int, default=128, help="k of each layer that sets the total")
    parser.add_argument("--sinks", type=int, default=0, help="leading tokens seen exactly, beside the slots")
    options = parser.parse_args(arguments)
    {"choices": choices, "ranks": ranks, "check": check}[options.command](options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
