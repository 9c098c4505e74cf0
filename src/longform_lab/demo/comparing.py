"""Test scores of the demo's two fine-tuned models, Longform and original, and their difference."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from longform.evaluation.classification import classification_scores, label_ids
from longform.inference.classifiers import Classifier

RESAMPLINGS = 2_000
TOKENS_PER_FORWARD = 4096


def evaluate(folder: Path, texts: Sequence[tuple[str, str, str]], *, name: str) -> dict[str, Any]:
    """Scores of a fine-tuned model, and for each text: predicted and true label (places), tokens seen and cut off."""
    classifier = Classifier.from_pretrained(folder, dtype="auto")
    outcomes = classifier.outcomes([text for _, text, _ in texts], max_tokens_per_batch=TOKENS_PER_FORWARD)
    found = list(tqdm(outcomes, total=len(texts), desc=f"testing {name}", unit="text"))
    logits = np.stack([outcome.values for outcome in found])
    truth = label_ids([label for _, _, label in texts], classifier.label2id)
    return {
        **asdict(classification_scores(logits, truth, classifier.labels)),
        "truth": truth.tolist(), "predicted": logits.argmax(axis=1).tolist(),
        "tokens": [outcome.tokens for outcome in found], "truncated": [outcome.truncated for outcome in found],
    }  # fmt: skip


def compare(longform: dict[str, Any], original: dict[str, Any], *, seed: int) -> dict[str, Any]:
    """How the two differ: Longform's value less the original's.

    ``interval``: of the accuracy's difference, 95 %, over test texts drawn again and again. ``long``, ``short``:
    accuracy of both on the texts that the original had to cut, and on the others.
    """
    truth = np.array(longform["truth"])
    right = {"longform": np.array(longform["predicted"]) == truth, "original": np.array(original["predicted"]) == truth}
    gain = right["longform"].astype(float) - right["original"].astype(float)
    draws = np.random.default_rng(seed).integers(0, len(gain), (RESAMPLINGS, len(gain)))
    cut = np.array(original["truncated"]) > 0
    return {
        "accuracy": longform["accuracy"] - original["accuracy"],
        "macro_f1": longform["macro_f1"] - original["macro_f1"],
        "interval": np.quantile(gain[draws].mean(axis=1), [0.025, 0.975]).tolist(),
        "long": _part(right, cut), "short": _part(right, ~cut),
    }  # fmt: skip


def _part(right: dict[str, np.ndarray], chosen: np.ndarray) -> dict[str, Any]:
    shares = {name: float(hits[chosen].mean()) if chosen.any() else None for name, hits in right.items()}
    return {"texts": int(chosen.sum()), **shares}
