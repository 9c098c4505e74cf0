"""A tiny encoder that is open, and texts of different lengths."""

import pytest
from tiny_models import SIZES
from transformers import AutoModel, BertConfig

from longform_lab.spectrum.settings import OpenedModel

WORDS = ["the", "long", "text", "is", "near", "and", "the", "short", "text", "is", "far", "of", "it", "in", "a", "good"]


@pytest.fixture
def opened(tiny_tokenizer):
    config = BertConfig(vocab_size=len(tiny_tokenizer), max_position_embeddings=32, **SIZES)
    return OpenedModel(AutoModel.from_config(config, attn_implementation="eager").eval(), tiny_tokenizer, 32)


@pytest.fixture
def texts():
    return [" ".join(WORDS[start : start + 3 + 2 * start]) for start in range(5)]
