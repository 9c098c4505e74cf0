"""Checkpoints and tokenizers that cannot be used, and what their errors say."""

import json
import shutil
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel, AutoModelForSequenceClassification

from longform import convert
from longform.errors import CheckpointError, ConfigurationError
from longform.pretrained.tokenizers import vocabulary_size
from longform_text.inference import loading
from longform_text.inference.classifiers import Classifier
from longform_text.inference.encoders import Encoder
from longform_text.inference.loading import (
    checked_limit,
    load_pretrained,
    missing_compiler,
    pick_device,
    pick_dtype,
    token_limit,
)
from longform_text.training.pretraining.model import config_for
from longform_text.training.students import open_student, with_labels


@pytest.fixture
def copy(bert_folder: Path, tmp_path: Path) -> Path:
    return shutil.copytree(bert_folder, tmp_path / "copy")


def test_good_folder(bert_folder: Path) -> None:
    model, tokenizer = load_pretrained(AutoModel, bert_folder)
    assert not model.training
    assert model.dtype == torch.float32
    assert token_limit(model, tokenizer) == 32


def test_a_limit_of_no_tokens_is_refused() -> None:
    for max_length in (0, -3):
        with pytest.raises(ConfigurationError, match=f"max_length is {max_length}; it is at least 1, or null"):
            checked_limit(64, max_length, name="the model")
    assert (checked_limit(64, None, name="the model"), checked_limit(64, 1, name="the model")) == (64, 1)


def test_limit_of_roberta_leaves_out_the_paddings_rows(bert_folder: Path) -> None:
    model, tokenizer = load_pretrained(AutoModel, bert_folder)
    model.config.model_type, model.config.pad_token_id = "roberta", 1
    assert token_limit(model, tokenizer) == 30


def test_missing_folder() -> None:
    with pytest.raises(CheckpointError, match="there is no such folder"):
        load_pretrained(AutoModel, "/no/such/model")


def test_unknown_architecture(copy: Path) -> None:
    settings = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**settings, "model_type": "nothing-known"}))
    with pytest.raises(CheckpointError, match="nothing-known"):
        load_pretrained(AutoModel, copy)


def test_head_that_was_never_trained(bert_folder: Path) -> None:
    with pytest.raises(CheckpointError, match=r"lacks the weights classifier\.bias.*longform finetune"):
        load_pretrained(AutoModelForSequenceClassification, bert_folder)


def test_device_and_dtype() -> None:
    assert pick_device("cpu") == torch.device("cpu")
    assert pick_device("auto") == torch.device("cpu")  # the tests hide GPUs
    for name, message in (("cuda", "sees 0 of its kind"), ("gpu", "it is auto, cpu, cuda")):
        with pytest.raises(ConfigurationError, match=message):
            pick_device(name)
    with pytest.raises(ConfigurationError, match='dtype is "half"'):
        pick_dtype("half", torch.device("cpu"))


@pytest.mark.parametrize("native", [False, True])
def test_auto_is_bfloat16_where_it_is_multiplied(monkeypatch: pytest.MonkeyPatch, native: bool) -> None:
    monkeypatch.setattr(loading, "native_bfloat16", lambda device: native)
    cpu = torch.device("cpu")
    assert pick_dtype("auto", cpu) == (torch.bfloat16 if native else torch.float32)
    assert pick_dtype("float32", cpu) == torch.float32
    if native:
        assert pick_dtype("bfloat16", cpu) == torch.bfloat16
        return
    for device, name in (("cpu", "CPU"), ("cuda", "GPU")):
        with pytest.raises(ConfigurationError, match=f'this {name} does not multiply.* give "float32", or "auto"'):
            pick_dtype("bfloat16", torch.device(device))
    assert pick_dtype("bfloat16", torch.device("mps")) == torch.bfloat16  # nothing is known against it


