"""fairseq's own counts for a Linformer of RoBERTa-base size (its layerwise matrix has 128 unused biases more)."""

import pytest
import torch

from longform import LinformerConfig, LinformerForMaskedLM

ROBERTA_BASE = {
    "vocab_size": 50_000, "max_position_embeddings": 512, "position_offset": 2, "type_vocab_size": 0,
    "pad_token_id": 1, "projected_length": 128, "projection": "linear",
}  # fmt: skip


@pytest.mark.parametrize(
    ("sharing", "count"), [("headwise", 126_065_744), ("key_value", 125_279_312), ("layerwise", 124_558_416)]
)
def test_masked_language_model_of_roberta_base_size(sharing, count):
    with torch.device("meta"):
        model = LinformerForMaskedLM(LinformerConfig(**ROBERTA_BASE, projection_sharing=sharing))
    assert sum(parameter.numel() for parameter in model.parameters()) == count
    assert model.linformer.embeddings.position_embeddings.weight.shape == (514, 768)


@pytest.mark.parametrize(("sharing", "matrices"), [("none", 24), ("headwise", 24), ("key_value", 12), ("layerwise", 1)])
def test_one_parameter_for_what_is_shared(sharing, matrices):
    with torch.device("meta"):
        model = LinformerForMaskedLM(LinformerConfig(**ROBERTA_BASE, projection_sharing=sharing))
    named = {name: p for name, p in model.named_parameters() if name.endswith(".matrix")}
    heads = 12 if sharing == "none" else 1
    assert [p.shape for p in named.values()] == [(heads, 128, 512)] * matrices
    assert len([key for key in model.state_dict() if key.endswith(".matrix")]) == matrices
