"""Folders and models with adapters (PEFT): the adapter becomes part of the weights, or an error says what to do."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import IA3Config, LoraConfig, PromptTuningConfig, get_peft_model
from tiny_models import make_sentence_transformer, save_longform
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

import longform
from longform.conversion.shipped import shipped
from longform.errors import CheckpointError, ConversionError
from longform.pretrained.adapters import join_adapters
from longform_text.inference.classifiers import Classifier
from longform_text.inference.encoders import Encoder
from longform_text.serving.engine import Engine
from longform_text.serving.settings import ServingSettings
from longform_text.training.alignment.model import open_sentence_model
from longform_text.training.finetuning.run import finetune
from longform_text.training.finetuning.settings import FinetuningSettings
from longform_text.training.students import open_student, with_labels

LORA = {"r": 2, "target_modules": ["query", "value", "dense"]}
TEXTS = ["a short text", "it is good", "the far and the near " * 20]
SETTINGS = FinetuningSettings(max_steps=1, validation_fraction=0.5)


def _changed(model: Any) -> Any:
    """With adapters that do something."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name or "ia3" in name:
                parameter.normal_(1.0, 0.3)
    return model.eval()


def _adapted(base: Path, target: Path, config: Any, auto: Any = AutoModel, **how: Any) -> Any:
    """A model with an adapter, whose folder is ``target``."""
    model = _changed(get_peft_model(auto.from_pretrained(base, **how), copy.deepcopy(config)))
    model.save_pretrained(target)
    return model


def _states(model: Any, folder: Path) -> np.ndarray:
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        return model(**tokenizer(TEXTS[0], return_tensors="pt"))[0][0].mean(dim=0).numpy()


@pytest.mark.parametrize("kind", ["bert", "longform"])
@pytest.mark.parametrize("config", [LoraConfig(**LORA), LoraConfig(use_dora=True, **LORA), IA3Config(
    target_modules=["key", "value"], feedforward_modules=[])], ids=["lora", "dora", "ia3"])  # fmt: skip
def test_an_encoder_with_an_adapter(request: Any, tmp_path: Path, kind: str, config: Any) -> None:
    base = request.getfixturevalue(f"{kind}_folder")
    right = _states(_adapted(base, tmp_path, config), base)
    encoder = Encoder.from_pretrained(tmp_path)
    np.testing.assert_allclose(encoder.encode(TEXTS[0]), right, rtol=0, atol=1e-4)
    assert abs(right - Encoder.from_pretrained(base).encode(TEXTS[0])).max() > 1e-2
    assert not any("lora" in name for name, _ in encoder.model.named_modules())
    assert Engine.load(str(tmp_path), ServingSettings()).kind == "embedding"


def test_an_adapter_in_a_folder_of_sentence_transformers(longform_folder: Path, tmp_path: Path) -> None:
    model: Any = AutoModel.from_pretrained(longform_folder)
    model.add_adapter(LoraConfig(**LORA))
    _changed(model).save_pretrained(tmp_path)
    make_sentence_transformer(tmp_path, pooling={"pooling_mode_cls_token": True}, normalise=True)
    join_adapters(model)
    found = Encoder.from_pretrained(tmp_path).encode(TEXTS[0])
    right = Encoder.from_pretrained(longform_folder, pooling="cls", normalise=True)
    model.save_pretrained(tmp_path / "joined")
    right.tokenizer.save_pretrained(tmp_path / "joined")
    joined = Encoder.from_pretrained(tmp_path / "joined", pooling="cls", normalise=True).encode(TEXTS[0])
    np.testing.assert_allclose(found, joined, rtol=0, atol=1e-5)
    right.tokenizer.save_pretrained(tmp_path)
    to_align = open_sentence_model(tmp_path, torch.device("cpu"))
    assert all(parameter.requires_grad for parameter in to_align.encoder.parameters())
    to_align.origin.save_pretrained(tmp_path / "aligned")
    np.testing.assert_allclose(Encoder.from_pretrained(tmp_path / "aligned").encode(TEXTS[0]), found, rtol=0, atol=1e-5)


