"""Checkpoints that lack weights, have too many, or name them otherwise are refused, wherever one is read."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import save_bert, save_longform
from torch import Tensor
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification, PreTrainedModel

from longform.errors import CheckpointError
from longform.pretrained.weights import reading
from longform_text.inference.loading import load_pretrained
from longform_text.training.distillation.run import distill
from longform_text.training.finetuning.run import finetune
from longform_text.training.labels import Examples
from longform_text.training.students import load_encoder, with_labels

EXAMPLES = Examples(["a good text", "a bad text"] * 8, ["good", "bad"] * 8)
LOADERS: dict[str, Callable[[Path], PreTrainedModel]] = {
    "inference": lambda folder: load_pretrained(AutoModel, folder)[0],
    "student or teacher": load_encoder,
    "classifier": lambda folder: with_labels(folder, 3, None).model,
}


@pytest.fixture(params=[save_bert, save_longform])
def folder(request: pytest.FixtureRequest, tiny_tokenizer: Any, tmp_path: Path) -> Path:
    return request.param(tmp_path / "model", tiny_tokenizer, head="masked-lm")


@pytest.fixture(params=LOADERS)
def load(request: pytest.FixtureRequest) -> Callable[[Path], PreTrainedModel]:
    return LOADERS[request.param]


def _rewrite(folder: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> None:
    file = folder / "model.safetensors"
    save_file(change(load_file(file)), file, metadata={"format": "pt"})


def _without(part: str) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda tensors: {name: tensor for name, tensor in tensors.items() if not re.search(part, name)}


def test_a_whole_checkpoint_is_read_whatever_its_head(folder: Path, load: Callable[[Path], PreTrainedModel]) -> None:
    words = load_file(folder / "model.safetensors")
    name = next(name for name in words if "word_embeddings" in name)
    assert torch.equal(load(folder).get_input_embeddings().weight, words[name])


@pytest.mark.parametrize("part", ["word_embeddings", r"encoder\.layers?\.1\."])
def test_missing_weights_are_refused(part: str, folder: Path, load: Callable[[Path], PreTrainedModel]) -> None:
    _rewrite(folder, _without(part))
    with pytest.raises(CheckpointError, match=rf"lacks the weights .*{part}.*the checkpoint is not whole"):
        load(folder)


def test_weights_of_another_size_are_refused(folder: Path, load: Callable[[Path], PreTrainedModel]) -> None:
    _rewrite(folder, lambda tensors: {n: t[:-1] if "position_embeddings" in n else t for n, t in tensors.items()})
    with pytest.raises(CheckpointError, match=r"position_embeddings\.weight have other sizes than its config"):
        load(folder)


def test_files_that_are_cut_short_or_pickles_are_refused(folder: Path, load: Callable[[Path], PreTrainedModel]) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    said = r'".*model" cannot be loaded: .*(cut short: copy or download them again|incomplete metadata)'
    with pytest.raises(CheckpointError, match=said):
        load(folder)
    file.rename(folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="weights are a pickle, which is never read"):
        load(folder)


def test_a_layer_that_the_config_does_not_know_is_refused(
    folder: Path, load: Callable[[Path], PreTrainedModel]
) -> None:
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**settings, "num_hidden_layers": 1}))
    with pytest.raises(CheckpointError, match=r"has the weights .*layers?\.1\..* and \d+ more, for which its config"):
        load(folder)


def test_names_of_another_program_are_shown(folder: Path, load: Callable[[Path], PreTrainedModel]) -> None:
    _rewrite(folder, lambda tensors: {f"net.{name}": tensor for name, tensor in tensors.items()})
    with pytest.raises(CheckpointError, match=r"what it has instead: net\."):
        load(folder)


@pytest.mark.parametrize("wrapper", ["module.", "_orig_mod.", "module._orig_mod."])
def test_names_of_wrappers_are_left_out_with_a_word(
    wrapper: str, folder: Path, load: Callable[[Path], PreTrainedModel]
) -> None:
    expected = dict(load(folder).named_parameters())
    _rewrite(folder, lambda tensors: {f"{wrapper}{name}": tensor for name, tensor in tensors.items()})
    with pytest.warns(UserWarning, match="without the wrapper in front of"):
        found = dict(load(folder).named_parameters())
    assert found.keys() == expected.keys()
    new = ("classifier", "pooler", "bert.pooler")
    assert all(torch.equal(found[name], expected[name]) for name in expected if not name.startswith(new))


def test_a_model_is_saved_without_the_wrappers_names(folder: Path, tmp_path: Path) -> None:
    names = load_file(folder / "model.safetensors").keys()
    _rewrite(folder, lambda tensors: {f"module.{name}": tensor for name, tensor in tensors.items()})
    with pytest.warns(UserWarning, match="without the wrapper"):
        load_encoder(folder).save_pretrained(tmp_path / "again")
    assert load_file(tmp_path / "again" / "model.safetensors").keys() == names


def test_a_weight_with_and_without_a_wrapper_is_refused(folder: Path) -> None:
    _rewrite(folder, lambda tensors: tensors | {f"module.{name}": tensor.clone() for name, tensor in tensors.items()})
    with pytest.raises(CheckpointError, match="has weights twice"):
        load_pretrained(AutoModel, folder)


def test_a_head_is_new_in_training_alone(
    bert_classifier_folder: Path, classifier_folder: Path, bert_folder: Path, tmp_path: Path
) -> None:
    assert with_labels(bert_classifier_folder, 5, None).model.config.num_labels == 5
    longform: Any = with_labels(classifier_folder, 5, None).model
    assert longform.classifier.out_proj.out_features == 5
    kept = load_file(classifier_folder / "model.safetensors")["classifier.dense.weight"]
    assert torch.equal(longform.classifier.dense.weight, kept)
    assert with_labels(bert_folder, 5, None).model.config.num_labels == 5
    half = shutil.copytree(bert_classifier_folder, tmp_path / "half")
    _rewrite(half, _without(r"classifier\.bias"))
    with pytest.raises(CheckpointError, match=r"lacks the weights classifier\.bias"):
        with_labels(half, 3, None)


def test_the_pooler_under_a_classifier_is_not_new(bert_classifier_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(bert_classifier_folder, tmp_path / "unpooled")
    _rewrite(folder, _without(r"pooler\."))
    with pytest.raises(CheckpointError, match=r"lacks the weights bert\.pooler"):
        load_pretrained(AutoModelForSequenceClassification, folder)
    load_pretrained(AutoModel, folder)  # which does not use it


def test_a_head_that_the_config_names_is_needed(folder: Path) -> None:
    _rewrite(folder, lambda tensors: {n: t for n, t in tensors.items() if not n.startswith(("cls.", "lm_head."))})
    for load in (load_encoder, lambda place: load_pretrained(AutoModelForMaskedLM, place)):
        with pytest.raises(CheckpointError, match=r"lacks the weights .*A head must be trained"):
            load(folder)


def test_trainings_do_not_begin_from_random_weights(
    tiny_tokenizer: Any, bert_folder: Path, longform_folder: Path, tmp_path: Path
) -> None:
    broken = save_longform(tmp_path / "student", tiny_tokenizer)
    teacher = save_bert(tmp_path / "teacher", tiny_tokenizer)
    for folder in (broken, teacher):
        _rewrite(folder, _without("word_embeddings"))
    texts = ["the good text is long " * 9] * 12
    for train in (
        lambda: finetune(broken, EXAMPLES, progress=False),
        lambda: distill(broken, bert_folder, texts, progress=False),
        lambda: distill(longform_folder, teacher, texts, progress=False),
    ):
        with pytest.raises(CheckpointError, match=r"lacks the weights (linformer\.)?embeddings\.word"):
            train()


@pytest.mark.parametrize("name", ["x" * 5000, "model\0", "no such folder!"])
def test_a_name_that_no_file_system_takes(name: str) -> None:
    with pytest.raises(CheckpointError, match='" cannot be loaded'), reading(name):
        raise OSError("not there")