def test_auto_is_one_dtype_in_inference_and_in_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Emulated bfloat16 of older GPUs does not count."""
    for native in (False, True):
        found = {"architecture": "x86_64", "avx512_bf16": native}
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda found=found: found, raising=False)
        monkeypatch.setattr(
            torch.cuda,
            "is_bf16_supported",
            lambda including_emulation=True, native=native: native or including_emulation,
        )
        for device in map(torch.device, ("cpu", "cuda")):
            expected = torch.bfloat16 if native else torch.float32
            assert pick_dtype("auto", device) == expected


def test_a_dtype_that_the_machine_lacks_is_refused_before_the_model_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(loading, "native_bfloat16", lambda device: False)
    with pytest.raises(ConfigurationError, match="does not multiply"):
        load_pretrained(AutoModel, tmp_path / "nothing", dtype="bfloat16", device="cpu")


def test_compiling_without_a_compiler(monkeypatch: pytest.MonkeyPatch, longform_folder: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    with monkeypatch.context() as patch:
        patch.setattr("longform_text.inference.loading.shutil.which", lambda name: None)
        with pytest.raises(ConfigurationError, match=r"needs a C\+\+ compiler, and .*apt-get install g\+\+"):
            load_pretrained(AutoModel, longform_folder, compile=True)
    monkeypatch.setattr("longform_text.inference.loading.shutil.which", lambda name: name)
    monkeypatch.setattr("longform_text.inference.loading.sysconfig.get_paths", lambda: {"include": "/nowhere"})
    with pytest.raises(ConfigurationError, match=r"Python\.h.*python3-dev"):
        load_pretrained(AutoModel, longform_folder, compile=True)


def test_compiling_a_gpus_model_needs_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longform_text.inference.loading.shutil.which", lambda name: name)
    for found in (False, True):
        monkeypatch.setattr("longform_text.inference.loading.has_triton", lambda found=found: found)
        assert (missing_compiler(torch.device("cuda")) == "") is found
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr("longform_text.inference.loading.shutil.which", lambda name: None)
    assert "needs a C compiler" in missing_compiler(torch.device("cuda"))


def test_only_longforms_are_compiled(bert_folder: Path) -> None:
    with pytest.raises(ConfigurationError, match="compile is for Longform's own models, not BertModel"):
        load_pretrained(AutoModel, bert_folder, compile=True)


SAID = r"has 105 tokens, the model 103 embeddings .*none for \[HOST\], \[ADDRESS\]\. .*resize_token_embeddings\(105\)"


@pytest.fixture
def larger(tiny_tokenizer: Any) -> Any:
    tokenizer = deepcopy(tiny_tokenizer)
    tokenizer.add_tokens(["[HOST]", "[ADDRESS]"], special_tokens=True)
    assert vocabulary_size(tokenizer) == len(tiny_tokenizer) + 2 == 105
    return tokenizer


def _with(tokenizer: Any, folder: Path, target: Path) -> Path:
    shutil.copytree(folder, target)
    tokenizer.save_pretrained(target)
    return target


@pytest.mark.parametrize("opened", [Encoder.from_pretrained, lambda at: open_student(at, None), convert])
@pytest.mark.parametrize("kind", ["bert", "longform"])
def test_in_a_folder(request: Any, larger: Any, tmp_path: Path, kind: str, opened: Callable[[Path], Any]) -> None:
    folder = _with(larger, request.getfixturevalue(f"{kind}_folder"), tmp_path / kind)
    with pytest.raises(ConfigurationError, match=SAID):
        opened(folder)


@pytest.mark.parametrize("opened", [Classifier.from_pretrained, lambda at: with_labels(at, 3, None)])
def test_of_a_classifier(classifier_folder: Path, larger: Any, tmp_path: Path, opened: Callable[[Path], Any]) -> None:
    with pytest.raises(ConfigurationError, match=SAID):
        opened(_with(larger, classifier_folder, tmp_path / "classifier"))


def test_in_memory(bert_folder: Path, classifier_folder: Path, larger: Any) -> None:
    model = AutoModel.from_pretrained(bert_folder)
    for opened in (
        lambda: convert(model, tokenizer=larger), lambda: open_student(model, larger),
        lambda: with_labels(AutoModelForSequenceClassification.from_pretrained(classifier_folder), 3, larger),
    ):  # fmt: skip
        with pytest.raises(ConfigurationError, match=SAID):
            opened()


def test_with_embeddings_for_them_it_is_taken(bert_folder: Path, larger: Any, tmp_path: Path) -> None:
    model = AutoModel.from_pretrained(bert_folder)
    model.resize_token_embeddings(len(larger), mean_resizing=False)
    convert(model, tokenizer=larger, max_length=64).save_pretrained(tmp_path / "made")
    assert Encoder.from_pretrained(tmp_path / "made").encode("near [HOST]").shape == (24,)
    assert config_for(None, larger).vocab_size == 105
