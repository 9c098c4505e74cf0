"""Converted folders in the hands of the ecosystem: sentence-transformers' trainers, PEFT, pickling, chonkie."""

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers import (
    CrossEncoder,
    CrossEncoderTrainer,
    CrossEncoderTrainingArguments,
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss, MatryoshkaLoss
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from tiny_models import save_bert
from transformers import AutoModel, AutoModelForSequenceClassification

import longform
from longform import auto_tables

TEXTS = ["the long text is good", "a bad one", "it is far and near " * 12, "x"]
ANCHORS = [f"is it {kind} or far " * times for kind in ("good", "bad", "near", "short") for times in (1, 8)]
POSITIVES = [f"the {kind} text of it " * times for kind in ("good", "bad", "near", "short") for times in (7, 2)]
QUICK = {
    "max_steps": 12, "per_device_train_batch_size": 8, "per_device_eval_batch_size": 8, "learning_rate": 3e-3,
    "report_to": [], "use_cpu": True, "disable_tqdm": True, "seed": 0, "save_strategy": "no", "logging_strategy": "no",
    "dataloader_pin_memory": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tiny_tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sentence-transformers folder, converted: 96 tokens, of which texts of 33 and more have a memory."""
    place = tmp_path_factory.mktemp("folder")
    first = Transformer(str(save_bert(place / "bert", tiny_tokenizer)))
    SentenceTransformer(modules=[first, Pooling(24)], device="cpu").save_pretrained(str(place / "source"))
    return _converted(place / "source", place / "converted")


def _converted(source: Path, output: Path) -> Path:
    made = longform.convert(source, max_length=96, attention_window=16, projected_length=12)
    return made.save_pretrained(output)


def test_an_encoder_is_trained_with_matryoshka_loss(folder: Path, tmp_path: Path) -> None:
    model = SentenceTransformer(str(folder), device="cpu")
    loss = MatryoshkaLoss(model, CachedMultipleNegativesRankingLoss(model, mini_batch_size=4), [24, 6])
    pairs = Dataset.from_dict({"anchor": ANCHORS, "positive": POSITIVES})
    trainer = SentenceTransformerTrainer(
        model, SentenceTransformerTrainingArguments(str(tmp_path / "run"), **QUICK), train_dataset=pairs,
        eval_dataset=pairs, loss=loss, evaluator=EmbeddingSimilarityEvaluator(ANCHORS, POSITIVES, [0.1, 0.9] * 4),
    )  # fmt: skip
    before = trainer.evaluate()
    trainer.train()
    after = trainer.evaluate()
    assert after["eval_loss"] < 0.9 * before["eval_loss"]
    assert -1 <= after["eval_spearman_cosine"] <= 1
    model.save_pretrained(str(tmp_path / "trained"))
    again = SentenceTransformer(str(tmp_path / "trained"), device="cpu", truncate_dim=6)
    np.testing.assert_allclose(again.encode(TEXTS), model.encode(TEXTS)[:, :6], atol=1e-5)


def test_a_cross_encoder_is_trained(tiny_tokenizer: Any, tmp_path: Path) -> None:
    source = save_bert(tmp_path / "bert", tiny_tokenizer, head="classification", num_labels=1)
    CrossEncoder(str(source), device="cpu", activation_fn=torch.nn.Tanh()).save_pretrained(str(tmp_path / "source"))
    model = CrossEncoder(str(_converted(tmp_path / "source", tmp_path / "converted")), device="cpu")
    rows = Dataset.from_dict({"query": ANCHORS, "document": POSITIVES, "label": [1.0, 0.0] * 4})
    trainer = CrossEncoderTrainer(
        model, CrossEncoderTrainingArguments(str(tmp_path / "run"), **QUICK), train_dataset=rows, eval_dataset=rows,
        loss=BinaryCrossEntropyLoss(model),
    )  # fmt: skip
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < 0.9 * before
    model.save_pretrained(str(tmp_path / "trained"))
    again = CrossEncoder(str(tmp_path / "trained"), device="cpu")
    assert type(again.activation_fn).__name__ == "Tanh"
    pairs = list(zip(ANCHORS, POSITIVES, strict=True))
    np.testing.assert_allclose(again.predict(pairs), model.predict(pairs), atol=1e-5)


def test_lora_finds_its_layers_and_is_trained_saved_and_merged(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from peft import LoraConfig, TaskType, get_peft_model
    from peft.utils import constants

    del constants.TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING["linformer"]
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    auto_tables.enter_late()  # as where peft is imported first
    model = SentenceTransformer(str(folder), device="cpu")
    plain = model.encode(TEXTS)
    model.add_adapter(LoraConfig(task_type=TaskType.FEATURE_EXTRACTION, r=2, init_lora_weights=False))
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    layers = {name.split(".attention.")[1].split(".")[0] for name in trained}
    assert (len(trained), layers) == (8, {"query", "value"})
    features = model.preprocess(TEXTS)
    model(features)["sentence_embedding"].pow(2).sum().backward()
    assert all(p.grad is None or p.grad.abs().amax() > 0 for p in model.parameters())
    assert {name for name, p in model.named_parameters() if p.grad is not None} == trained
    adapted = model.encode(TEXTS)
    assert np.abs(adapted - plain).max() > 1e-3
    model.save_pretrained(str(tmp_path / "adapter"))
    again = SentenceTransformer(str(tmp_path / "adapter"), device="cpu")
    np.testing.assert_allclose(again.encode(TEXTS), adapted, atol=1e-5)

    classifier = AutoModelForSequenceClassification.from_pretrained(folder)
    wrapped: Any = get_peft_model(classifier, LoraConfig(task_type=TaskType.SEQ_CLS, r=2, init_lora_weights=False))
    inputs = model.tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = wrapped.eval()(**inputs).logits
        torch.testing.assert_close(wrapped.merge_and_unload()(**inputs).logits, expected, atol=1e-5, rtol=1e-4)


def test_an_encoder_goes_to_another_process_whole(folder: Path) -> None:
    model = SentenceTransformer(str(folder), device="cpu")
    again = pickle.loads(pickle.dumps(model))  # which is how workers get it; they themselves: tests/nightly
    np.testing.assert_array_equal(again.encode(TEXTS), model.encode(TEXTS))


def test_chonkies_late_chunks_are_of_the_whole_text(folder: Path) -> None:
    from chonkie import LateChunker
    from chonkie.embeddings import SentenceTransformerEmbeddings

    model, text = SentenceTransformer(str(folder), device="cpu"), "it is far and near. " * 12
    chunks = LateChunker(SentenceTransformerEmbeddings(model), chunk_size=20, min_characters_per_chunk=1)(text)
    assert "".join(chunk.text for chunk in chunks) == text
    with torch.inference_mode():
        states = AutoModel.from_pretrained(folder)(**model.tokenizer(text, return_tensors="pt"))[0][0]
    assert len(states) > 33  # tokens that two windows do not hold, in one pass
    starts = np.cumsum([0, *(chunk.token_count for chunk in chunks)])
    for chunk, start, end in zip(chunks, starts[:-1], starts[1:], strict=True):
        np.testing.assert_allclose(chunk.embedding, states[start:end].mean(dim=0), atol=1e-5)


MANY = [f"the {kind} text of it " * times for kind in ("good", "bad", "near") for times in range(1, 9)]


@pytest.mark.nightly
def test_two_workers_embed_as_one_process_does(tiny_tokenizer: Any, tmp_path: Path) -> None:
    first = Transformer(str(save_bert(tmp_path / "bert", tiny_tokenizer)))
    SentenceTransformer(modules=[first, Pooling(24)], device="cpu").save_pretrained(str(tmp_path / "source"))
    folder = longform.convert(tmp_path / "source", max_length=96, attention_window=16, projected_length=12)
    model = SentenceTransformer(str(folder.save_pretrained(tmp_path / "converted")), device="cpu")
    found = model.encode(MANY, device=["cpu", "cpu"], chunk_size=5)
    np.testing.assert_allclose(found, model.encode(MANY), atol=1e-5)
