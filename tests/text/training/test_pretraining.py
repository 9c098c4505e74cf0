"""Pre-training: it learns, compares fairly between kinds of attention, refuses what cannot be."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from json_lines import write_lines
from shared_trainings import STILL
from torch import Tensor
from transformers import AutoModelForMaskedLM, AutoTokenizer

from longform import LinformerForCausalLM
from longform.errors import ConfigurationError, DataError
from longform_text.data.token_store import lengths_of
from longform_text.data.tokenizer_training import TokenizerSettings
from longform_text.training.pretraining.data import DataCollatorForBlocks, split_documents
from longform_text.training.pretraining.model import AskedTokensLoss, config_for, full_attention_twin, new_model
from longform_text.training.pretraining.run import PretrainingResult, pretrain
from longform_text.training.pretraining.settings import PretrainingSettings
from longform_text.training.trainer import IGNORED, Trainer

SETTINGS = PretrainingSettings(
    tokens_per_step=128, tokens_per_forward=64, max_steps=10, learning_rate=3e-3, eval_steps=0.5, save_steps=4,
    validation_tokens=150, bf16=False,
)  # fmt: skip
MODEL = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
    "max_position_embeddings": 16, "projection": "linear", "projected_length": 4,
}  # fmt: skip
TOKENIZER = TokenizerSettings("wordpiece", 60)


def _run(corpus: Any, settings: PretrainingSettings = SETTINGS, **options: Any) -> PretrainingResult:
    chosen = {"config": MODEL, "tokenizer": TOKENIZER, "progress": False, **options}
    return pretrain(corpus, settings, **chosen)


@pytest.fixture
def file(texts: list[str], tmp_path: Path) -> Path:
    return write_lines(tmp_path / "texts.jsonl", texts)


@pytest.mark.parametrize("config", [MODEL, full_attention_twin(MODEL)], ids=["linformer", "twin"])
def test_it_learns_what_frequencies_do_not_say(config: dict[str, Any], tiny_tokenizer: Any) -> None:
    texts = [f"{word} " * 60 for word in ("near", "far", "good", "bad", "long", "short", "text", "the") * 8]
    settings = replace(SETTINGS, tokens_per_step=256, max_steps=60, learning_rate=1e-2, save_steps=None)
    shape = {**config, **STILL, "initializer_range": 0.2, "normalization": "pre"}
    result = _run(texts, settings, config=shape, tokenizer=tiny_tokenizer)
    assert result.validation_loss < result.unigram_loss - 1.0
    assert [row["step"] for row in result.curve] == [0, 30, 60]
    assert result.tokens == 60 * 256


def test_the_finished_folder(file: Path, tmp_path: Path) -> None:
    result = _run(file, output=tmp_path / "run")
    folder = tmp_path / "run"
    assert {"README.md", "records.jsonl", "config.json", "model.safetensors"} <= {
        path.name for path in folder.iterdir()
    }
    assert not list(folder.glob("**/tokens-*"))
    card = (folder / "README.md").read_text()
    assert f"{result.validation_loss:.4f}" in card
    assert "predicting frequencies alone" in card
    model, tokenizer = AutoModelForMaskedLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert tokenizer.model_max_length == 16
    assert model(**tokenizer("the good text", return_tensors="pt")).logits.shape[-1] == 60


def test_another_model_or_corpus_is_another_run(file: Path, texts: list[str], tmp_path: Path) -> None:
    output = tmp_path / "run"
    _run(file, replace(SETTINGS, max_steps=1), output=output)
    with pytest.raises(ConfigurationError, match=r"model.projected_length: 4 there, 8 now"):
        _run(file, replace(SETTINGS, max_steps=1), config={**MODEL, "projected_length": 8}, output=output)
    file.write_text(json.dumps({"text": " ".join(texts[:20])}))
    with pytest.raises(ConfigurationError, match=r"data: \w+ there, \w+ now"):
        _run(file, replace(SETTINGS, max_steps=1), output=output)


def test_attention_does_not_change_order_masks_and_initial_weights(
    texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[Tensor]] = []
    original = Trainer.training_step

    def noted(self: Any, model: Any, batch: Any, *more: Any) -> Any:
        seen[-1] += [batch["input_ids"], batch["labels"]]
        return original(self, model, batch, *more)

    monkeypatch.setattr(Trainer, "training_step", noted)
    for config in (MODEL, full_attention_twin(MODEL), {**MODEL, "projection_sharing": "layerwise"}):
        seen.append([])
        _run(texts, replace(SETTINGS, max_steps=3), config={**config, **STILL})
    assert all(torch.equal(one, other) for run in seen[1:] for one, other in zip(seen[0], run, strict=True))


def test_initial_weights_are_shared_by_name(tiny_tokenizer: Any) -> None:
    drawn = {**MODEL, "projection_init": "normal"}
    linformer, twin = (
        new_model(config_for(config, tiny_tokenizer), 3) for config in (drawn, full_attention_twin(drawn))
    )
    ours, theirs = linformer.state_dict(), twin.state_dict()
    assert all(torch.equal(value, ours[name]) for name, value in theirs.items())
    own = [name for name in ours if name not in theirs]
    assert len(own) == 4
    assert not torch.equal(ours[own[0]], ours[own[1]])
    assert not torch.equal(ours[own[0]], new_model(config_for(drawn, tiny_tokenizer), 4).state_dict()[own[0]])
    assert 0.01 < float(ours["linformer.embeddings.word_embeddings.weight"].std()) < 0.03


def test_the_validation_set_does_not_follow_the_seed(texts: list[str]) -> None:
    one, other = (_run(texts, replace(SETTINGS, max_steps=1, seed=seed)) for seed in (0, 1))
    assert one.unigram_loss == other.unigram_loss
    assert one.curve[0]["loss"] != other.curve[0]["loss"]


@pytest.mark.parametrize(
    ("corpus", "changes", "vocabulary", "named"),
    [
        (["", " "], {}, None, "the corpus is empty"),
        (["the good text is long"] * 12, {"tokens_per_step": 4096}, None,
         r"smaller than one batch: .* a step takes 256\. Lower tokens_per_step or length"),
        (None, {}, 9_000, "vocab_size=9,000 is more than the corpus supports"),
        (None, {"tokens_per_step": 8}, None, "tokens_per_step=8 holds no block of length=16"),
        (None, {"length": 32}, None, "length is 32, but the model takes 16 tokens"),
    ],
)  # fmt: skip
def test_what_does_not_fit(
    corpus: Any, changes: Any, vocabulary: int | None, named: str, texts: list[str], tiny_tokenizer: Any
) -> None:
    tokenizer = tiny_tokenizer if vocabulary is None else TokenizerSettings("byte-bpe", vocabulary)
    with pytest.raises((DataError, ConfigurationError), match=named):
        _run(corpus or texts, replace(SETTINGS, **changes), tokenizer=tokenizer)


CAUSAL = {**MODEL, "projection": "mean", "attention_window": 4}


def test_a_causal_model_learns_and_generates(texts: list[str], tmp_path: Path) -> None:
    settings = replace(SETTINGS, objective="causal", max_steps=30, learning_rate=1e-2)
    whole = _run(texts, settings, config=CAUSAL, output=tmp_path / "whole")
    assert whole.curve[-1]["loss"] < 0.8 * whole.curve[0]["loss"]
    model = LinformerForCausalLM.from_pretrained(tmp_path / "whole")
    ids = torch.tensor([[whole.tokenizer.cls_token_id, 7, 9]])
    assert model.generate(ids, max_new_tokens=5, do_sample=False).shape == (1, 8)
    assert "causal language model" in (tmp_path / "whole" / "README.md").read_text()


def test_the_causal_loss_is_that_of_the_model_s_head(tiny_tokenizer: Any) -> None:
    model = new_model(config_for(CAUSAL, tiny_tokenizer, causal=True), 0).eval()
    collator, documents = DataCollatorForBlocks(tiny_tokenizer, 16, causal=True), _documents([7, 9], [8, 6])
    batch = collator(list(collator.blocks(documents, "full")))  # 3 parts the two
    assert batch["labels"][batch["labels"] != IGNORED].tolist() == [9, 3, 6]
    loss = AskedTokensLoss(model)
    found = loss(model, batch)
    loss.remove()
    expected = model(**batch).loss
    torch.testing.assert_close(found, expected)


def test_what_a_causal_model_cannot_have(texts: list[str]) -> None:
    settings = replace(SETTINGS, objective="causal")
    with pytest.raises(ConfigurationError, match="projection='linear' is made") as caught:
        _run(texts, settings, config={**MODEL, "projection": "linear"})
    assert len(str(caught.value).splitlines()) == 1
    masked = new_model(config_for(MODEL, _run(texts, replace(SETTINGS, max_steps=1)).tokenizer), 0)
    with pytest.raises(ConfigurationError, match="is not that of a LinformerForMaskedLM"):
        _run(texts, settings, config=masked)


def test_a_loaded_model_goes_on(texts: list[str]) -> None:
    first = _run(texts, replace(SETTINGS, max_steps=12, learning_rate=1e-2, save_steps=None))
    again = _run(
        texts, replace(SETTINGS, max_steps=2, eval_strategy="no"), config=first.model, tokenizer=first.tokenizer
    )
    assert again.curve[0]["loss"] == pytest.approx(first.validation_loss)
    assert again.model is first.model


def _documents(*rows: list[int]) -> Dataset:
    return Dataset.from_dict({"input_ids": [np.array(row, dtype=np.int32) for row in rows]}).with_format("numpy")


@pytest.mark.parametrize("place", [0, 5, 11])
def test_no_more_than_a_tenth_is_held_out(place: int) -> None:
    lengths = [100 + number for number in range(12)]
    lengths[place] = 9_000
    parts = split_documents(_documents(*([5] * length for length in lengths)), 10_000)
    train, held = (lengths_of(part).tolist() for part in parts)
    assert 0 < sum(held) <= 1_030
    assert sorted([*train, *held]) == sorted(lengths)


def test_the_shortest_is_held_out_where_all_are_longer_than_asked_for() -> None:
    _, held = split_documents(_documents(*([5] * length for length in range(110, 99, -1))), 5)
    assert lengths_of(held).tolist() == [100]


def test_of_few_documents_the_ends_are_held_out() -> None:
    train, held = split_documents(_documents([*range(40)], [*range(9)], [*range(50, 70)]), 12)
    assert [ids.tolist() for ids in held["input_ids"]] == [[*range(36, 40)], [], [68, 69]]
    assert lengths_of(train).tolist() == [36, 9, 18]
