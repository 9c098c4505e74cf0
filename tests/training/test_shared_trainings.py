"""Trainings whose processes share weights or texts out: they learn what one process learns."""

from pathlib import Path
from typing import Any

import pytest
import torch
from process_group import in_processes
from shared_trainings import Trained, distilled, finetuned, pretrained
from tiny_models import save_longform
from transformers import BertForMaskedLM

import longform
from longform import LinformerForMaskedLM

SHARED = [
    pytest.param(2, {"fsdp": True}, id="fsdp"),
    pytest.param(2, {"sequence_parallel": 2}, id="sequence"),
    pytest.param(4, {"sequence_parallel": 2}, id="2x2"),
    pytest.param(4, {"fsdp": True, "sequence_parallel": 2}, id="fsdp-2x2"),
    pytest.param(2, {"fsdp": True, "gradient_checkpointing": True}, id="fsdp-recompute"),
]


def _run(count: int, job: Any, folder: Path, *given: Any, **options: Any) -> list[Trained]:
    if count == 1:
        return [job(*given, **options)]
    (folder / str(count)).mkdir(parents=True, exist_ok=True)
    (folder / str(count) / "meeting").unlink(missing_ok=True)
    return in_processes(count, lambda: job(*given, **options), folder / str(count))


def _check(found: list[Trained], alone: Trained, tolerance: float = 1e-4) -> None:
    for each in found:
        assert max(each.difference(alone)) <= tolerance, each.difference(alone)


def test_four_processes_learn_what_one_does_and_two_go_on(texts: list[str], tmp_path: Path) -> None:
    """Weights shared out among 2 x 2 processes, of which two compute a text together; stopped after 17 steps of 20."""
    (alone,) = _run(1, pretrained, tmp_path, texts, tmp_path / "alone")
    output = tmp_path / "shared"
    _run(4, pretrained, tmp_path, texts, output, fsdp=True, sequence_parallel=2, stopped_at=17)
    _check(_run(2, pretrained, tmp_path, texts, output, fsdp=True), alone)
    assert LinformerForMaskedLM.from_pretrained(output).num_parameters() > 0


@pytest.mark.nightly
def test_one_process_goes_on_with_what_four_began(texts: list[str], tmp_path: Path) -> None:
    """Of whole weights, too."""
    (alone,) = _run(1, pretrained, tmp_path, texts, tmp_path / "alone")
    output = tmp_path / "shared"
    _run(4, pretrained, tmp_path, texts, output, fsdp=True, sequence_parallel=2, stopped_at=9)
    _check(_run(1, pretrained, tmp_path, texts, output), alone)


@pytest.mark.nightly
@pytest.mark.parametrize(("count", "shared"), SHARED)
def test_pretraining(count: int, shared: dict[str, Any], texts: list[str], tmp_path: Path) -> None:
    (alone,) = _run(1, pretrained, tmp_path, texts, tmp_path / "alone")
    _check(_run(count, pretrained, tmp_path, texts, tmp_path / "shared", **shared), alone)


@pytest.mark.nightly
@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
@pytest.mark.parametrize(("count", "shared"), SHARED)
def test_distillation(
    count: int, shared: dict[str, Any], optimizer: str, teacher_with_head: BertForMaskedLM, tiny_tokenizer: Any,
    texts: list[str], tmp_path: Path,
) -> None:  # fmt: skip
    """With a head, a window that some texts are within, and logits; as many tokens a step as readers have together."""
    student = longform.convert(
        teacher_with_head, tokenizer=tiny_tokenizer, max_length=64, projected_length=8, attention_window=8,
        memory_budget=None,
    )  # fmt: skip
    torch.manual_seed(3)
    with torch.no_grad():  # else short texts have no error, and AdamW makes steps of rounding
        for parameter in student.model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    folders = (tmp_path / "student", tmp_path / "teacher")
    student.save_pretrained(folders[0])
    teacher_with_head.save_pretrained(folders[1])
    given = {"optimizer": optimizer, "tokens_per_step": 200}
    readers = count // shared.get("sequence_parallel", 1)
    output = tmp_path / "of-readers"
    alone = _run(readers, distilled, tmp_path, folders, texts, output, **given)[0]
    found = _run(count, distilled, tmp_path, folders, texts, tmp_path / "shared", **given, **shared)
    _check(found, alone, 1e-3 if optimizer == "muon" else 1e-4)


@pytest.mark.nightly
@pytest.mark.parametrize(("count", "shared"), SHARED)
def test_finetuning(
    count: int, shared: dict[str, Any], tiny_tokenizer: Any, texts: list[str], tmp_path: Path
) -> None:  # fmt: skip
    folder = tmp_path / "encoder"
    folder.mkdir()
    save_longform(folder, tiny_tokenizer, initializer_range=0.02)
    readers = count // shared.get("sequence_parallel", 1)
    (alone,) = _run(1, finetuned, tmp_path, folder, texts, tmp_path / "alone", batch_size=8)
    output = tmp_path / "shared"
    found = _run(count, finetuned, tmp_path, folder, texts, output, batch_size=8 // readers, **shared)
    _check(found, alone)
    assert torch.isfinite(torch.tensor(found[0].measured))
