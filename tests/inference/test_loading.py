"""Checkpoints that cannot be used, and what their errors say."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoModelForSequenceClassification

from longform.errors import CheckpointError, ConfigurationError
from longform.inference import loading
from longform.inference.loading import (
    checked_limit,
    load_pretrained,
    missing_compiler,
    pick_device,
    pick_dtype,
    token_limit,
)
from longform.training.engine.settings import compute_dtype


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


def test_truncated_weights(copy: Path) -> None:
    weights = copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="cannot be loaded"):
        load_pretrained(AutoModel, copy)


def test_pickle_is_never_read(copy: Path) -> None:
    (copy / "model.safetensors").unlink()
    (copy / "pytorch_model.bin").write_bytes(b"\x80\x04}.")
    with pytest.raises(CheckpointError, match="weights are a pickle, which is never read"):
        load_pretrained(AutoModel, copy)


def test_unknown_architecture(copy: Path) -> None:
    settings = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**settings, "model_type": "nothing-known"}))
    with pytest.raises(CheckpointError, match="nothing-known"):
        load_pretrained(AutoModel, copy)


def test_other_sizes_than_the_config_says(copy: Path) -> None:
    settings = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**settings, "intermediate_size": 44}))
    with pytest.raises(CheckpointError, match="cannot be loaded"):
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


def test_inference_and_training_mean_the_same_by_auto(monkeypatch: pytest.MonkeyPatch) -> None:
    for flag in ("avx512_bf16", "amx_bf16", "bf16", "avx2"):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda flag=flag: {flag: True}, raising=False)
        assert pick_dtype("auto", torch.device("cpu")) == compute_dtype("auto", torch.device("cpu"))


def test_a_dtype_that_the_machine_lacks_is_refused_before_the_model_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(loading, "native_bfloat16", lambda device: False)
    with pytest.raises(ConfigurationError, match="does not multiply"):
        load_pretrained(AutoModel, tmp_path / "nothing", dtype="bfloat16", device="cpu")


def test_compiling_without_a_compiler(monkeypatch: pytest.MonkeyPatch, longform_folder: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    with monkeypatch.context() as patch:
        patch.setattr("longform.inference.loading.shutil.which", lambda name: None)
        with pytest.raises(ConfigurationError, match=r"needs a C\+\+ compiler, and .*apt-get install g\+\+"):
            load_pretrained(AutoModel, longform_folder, compile=True)
    monkeypatch.setattr("longform.inference.loading.shutil.which", lambda name: name)
    monkeypatch.setattr("longform.inference.loading.sysconfig.get_paths", lambda: {"include": "/nowhere"})
    with pytest.raises(ConfigurationError, match=r"Python\.h.*python3-dev"):
        load_pretrained(AutoModel, longform_folder, compile=True)


def test_compiling_a_gpus_model_needs_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longform.inference.loading.shutil.which", lambda name: name)
    for found in (False, True):
        monkeypatch.setattr("longform.inference.loading.has_triton", lambda found=found: found)
        assert (missing_compiler(torch.device("cuda")) == "") is found
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr("longform.inference.loading.shutil.which", lambda name: None)
    assert "needs a C compiler" in missing_compiler(torch.device("cuda"))


def test_only_longforms_are_compiled(bert_folder: Path) -> None:
    with pytest.raises(ConfigurationError, match="compile is for Longform's own models, not BertModel"):
        load_pretrained(AutoModel, bert_folder, compile=True)


@pytest.mark.parametrize("native", [False, True])
def test_auto_is_bfloat16_where_the_gpu_multiplies_it(monkeypatch, native):
    """In inference and in training; emulated bfloat16 of older GPUs does not count."""
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: native or including_emulation)
    expected = torch.bfloat16 if native else torch.float32
    assert pick_dtype("auto", torch.device("cuda")) == expected
    assert compute_dtype("auto", torch.device("cuda")) == expected
