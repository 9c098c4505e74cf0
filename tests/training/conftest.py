"""A tiny teacher, a tiny Longform, and texts with something to learn."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM, BertModel

import longform

WORDS = ["the", "a", "of", "and", "to", "in", "is", "it", "for", "long", "short", "text", "near", "far", "good", "bad"]
SHAPE = {"hidden_size": 20, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 28}


@pytest.fixture
def teacher(tiny_tokenizer: Any) -> BertModel:
    torch.manual_seed(7)
    return BertModel(BertConfig(vocab_size=len(tiny_tokenizer), max_position_embeddings=32, **SHAPE)).eval()


@pytest.fixture
def teacher_with_head(tiny_tokenizer: Any) -> BertForMaskedLM:
    torch.manual_seed(7)
    return BertForMaskedLM(BertConfig(vocab_size=len(tiny_tokenizer), max_position_embeddings=32, **SHAPE)).eval()


@pytest.fixture
def texts() -> list[str]:
    draw = random.Random(3)
    return [" ".join(draw.choices(WORDS, k=draw.randint(3, 90))) for _ in range(60)]


@pytest.fixture
def student_folder(teacher: BertModel, tiny_tokenizer: Any, tmp_path: Path) -> Path:
    """The teacher, converted."""
    folder = tmp_path / "student"
    longform.convert(
        teacher, tokenizer=tiny_tokenizer, max_length=64, projected_length=8, attention_window=None, memory_budget=None
    ).save_pretrained(folder)
    return folder
