"""Models to train that cannot be opened, and what their errors say."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import BertModel

from longform.errors import CheckpointError, ConfigurationError
from longform.training.distillation.run import distill
from longform.training.engine.students import load_encoder
from longform.training.finetuning.run import finetune
from longform.training.labels import Examples

EXAMPLES = Examples(["a good text", "a bad text"] * 8, ["good", "bad"] * 8)


@pytest.fixture
def cut(student_folder: Path, tmp_path: Path) -> Path:
    folder = shutil.copytree(student_folder, tmp_path / "cut")
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    return folder


def test_weights_that_are_cut_short(
    cut: Path, student_folder: Path, teacher: BertModel, texts: list[str], tmp_path: Path
) -> None:
    said = r'".*cut" cannot be loaded: .*cut short: copy or download them again'
    with pytest.raises(CheckpointError, match=said):
        distill(cut, teacher, texts, progress=False)
    with pytest.raises(CheckpointError, match=said):
        finetune(cut, EXAMPLES, progress=False)
    teacher.save_pretrained(tmp_path / "teacher")
    file = tmp_path / "teacher" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=r'".*teacher" cannot be loaded'):
        distill(student_folder, tmp_path / "teacher", texts, progress=False)


@pytest.mark.parametrize("name", ["/no/such/model", "./none", "../../a/none"])
def test_folders_that_are_not_there(name: str, student_folder: Path, teacher: BertModel, texts: list[str]) -> None:
    with pytest.raises(CheckpointError, match=f'"{name}" cannot be loaded: there is no such folder$'):
        finetune(name, EXAMPLES, progress=False)
    with pytest.raises(CheckpointError, match=f'"{name}" cannot be loaded: there is no such folder$'):
        distill(student_folder, name, texts, progress=False)
    with pytest.raises(ConfigurationError, match=f'the student "{name}" is not a folder'):
        distill(name, teacher, texts, progress=False)


def test_neither_a_folder_nor_on_the_hub(student_folder: Path, texts: list[str]) -> None:
    with pytest.raises(CheckpointError, match=r"there is no such folder\)$"):
        finetune("no-such-model", EXAMPLES, progress=False)
    with pytest.raises(CheckpointError, match=r"there is no such folder\)$"):
        distill(student_folder, "nobody/no-such-model", texts, progress=False)


def test_a_pickle(student_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(student_folder, tmp_path / "pickle")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="pickle"):
        finetune(folder, EXAMPLES, progress=False)


def test_an_encoder_under_the_name_of_its_language_model(teacher: BertModel, tmp_path: Path) -> None:
    """As sentence-transformers saves it; without its modules.json it is a language model that lacks its head."""
    teacher.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": ["BertForMaskedLM"]}))
    with pytest.raises(CheckpointError, match="lacks the weights cls"):
        load_encoder(tmp_path)
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    found = load_encoder(tmp_path)
    assert type(found) is BertModel
    assert torch.equal(found.get_input_embeddings().weight, teacher.get_input_embeddings().weight)
    (tmp_path / "sentence_bert_config.json").write_text('{"transformer_task": "fill-mask"}')
    with pytest.raises(CheckpointError, match="lacks the weights cls"):
        load_encoder(tmp_path)
