from pathlib import Path

import pytest
import torch
from model_kinds import KINDS, config
from torch import nn

import longform
from longform import LinformerConfig, LinformerForSequenceClassification, LinformerModel
from longform.data.bundled import bundled_encoder_folder, licence_documents
from longform.errors import ConfigurationError
from longform.layers.int8_linear import Int8Linear


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_attention_runs_in_int8(kind: str) -> None:
    settings = config(kind, hidden_size=32, intermediate_size=48, initializer_range=0.2)
    model = LinformerModel(settings).eval()
    ids, mask = torch.randint(5, 40, (3, 31)), torch.ones(3, 31, dtype=torch.long)
    mask[0, 20:] = 0
    with torch.no_grad():
        expected = model(ids, mask).last_hidden_state
        out = longform.quantize(model)(ids, mask).last_hidden_state
    assert any(isinstance(module, Int8Linear) for module in model.modules())
    assert not torch.equal(out, expected)
    error = (out - expected)[mask.bool()].norm() / expected[mask.bool()].norm()
    assert float(error) < 0.05


def test_the_bundled_encoder_keeps_its_embeddings() -> None:
    converted = longform.convert(str(bundled_encoder_folder()), max_length=512)
    texts = [document.text for document in licence_documents()[::900]]
    inputs = converted.tokenizer(texts, padding=True, truncation=True, max_length=300, return_tensors="pt")
    mask = inputs["attention_mask"][..., None]
    with torch.inference_mode():
        expected = (converted.model.eval()(**inputs).last_hidden_state * mask).sum(1)
        found = (longform.quantize(converted.model)(**inputs).last_hidden_state * mask).sum(1)
    assert not torch.equal(found, expected)
    assert mask.sum() > 500
    assert float(nn.functional.cosine_similarity(found, expected).mean()) >= 0.999


def test_heads_stay_and_what_cannot_be_quantised_is_named(tmp_path: Path) -> None:
    settings = LinformerConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                               intermediate_size=24, max_position_embeddings=32, projected_length=8)  # fmt: skip
    model = longform.quantize(LinformerForSequenceClassification(settings))
    assert isinstance(model.classifier.out_proj, nn.Linear)
    with pytest.raises(ConfigurationError, match="is not saved"):
        model.save_pretrained(tmp_path)
    with pytest.raises(ConfigurationError, match="int8 starts from float32"):
        longform.quantize(LinformerModel(settings).bfloat16())
    with pytest.raises(ConfigurationError, match="not Linear"):
        longform.quantize(nn.Linear(2, 2))  # ty: ignore[invalid-argument-type]
