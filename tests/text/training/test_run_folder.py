"""The folder of a training: whose files it may replace, who may write it, what a failed start or a full disk leaves."""

import json
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from json_lines import write_lines
from safetensors import SafetensorError
from transformers import AutoModel, BertModel

from longform.errors import CheckpointError, ConfigurationError, MissingDependencyError
from longform_text.data.token_store import CorpusFiles
from longform_text.training.distillation.run import distill
from longform_text.training.distillation.settings import DistillationSettings
from longform_text.training.finetuning.run import finetune
from longform_text.training.finetuning.settings import FinetuningSettings
from longform_text.training.labels import Examples
from longform_text.training.pretraining.run import pretrain
from longform_text.training.run_folder import RunFolder, is_whole, place_of_run
from longform_text.training.trainer import Trainer

LABELLED = Examples([f"the text {'good' if i % 2 else 'bad'} {i}" for i in range(16)], [str(i % 2) for i in range(16)])
FINETUNING = FinetuningSettings(max_steps=1, per_device_train_batch_size=4, max_length=16, bf16=False)
HEALING = DistillationSettings(
    length=48, min_length=12, tokens_per_step=200, max_steps=1, heldout_documents=6, eval_strategy="no", bf16=False
)


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def _opened(folder: Path, identity: dict[str, Any], *, restart: bool = False) -> RunFolder:
    return RunFolder(folder, identity, kept=True, restart=restart)


def _saves(*names: str) -> Callable[[Path], None]:
    def save(folder: Path) -> None:
        for name in names:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text("made")

    return save


def _finish(run: RunFolder, *names: str) -> None:
    run.finish(_saves(*names), [])


@pytest.mark.parametrize("name", ["metrics.json", "tokenizer.json", "papers/thesis.txt", "run.json"])
@pytest.mark.parametrize("restart", [False, True])
def test_a_folder_of_something_else_is_refused_before_any_work(name: str, restart: bool, tmp_path: Path) -> None:
    (tmp_path / "out" / name).parent.mkdir(parents=True)
    (tmp_path / "out" / name).write_text("{}")
    before = tree(tmp_path)
    with pytest.raises(ConfigurationError, match="holds no training"):
        finetune("no such model", "no such texts", output=tmp_path / "out", restart=restart)
    assert tree(tmp_path) == before


def test_a_comparisons_folder_is_no_trainings(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"kind": "comparison", "settings": {}}))
    with pytest.raises(ConfigurationError, match="holds no training, but a comparison"):
        _opened(tmp_path, {"kind": "x"}, restart=True)


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("output", ["student", "student/below", "texts", "texts/run", "."])
def test_what_is_read_is_never_the_output(output: str, restart: bool, student_folder: Path, tmp_path: Path) -> None:
    write_lines(tmp_path / "texts" / "a.jsonl", ["a"])
    before, corpus = tree(tmp_path), CorpusFiles((str(tmp_path / "texts"),))
    options: Any = {"output": tmp_path / output, "restart": restart, "progress": False}
    for call in (
        lambda: finetune(student_folder, LABELLED, FINETUNING, validation=tmp_path / "texts", **options),
        lambda: distill(student_folder, "teacher", corpus, HEALING, **options),
        lambda: distill("student", student_folder, corpus, HEALING, **options),
        lambda: pretrain(corpus, tokenizer=student_folder, **options),
        lambda: pretrain(["a text"], validation=corpus, tokenizer=student_folder, **options),
    ):
        with pytest.raises(ConfigurationError, match=r"the input .*: give another output"):
            call()
    assert tree(tmp_path) == before


def test_what_says_how_to_load_an_earlier_model_does_not_stay(tmp_path: Path) -> None:
    _finish(_opened(tmp_path, {"kind": "x"}), "model.safetensors", "modules.json")
    (tmp_path / "notes.md").write_text("mine")
    _finish(_opened(tmp_path, {"kind": "y"}, restart=True), "model.safetensors", "config.json")
    assert sorted(tree(tmp_path)) == ["config.json", "model.safetensors", "notes.md", "records.jsonl", "run.json"]


