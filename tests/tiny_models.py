"""Tiny random models saved to folders, for tests that begin from a folder."""

import json
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification, BertConfig, MPNetConfig

from longform import LinformerConfig

HEADS = {None: AutoModel, "classification": AutoModelForSequenceClassification, "masked-lm": AutoModelForMaskedLM}
SIZES = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "initializer_range": 0.5,  # large, so that different texts get clearly different results
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def save_bert(folder: Path, tokenizer: Any, *, head: str | None = None, **settings: Any) -> Path:
    """A random BERT of 32 positions, with its tokenizer."""
    config = BertConfig(vocab_size=len(tokenizer), **{"max_position_embeddings": 32, **SIZES, **settings})
    return _save(folder, tokenizer, config, head)


def save_mpnet(folder: Path, tokenizer: Any, *, head: str | None = None, **settings: Any) -> Path:
    """A random MPNet of 32 positions, with its tokenizer."""
    config = MPNetConfig(vocab_size=len(tokenizer), **{"max_position_embeddings": 34, **SIZES, **settings})
    return _save(folder, tokenizer, config, head)


def save_longform(folder: Path, tokenizer: Any, *, head: str | None = None, **settings: Any) -> Path:
    """A random Longform of 64 positions and 8 mean slots, with its tokenizer."""
    shortened = {"projection": "mean", "projected_length": 8, "short_convolution": 0, "max_position_embeddings": 64}
    settings = {**shortened, **SIZES, **settings}
    return _save(folder, tokenizer, LinformerConfig(vocab_size=len(tokenizer), **settings), head)


def make_sentence_transformer(folder: Path, *, pooling: dict[str, Any], normalise: bool, **files: Any) -> Path:
    """Add the files that make a folder with a model a sentence-transformers folder; ``files``: others, by name."""
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling"), *([("2_Normalize", "Normalize")] if normalise else [])]
    modules = [
        {"idx": at, "name": str(at), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for at, (path, kind) in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 24, **pooling}))
    return folder


def _save(folder: Path, tokenizer: Any, config: Any, head: str | None) -> Path:
    torch.manual_seed(0)
    HEADS[head].from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