@pytest.mark.parametrize("of_encoder", [True, False], ids=["new head", "own head"])
def test_a_classifier_whose_head_learned_with_the_adapter(
    longform_folder: Path, classifier_folder: Path, tmp_path: Path, of_encoder: bool
) -> None:
    base = longform_folder if of_encoder else classifier_folder
    model = _adapted(
        base, tmp_path, LoraConfig(task_type="SEQ_CLS", **LORA), AutoModelForSequenceClassification, num_labels=3
    )
    classifier = Classifier.from_pretrained(tmp_path)
    tokenizer: Any = classifier.tokenizer
    with torch.no_grad():
        right = model(**tokenizer(TEXTS[0], return_tensors="pt")).logits[0].numpy()
    np.testing.assert_allclose(classifier.logits(TEXTS[0]), right, rtol=0, atol=1e-4)
    assert classifier.labels == (["LABEL_0", "LABEL_1", "LABEL_2"] if of_encoder else ["bad", "good", "odd"])
    assert Engine.load(str(tmp_path), ServingSettings()).kind == "classifier"


def test_an_adapter_of_an_encoder_is_no_classifier(longform_folder: Path, tmp_path: Path) -> None:
    _adapted(longform_folder, tmp_path, LoraConfig(**LORA))
    with pytest.raises(CheckpointError, match=r"lacks the weights classifier\..*A head must be trained"):
        Classifier.from_pretrained(tmp_path)


@pytest.mark.parametrize("how", ["folder", "peft", "in place"])
def test_fine_tuning_begins_with_the_joined_weights(longform_folder: Path, tmp_path: Path, how: str) -> None:
    given: Any = _adapted(longform_folder, tmp_path / "adapter", LoraConfig(**LORA))
    right = _states(given, longform_folder)
    tokenizer = AutoTokenizer.from_pretrained(longform_folder)
    if how == "folder":
        given = tmp_path / "adapter"
    elif how == "in place":
        given = given.base_model.model
    opened = with_labels(given, 2, tokenizer)
    np.testing.assert_allclose(_states(opened.model.base_model, longform_folder), right, rtol=0, atol=1e-4)
    assert all(parameter.requires_grad for parameter in opened.model.base_model.parameters())
    rows = [{"text": f"{word} text", "label": word} for word in ("good", "bad")] * 8
    finetune(given, rows, SETTINGS, tokenizer=tokenizer, output=tmp_path / "tuned", progress=False)
    assert Classifier.from_pretrained(tmp_path / "tuned").labels == ["bad", "good"]


def test_a_student_with_an_adapter_is_saved_with_its_tokenizer(longform_folder: Path, tmp_path: Path) -> None:
    model = _adapted(longform_folder, tmp_path / "adapter", LoraConfig(**LORA))
    tokenizer = AutoTokenizer.from_pretrained(longform_folder)
    with pytest.raises(longform.errors.ConfigurationError, match="needs its tokenizer"):
        open_student(model, None)
    open_student(model, tokenizer).save(tmp_path / "saved")
    found = Encoder.from_pretrained(tmp_path / "saved").encode(TEXTS)
    np.testing.assert_allclose(found, Encoder.from_pretrained(tmp_path / "adapter").encode(TEXTS), rtol=0, atol=1e-5)


def test_packing_leaves_layers_with_adapters_as_they_are(longform_folder: Path) -> None:
    model: Any = AutoModel.from_pretrained(longform_folder)
    model.add_adapter(LoraConfig(**LORA))
    right = _states(_changed(model), longform_folder)
    np.testing.assert_allclose(_states(longform.pack_weights(model), longform_folder), right, rtol=0, atol=1e-5)


def test_what_cannot_be_joined_says_what_to_do(longform_folder: Path, tiny_tokenizer: Any, tmp_path: Path) -> None:
    prompts = PromptTuningConfig(task_type="FEATURE_EXTRACTION", num_virtual_tokens=2)
    _adapted(longform_folder, tmp_path / "prompts", prompts)
    other = save_longform(tmp_path / "wider", tiny_tokenizer, hidden_size=30)
    model = _adapted(other, tmp_path / "other", LoraConfig(**LORA))
    config = tmp_path / "other/adapter_config.json"
    config.write_text(config.read_text().replace(str(other), str(longform_folder)))
    for name in ("prompts", "other"):
        with pytest.raises(CheckpointError, match=r"cannot be loaded: .*merge_and_unload\(\)\.save_pretrained"):
            Encoder.from_pretrained(tmp_path / name)
    (tmp_path / "other/adapter_model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"cannot be loaded: .*adapter_model\.safetensors"):
        Encoder.from_pretrained(tmp_path / "other")
    for source in (tmp_path / "other", model, model.base_model.model):
        with pytest.raises(ConversionError, match=r"adapter by PEFT: give the model that .*merge_and_unload\(\)"):
            longform.convert(source)
    place = Path(longform.__file__).parent / "conversion/adapters" / shipped()[0]
    with pytest.raises(CheckpointError, match=r"does not name its base model; .* --adapter"):
        Encoder.from_pretrained(place)