def test_a_run_killed_while_its_model_was_put_in_place_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = Path.replace

    def killed(self: Path, target: Path) -> Path:
        if Path(target).name == "b":
            raise KeyboardInterrupt
        return moved(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            _finish(_opened(tmp_path, {"kind": "x"}), "a", "b")
    assert (tmp_path / "a").exists()
    _finish(_opened(tmp_path, {"kind": "x"}), "a", "b")
    assert sorted(tree(tmp_path)) == ["a", "b", "records.jsonl", "run.json"]


def test_a_start_that_failed_does_not_block_the_corrected_call(tmp_path: Path) -> None:
    _opened(tmp_path, {"settings": {"length": 48}})
    corrected = {"settings": {"length": 32}}
    _finish(_opened(tmp_path, corrected), "model.safetensors")
    with pytest.raises(ConfigurationError, match="length: 32 there, 48 now"):
        _opened(tmp_path, {"settings": {"length": 48}})


def test_a_distilled_model_is_no_conversion_to_overwrite(
    student_folder: Path, teacher: BertModel, texts: list[str], tiny_tokenizer: Any, tmp_path: Path
) -> None:
    import longform

    result = longform.convert(teacher, tokenizer=tiny_tokenizer, max_length=64)
    for student, name in ((student_folder, "from_folder"), (result, "from_memory")):
        distill(student, teacher, texts, HEALING, output=tmp_path / name, progress=False)
        assert (tmp_path / name / "conversion_report.json").exists()
        before = tree(tmp_path / name)
        with pytest.raises(ConfigurationError, match=r"not all in it is as the conversion left it \(.*records\.jsonl"):
            result.save_pretrained(tmp_path / name, overwrite=True)
        assert tree(tmp_path / name) == before


def test_what_killed_processes_had_not_finished_is_removed(tmp_path: Path) -> None:
    _finish(_opened(tmp_path / "run", {"kind": "x"}), "model.safetensors")
    left = [f"run/.report.html.{os.getpid()}.ab12.unfinished", f".run.{os.getpid()}.ab12.unfinished"]
    kept = [f"run/.report.html.{os.getppid()}.ab12.unfinished", "run/.mine.unfinished"]  # a living one's, a user's
    for name in (*left, *kept):
        (tmp_path / name).write_text("half")
    with place_of_run(tmp_path / "run", ()):
        _opened(tmp_path / "run", {"kind": "x"})
    assert not any((tmp_path / name).exists() for name in left)
    assert all((tmp_path / name).exists() for name in kept)


def test_tokens_that_a_killed_pretraining_left_do_not_block_it(tmp_path: Path) -> None:
    (tmp_path / "run" / "cache" / "tokenizer-1").mkdir(parents=True)
    with place_of_run(tmp_path / "run", ()) as folder:
        _opened(folder, {"kind": "pretraining"})


def test_half_written_checkpoints_are_passed_over_and_those_of_a_complete_run_deleted(tmp_path: Path) -> None:
    _opened(tmp_path, {"kind": "test"})
    for step, state in ((4, "{}"), (10, '{"log_hist'), (12, None)):
        (tmp_path / f"checkpoint-{step}").mkdir()
        if state is not None:
            (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(state)
    run = _opened(tmp_path, {"kind": "test"})
    assert run.checkpoint == tmp_path / "checkpoint-4"
    assert is_whole(run.checkpoint)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-4", "run.json"]
    run.finish(lambda place: (place / "model.safetensors").touch(), [{"step": 4}])
    (tmp_path / "checkpoint-8").mkdir()
    (tmp_path / "unfinished-model").mkdir()
    again = _opened(tmp_path, {"kind": "test"})
    assert again.complete
    assert again.rows == [{"step": 4}]
    assert {path.name for path in tmp_path.iterdir()} == {"model.safetensors", "records.jsonl", "run.json"}


SETTINGS = DistillationSettings(
    length=48, min_length=12, tokens_per_step=200, max_steps=2, heldout_documents=6, eval_strategy="no", bf16=False
)


def test_the_last_checkpoint_is_whole(
    student_folder: Path, teacher: BertModel, texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, output = distill(student_folder, teacher, texts, SETTINGS, progress=False), tmp_path / "run"
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
    assert {path.name for path in output.iterdir()} == {"checkpoint-2", "run.json"}
    monkeypatch.setattr(Trainer, "training_step", None)  # nothing is trained again
    again = distill(student_folder, teacher, texts, SETTINGS, output=output, progress=False)
    assert again.tokens == whole.tokens > 0
    torch.testing.assert_close(again.student.state_dict(), whole.student.state_dict(), rtol=0, atol=0)
    torch.testing.assert_close(AutoModel.from_pretrained(output).state_dict(), dict(again.student.state_dict()))
    assert not list(output.glob("*checkpoint*"))


@pytest.mark.parametrize(
    ("kind", "raised"),  # tokenizers raises Exception
    [(kind, CheckpointError) for kind in (OSError, SafetensorError, Exception)] + [(MissingDependencyError,) * 2],
)
def test_errors_of_other_packages(kind: type[Exception], raised: type[Exception], tmp_path: Path) -> None:
    def save(folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(b"half")
        raise kind("os error 28")

    run = RunFolder(tmp_path, {}, kept=True)
    with pytest.raises(raised, match="os error 28"):
        run.finish(save, [])
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
