"""A disk that is full when the finished model is saved."""

import resource
from pathlib import Path
from typing import Any

import pytest
from safetensors import SafetensorError
from transformers import AutoModel, BertModel

from longform.errors import CheckpointError, MissingDependencyError
from longform.training.distillation.run import distill
from longform.training.engine.run_folder import RunFolder
from longform.training.engine.settings import DistillationSettings
from longform.training.engine.trainer import Training

SETTINGS = DistillationSettings(
    length=48, min_length=12, tokens_per_step=200, max_steps=2, heldout_documents=6, evaluations=0, dtype="float32"
)


def test_the_last_checkpoint_is_whole(
    student_folder: Path, teacher: BertModel, texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "run"
    finish = RunFolder.finish

    def on_a_full_disk(self: RunFolder, *arguments: Any, **options: Any) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3_000, hard))
        try:
            finish(self, *arguments, **options)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, "finish", on_a_full_disk)
        with pytest.raises(CheckpointError, match=r"finished model could not be saved.*File too large.*make room"):
            distill(student_folder, teacher, texts, SETTINGS, output=output, progress=False)
    assert {path.name for path in output.iterdir()} == {"checkpoint-2.pt", "records.jsonl", "run.json"}
    monkeypatch.setattr(Training, "_take_step", None)  # nothing is trained again
    distill(student_folder, teacher, texts, SETTINGS, output=output, progress=False)
    AutoModel.from_pretrained(output)
    assert not list(output.glob("*checkpoint*"))


@pytest.mark.parametrize("kind", [OSError, SafetensorError, Exception])  # the last is what tokenizers raises
def test_errors_of_other_packages(kind: type[Exception], tmp_path: Path) -> None:
    def save(folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(b"half")
        raise kind("os error 28")

    run = RunFolder(tmp_path, {}, kept=True, main=True)
    with pytest.raises(CheckpointError, match="os error 28"):
        run.finish(save, wait=lambda: None)
    assert list(tmp_path.iterdir()) == []


def test_a_package_that_is_missing_is_said(tmp_path: Path) -> None:
    def save(folder: Path) -> None:
        raise MissingDependencyError("matplotlib")

    with pytest.raises(MissingDependencyError):
        RunFolder(tmp_path, {}, kept=True, main=True).finish(save, wait=lambda: None)
