import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel, BertForMaskedLM, BertModel

import longform
from longform.errors import CheckpointError, ConfigurationError, DataError
from longform_text.training.distillation.run import DistillationResult, distill
from longform_text.training.distillation.settings import DistillationSettings, fitted
from longform_text.training.run import measured

SETTINGS = DistillationSettings(
    length=48, min_length=12, tokens_per_step=200, max_steps=12, learning_rate=3e-3, heldout_documents=6,
    eval_steps=1 / 3, save_steps=4, dropout=0.2, bf16=False,
)  # fmt: skip


def _run(student: Any, teacher: Any, texts: list[str], **options: Any) -> DistillationResult:
    return distill(student, teacher, texts, options.pop("settings", SETTINGS), progress=False, **options)


def test_the_student_comes_closer_to_its_teacher(student_folder: Path, teacher: BertModel, texts: list[str]) -> None:
    settings = replace(SETTINGS, tokens_per_step=400, max_steps=60, dropout=0.0, eval_steps=0.2)
    result = _run(student_folder, teacher, texts, settings=settings)
    assert sum(result.after.layer_errors) < 0.6 * sum(result.before.layer_errors)
    assert result.after.cosine > result.before.cosine
    assert result.steps == 60
    assert [row["step"] for row in measured(result.records, "cosine")] == [0, 12, 24, 36, 48, 60]


def test_a_perfect_student_has_nothing_to_learn(teacher: BertModel, tiny_tokenizer: Any, texts: list[str]) -> None:
    student = longform.convert(teacher, tokenizer=tiny_tokenizer, max_length=32, attention_window=16)
    settings = DistillationSettings(length=32, min_length=12, max_steps=1, heldout_documents=4, bf16=False)
    before = _run(student, teacher, texts, settings=settings).before
    assert before.cosine == pytest.approx(1.0, abs=1e-5)
    assert max(before.layer_errors) < 1e-6


def test_a_damaged_checkpoint_is_named_and_its_pickles_are_not_run(
    student_folder: Path, teacher: BertModel, texts: list[str], tmp_path: Path, break_off: Callable[..., None]
) -> None:
    interrupted = tmp_path / "run"
    break_off(6, lambda: _run(student_folder, teacher, texts, output=interrupted))

    class Evil:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "ran",))

    torch.save({"optimizers": Evil()}, interrupted / "checkpoint-4" / "optimizer.pt")
    with pytest.raises(CheckpointError, match="checkpoint-4"):
        _run(student_folder, teacher, texts, output=interrupted)
    assert not (tmp_path / "ran").exists()
    file = interrupted / "checkpoint-4" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(CheckpointError, match=r"checkpoint-4.*damaged.*delete it"):
        _run(student_folder, teacher, texts, output=interrupted)


def test_the_encoder_alone_of_a_model_with_a_head_learns(
    teacher_with_head: BertForMaskedLM, tiny_tokenizer: Any, texts: list[str]
) -> None:
    student = longform.convert(teacher_with_head, tokenizer=tiny_tokenizer, max_length=64, attention_window=None)
    before = {name: value.clone() for name, value in student.model.state_dict().items()}
    settings = DistillationSettings(length=48, min_length=12, tokens_per_step=300, max_steps=2, heldout_documents=4)
    after = _run(student, teacher_with_head, texts, settings=settings).student.state_dict()
    still = {name for name in after if torch.equal(before[name], after[name])}
    assert "linformer.embeddings.word_embeddings.weight" in still
    assert {name for name in after if name.startswith("lm_head")} <= still
    assert len(still) < len(after)


def test_the_student_is_given_back_as_it_was(student_folder: Path, teacher: BertModel, texts: list[str]) -> None:
    student = AutoModel.from_pretrained(student_folder)
    config = student.config.to_dict()
    result = _run(student_folder, teacher, texts, settings=replace(SETTINGS, max_steps=1))
    assert all(parameter.requires_grad for parameter in result.student.parameters())
    assert not result.student.training
    assert result.student.config.to_dict() == config
    out = result.student(input_ids=torch.tensor([[2, 7, 3]]))
    assert out.last_hidden_state.shape == (1, 3, 20)


