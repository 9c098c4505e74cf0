"""``README.md`` of a pre-trained model: what it is, what it learned from and how, how good it is, how to use it."""

import math
from collections.abc import Mapping
from typing import Any

import longform
from longform.runs.page import facts_table


def model_card(
    run: Mapping[str, Any], identity: Mapping[str, Any], end: Mapping[str, Any], last: Mapping[str, Any], *,
    parameters: int,
) -> str:  # fmt: skip
    """The card's text from a run's records (``run``: its first, ``last``: its last validation) and identity."""
    model, recipe = identity["model"], identity["settings"]
    return f"""---
library_name: transformers
pipeline_tag: fill-mask
tags: [longform, linformer, masked-lm]
---

# Linformer encoder, {parameters:,} parameters, {model["max_position_embeddings"]:,} tokens

A masked-language model trained from scratch with Longform {longform.__version__}. It fills in hidden tokens; for
another task it has to be fine-tuned.

## Architecture

{facts_table(architecture(model)).markdown()}

## Data

{facts_table(data_facts(run)).markdown()}

Which texts these were, their licence and their language, the run does not know: say it here before you publish.

## Training

{facts_table(training_facts(recipe, end, identity)).markdown()}

## Evaluation

{run["validation_hidden_tokens"]:,} tokens of held-out text were hidden once and for all (15 % of the tokens; 80 % of
them behind the mask token, 10 % behind another token, 10 % left as they were). The model was asked for them, with
blocks of {run["length"]:,} tokens.

| | loss (nats a token) | perplexity |
|---|---|---|
| this model, after {last["step"]:,} steps | {last["loss"]:.4f} | {last["perplexity"]:.2f} |
| predicting frequencies alone | {run["unigram_loss"]:.4f} | {math.exp(run["unigram_loss"]):.2f} |

Perplexities compare between models with the same tokenizer and the same held-out text only. `records.jsonl` has every
measurement, `learning_curve.png` shows them.

## Use

```python
import longform  # registers the architecture with transformers
from transformers import pipeline

fill = pipeline("fill-mask", model="this folder")
```

## Environment

{facts_table(run["environment"]).markdown()}
"""


def architecture(model: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a LinformerConfig that people ask for."""
    length, window = model["max_position_embeddings"], model["attention_window"]
    attention = f"projected to k = {model['projected_length']} ({model['projection']}, {model['projection_sharing']})"
    if window is not None:
        attention = "full" if 2 * window >= length else f"{attention}, exact within blocks of {window}"
    return {
        "layers": model["num_hidden_layers"], "hidden size": model["hidden_size"],
        "attention heads": model["num_attention_heads"], "feed-forward": model["intermediate_size"],
        "longest text (tokens)": length, "attention": attention, "normalisation": model["normalization"],
        "vocabulary": model["vocab_size"], "dropout": model["hidden_dropout_prob"],
    }  # fmt: skip


def data_facts(run: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes of the corpus."""
    return {
        "documents": _known(run["corpus_documents"]), "tokens": _known(run["corpus_tokens"]),
        "tokens held out": run["validation_tokens"], "block (tokens)": run["length"],
    }  # fmt: skip


def training_facts(recipe: Mapping[str, Any], end: Mapping[str, Any], identity: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe and what it took."""
    schedule = f"{recipe['schedule']}, warm-up {recipe['warmup']:.0%} of the steps"
    return {
        "optimiser": f"Adam ({recipe['beta1']}, {recipe['beta2']}), epsilon {recipe['epsilon']}, "
        f"weight decay {recipe['weight_decay']}",
        "learning rate": f"{recipe['learning_rate']}; {schedule}",
        "steps": end["step"], "tokens seen": end["tokens"],
        "masking": f"{recipe['mask_fraction']:.0%} of the tokens, anew each time: mask {recipe['mask_share']:.0%}, "
        f"other token {recipe['random_share']:.0%}",
        "packing": recipe["packing"], "seed": recipe["seed"], "processes": identity["processes"],
        "wall-clock seconds": end["seconds"],
    }  # fmt: skip


def _known(value: Any) -> Any:
    return "streamed, not counted" if value is None else value
