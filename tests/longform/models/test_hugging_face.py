"""What transformers and sentence-transformers do with a Longform folder: pipelines, Trainer, SentenceTransformer."""

import pytest
import torch
from sentence_transformers import SentenceTransformer
from tiny_models import make_sentence_transformer, save_longform
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    DataCollatorForLanguageModeling,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    pipeline,
)

from longform import (
    LinformerConfig,
    LinformerForMaskedLM,
    LinformerForQuestionAnswering,
    LinformerForSequenceClassification,
    LinformerForTokenClassification,
    LinformerModel,
)
from longform.functional.masks import masked_mean
from tolerances import assert_close

TEXTS = ["the long text is good", "a bad one", "it is far and near to the short text of the long text"]
WINDOW = {"attention_window": 8, "memory_budget": 6.0}


def folder(tmp_path, tokenizer, cls, **settings):
    save_longform(tmp_path, tokenizer, **settings)
    config = LinformerConfig.from_pretrained(tmp_path)
    torch.manual_seed(1)
    cls(config).save_pretrained(tmp_path)
    return str(tmp_path)


def test_fill_mask(tmp_path, tiny_tokenizer):
    path = folder(tmp_path, tiny_tokenizer, LinformerForMaskedLM)
    found = pipeline("fill-mask", path, top_k=3)("the [MASK] text")
    assert [set(answer) for answer in found] == [{"score", "token", "token_str", "sequence"}] * 3
    given = tiny_tokenizer("the [MASK] text", return_tensors="pt")
    logits = LinformerForMaskedLM.from_pretrained(path)(**given).logits[0, 2]
    assert found[0]["token"] == logits.argmax().item()


@pytest.mark.parametrize("settings", [{}, WINDOW], ids=["mean", "window"])
def test_text_classification(settings, tmp_path, tiny_tokenizer):
    names = {"id2label": {0: "dull", 1: "bright", 2: "odd"}, "label2id": {"dull": 0, "bright": 1, "odd": 2}}
    path = folder(tmp_path, tiny_tokenizer, LinformerForSequenceClassification, **names, **settings)
    classify = pipeline("text-classification", path)
    alone, together = [classify(text)[0] for text in TEXTS], classify(TEXTS, batch_size=3)
    for one, other in zip(alone, together, strict=True):
        assert one["label"] == other["label"]
        assert one["label"] in names["label2id"]
        assert one["score"] == pytest.approx(other["score"], abs=1e-4)


def test_token_classification(tmp_path, tiny_tokenizer):
    path = folder(tmp_path, tiny_tokenizer, LinformerForTokenClassification)
    found = pipeline("token-classification", path)(TEXTS[0])
    assert [token["word"] for token in found] == TEXTS[0].split()


def test_question_answering(tmp_path, tiny_tokenizer):
    made = LinformerForQuestionAnswering
    loaded = AutoModelForQuestionAnswering.from_pretrained(folder(tmp_path, tiny_tokenizer, made))
    out = loaded(**tiny_tokenizer("is it good", TEXTS[2], return_tensors="pt"))
    assert out.start_logits.shape == out.end_logits.shape
    assert type(loaded) is made


def test_feature_extraction(tmp_path, tiny_tokenizer):
    path = folder(tmp_path, tiny_tokenizer, LinformerModel, **WINDOW)
    found = pipeline("feature-extraction", path)(TEXTS[0])
    expected = LinformerModel.from_pretrained(path)(**tiny_tokenizer(TEXTS[0], return_tensors="pt"))
    assert_close(torch.tensor(found), expected.last_hidden_state.detach(), scope="model")


def test_sentence_transformers_round_trip(tmp_path, tiny_tokenizer):
    path = folder(tmp_path / "a", tiny_tokenizer, LinformerModel, **WINDOW)
    make_sentence_transformer(
        tmp_path / "a", pooling={"word_embedding_dimension": 24, "pooling_mode_mean_tokens": True}, normalise=True
    )
    model = SentenceTransformer(path, device="cpu")
    vectors = model.encode(TEXTS, convert_to_tensor=True, show_progress_bar=False)
    given = tiny_tokenizer(TEXTS, padding=True, return_tensors="pt")
    states = LinformerModel.from_pretrained(path)(**given).last_hidden_state
    expected = torch.nn.functional.normalize(masked_mean(states, given["attention_mask"].bool()))
    assert_close(vectors, expected.detach(), scope="model")
    model.save(str(tmp_path / "b"))
    again = SentenceTransformer(str(tmp_path / "b"), device="cpu")
    assert_close(again.encode(TEXTS, convert_to_tensor=True, show_progress_bar=False), vectors)


@pytest.fixture
def arguments(tmp_path):
    return TrainingArguments(
        str(tmp_path / "run"), max_steps=40, per_device_train_batch_size=8, learning_rate=5e-3, logging_steps=10,
        save_strategy="steps", save_steps=40, report_to=[], use_cpu=True, disable_tqdm=True, seed=0,
        dataloader_pin_memory=False,
    )  # fmt: skip


def test_trainer_classifies(tmp_path, tiny_tokenizer, arguments):
    path = folder(tmp_path / "start", tiny_tokenizer, LinformerForSequenceClassification, initializer_range=0.05)
    texts = ["the good text " * (1 + i % 5) if i % 2 else "a bad one of it " * (1 + i % 5) for i in range(16)]
    rows = [dict(tiny_tokenizer(text, truncation=True), labels=i % 2) for i, text in enumerate(texts)]
    trainer = Trainer(
        AutoModelForSequenceClassification.from_pretrained(path), arguments, train_dataset=rows, eval_dataset=rows,
        data_collator=DataCollatorWithPadding(tiny_tokenizer),
    )  # fmt: skip
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < before / 2
    predicted = trainer.predict(rows).predictions
    assert predicted.shape == (16, 2)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "run" / "checkpoint-40")
    assert_close(loaded.classifier.out_proj.weight, trainer.model.classifier.out_proj.weight)


@pytest.mark.parametrize("half", [False, True])
def test_trainer_fills_masks_with_checkpointing(half, tmp_path, tiny_tokenizer, arguments):
    path = folder(tmp_path / "start", tiny_tokenizer, LinformerForMaskedLM, initializer_range=0.05, **WINDOW)
    rows = [tiny_tokenizer("the long text is good " * (1 + i % 5), truncation=True) for i in range(16)]
    arguments.gradient_checkpointing, arguments.bf16 = True, half
    collator = DataCollatorForLanguageModeling(tiny_tokenizer, mlm_probability=0.3, seed=0)
    trainer = Trainer(
        AutoModelForMaskedLM.from_pretrained(path), arguments, train_dataset=rows, data_collator=collator
    )  # fmt: skip
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < losses[0]
    assert trainer.model.lm_head.decoder.weight is trainer.model.get_input_embeddings().weight