def test_minutes_end_a_training(student_folder: Path, teacher: BertModel, texts: list[str]) -> None:
    settings = replace(SETTINGS, max_steps=10_000, max_minutes=0.01)
    result = _run(student_folder, teacher, texts, settings=settings)
    assert 1 <= result.steps < 10_000
    assert measured(result.records, "cosine")[-1]["step"] == result.steps


def test_tokens_of_steps_are_counted(student_folder: Path, teacher: BertModel, texts: list[str]) -> None:
    settings = replace(SETTINGS, tokens_per_step=100, max_steps=7, activation_checkpointing=True)
    result = _run(student_folder, teacher, texts, settings=settings)
    assert result.steps == 7
    assert 500 < result.tokens <= 700


@pytest.mark.parametrize(
    ("changed", "heldout", "layers", "named"),
    [
        ({"length": 65}, None, 2, "length is 65, but the student takes 64 tokens"),
        ({"teacher_length": 33}, None, 2, "teacher_length is 33, but the teacher takes 32 tokens"),
        ({}, None, 3, "num_hidden_layers of the student is 2, of the teacher 3"),
        ({}, ["", "a"], 2, "held-out documents are empty"),
    ],
)
def test_what_does_not_fit(
    changed: Any, heldout: Any, layers: int, named: str, student_folder: Path, teacher: BertModel, texts: list[str]
) -> None:
    teacher.config.num_hidden_layers = layers
    with pytest.raises((ConfigurationError, DataError), match=named):
        _run(student_folder, teacher, texts, settings=replace(SETTINGS, **changed), heldout=heldout)


def test_only_a_longform_is_a_student(
    student_folder: Path, teacher: BertModel, tiny_tokenizer: Any, texts: list[str], tmp_path: Path
) -> None:
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    student = AutoModel.from_pretrained(student_folder)
    with pytest.raises(ConfigurationError, match=r"student and teacher are swapped.*give the Longform first"):
        distill(teacher, student, texts, SETTINGS, tokenizer=tiny_tokenizer, output=tmp_path / "run", progress=False)
    with pytest.raises(ConfigurationError, match=r'the student is of type "bert".*convert it first'):
        distill(teacher, copy.deepcopy(teacher), texts, SETTINGS, tokenizer=tiny_tokenizer, progress=False)
    torch.testing.assert_close(dict(teacher.state_dict()), before, rtol=0, atol=0)
    assert not (tmp_path / "run").exists()


LENGTHS = [(64, 64, 64), (512, 512, 128), (1000, 512, 128), (4096, 2048, 128), (8192, 4096, 128), (65536, 4096, 128)]


@pytest.mark.parametrize(("limit", "length", "least"), LENGTHS)
def test_the_length_of_crops_follows_from_the_student(limit: int, length: int, least: int) -> None:
    found = fitted(DistillationSettings(), limit)
    assert (found.length, found.min_length) == (length, least)
    chosen = DistillationSettings(length=200)
    assert fitted(chosen, limit) is chosen


def test_a_student_worse_than_before_is_said(
    student_folder: Path, teacher: BertModel, texts: list[str], tmp_path: Path
) -> None:
    settings = DistillationSettings(
        max_steps=2, learning_rate=0.5, tokens_per_step=200, heldout_documents=4, bf16=False
    )
    result = _run(student_folder, teacher, texts, settings=settings, output=tmp_path / "run")
    assert result.length == 64
    assert result.worse == ["cosine", "layer_error"]
    assert result.before.worse_than(result.after) == []
    assert result.after.worse_than(result.after._replace(cosine=result.after.cosine + 1e-6)) == []
