"""Tiny sources of every family: random in every weight, so that no two tensors can be confused unseen."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from transformers import PreTrainedModel

BERT_LIKE = {
    "vocab_size": 167, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 37,
}  # fmt: skip
SPECIAL = {"pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3}  # of vocabularies that are larger
CONFIGS = {
    "Bert": BERT_LIKE | {"max_position_embeddings": 40},
    "Roberta": BERT_LIKE | {"max_position_embeddings": 42, "type_vocab_size": 1},
    "XLMRoberta": BERT_LIKE | {"max_position_embeddings": 42, "type_vocab_size": 1},
    "Camembert": BERT_LIKE | {"max_position_embeddings": 42, "type_vocab_size": 1},
    "DistilBert": {
        "vocab_size": 167, "dim": 24, "n_layers": 2, "n_heads": 3, "hidden_dim": 37, "max_position_embeddings": 40,
    },
    "MPNet": BERT_LIKE | {"max_position_embeddings": 42},
    "ModernBert": BERT_LIKE | SPECIAL | {
        "cls_token_id": 2, "sep_token_id": 3, "max_position_embeddings": 40, "num_hidden_layers": 3,
        "local_attention": 8, "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 60.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 9.0},
        },
    },
    "EuroBert": BERT_LIKE | SPECIAL | {
        "mask_token_id": 4, "max_position_embeddings": 40, "num_key_value_heads": 1, "classifier_pooling": "mean",
    },
    "NomicBert": BERT_LIKE | {"max_position_embeddings": 40},
    "Gte": BERT_LIKE | {"max_position_embeddings": 40},
    "JinaEmbeddingsV3": BERT_LIKE | SPECIAL | {"max_position_embeddings": 40},
    "Electra": BERT_LIKE | {"max_position_embeddings": 40, "embedding_size": 16},
}  # fmt: skip


@pytest.fixture(scope="session")
def make_source() -> Callable[..., PreTrainedModel]:
    """make_source("Bert", "ForMaskedLM", **config changes) -> a model in evaluation mode."""

    def make(family: str, head: str = "Model", **changes: object) -> PreTrainedModel:
        torch.manual_seed(7)
        config = getattr(transformers, f"{family}Config")(**CONFIGS[family] | changes)
        model = getattr(transformers, f"{family}{head}")(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(0.0, 0.3)
        return model.eval()

    return make


@pytest.fixture
def bert_folder(make_source: Callable[..., PreTrainedModel], tiny_tokenizer: object, tmp_path: Path) -> Path:
    """A saved BertModel with its tokenizer."""
    folder = tmp_path / "bert"
    make_source("Bert").save_pretrained(folder)
    tiny_tokenizer.save_pretrained(folder)
    return folder
