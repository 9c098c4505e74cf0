"""Trainings of several processes: shared steps, what one process learns, another number of them, a killed one."""

import os
import shlex
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from json_lines import read_lines
from process_group import in_processes
from shared_trainings import (
    LINEAR,
    STILL,
    WINDOWED,
    Given,
    Training,
    aligning,
    as_of_torchrun,
    distilling,
    finetuning,
    pretraining,
    weights_of,
)

from longform_text.training.trainer import Trainer

causal = pretraining("causal", **WINDOWED, **STILL)
nightly = pytest.mark.nightly
FSDP = {"fsdp": "full_shard", "fsdp_config": {"fsdp_version": 2, "reshard_after_forward": True}}


def _in_two(train: Training, given: Given, changes: dict[str, Any], folder: Path) -> list[tuple[dict[str, Any], float]]:
    """Weights in each of two processes, and what was measured in the end."""

    def run() -> tuple[dict[str, Any], float]:
        warnings.filterwarnings("ignore", "find_unused_parameters")  # of a model all of whose parameters are used
        as_of_torchrun()
        result = train(given, {"use_cpu": True, **changes}, output=folder / "shared")
        return weights_of(result), result.records[-2].get("eval_loss", 0.0)

    return in_processes(2, run, folder)


@pytest.mark.parametrize(
    ("train", "alone", "together"),
    [
        pytest.param(causal, {"max_steps": 6, "tokens_per_step": 128}, {"tokens_per_forward": 64}, id="blocks"),
        pytest.param(causal, {"max_steps": 6, "packing": "documents"}, {}, marks=nightly, id="documents"),
        pytest.param(
            finetuning, {"max_steps": 6, "per_device_train_batch_size": 8}, {"per_device_train_batch_size": 4},
            marks=nightly, id="labels",
        ),
        pytest.param(causal, {"max_steps": 6}, FSDP, marks=nightly, id="blocks, sharded"),
        pytest.param(
            finetuning, {"max_steps": 6, "per_device_train_batch_size": 8}, FSDP | {"per_device_train_batch_size": 4},
            marks=nightly, id="labels, sharded",
        ),
    ],
)  # fmt: skip
def test_two_processes_learn_what_one_does(
    train: Training, alone: dict[str, Any], together: dict[str, Any], given: Given, tmp_path: Path
) -> None:
    """Also where one is asked for more tokens than the other: every token counts the same."""
    expected = train(given, alone)
    for found, measured in _in_two(train, given, alone | together, tmp_path):
        torch.testing.assert_close(found, dict(weights_of(expected)), rtol=0, atol=1e-4)
        assert measured == pytest.approx(expected.records[-2].get("eval_loss", 0.0), abs=1e-3)


def test_one_process_goes_on_where_two_were_broken_off(
    given: Given, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: dict[str, Any] = {"max_steps": 6, "save_steps": 2, "tokens_per_step": 128}
    alone, step = causal(given, changes, output=tmp_path / "alone"), Trainer.training_step

    def stopping(self: Any, *inputs: Any) -> Any:
        if self.state.global_step == 5:
            raise KeyboardInterrupt
        return step(self, *inputs)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "training_step", stopping)
        with pytest.raises(AssertionError, match="KeyboardInterrupt"):
            _in_two(causal, given, changes, tmp_path)
    gone_on = causal(given, changes, output=tmp_path / "shared")
    torch.testing.assert_close(weights_of(gone_on), weights_of(alone), rtol=0, atol=1e-4)


@nightly
@pytest.mark.parametrize(
    ("train", "changes"),
    [
        (distilling("muon"), {}), (distilling("adamw"), {"activation_checkpointing": True}), (aligning, {}),
        (pretraining("masked", **LINEAR), {}),
    ],
    ids=["distill", "distill with checkpointing", "align", "pretrain"],
)  # fmt: skip
def test_two_processes_learn_together(train: Training, changes: dict[str, Any], given: Given, tmp_path: Path) -> None:
    """The pooler is never used, and what belongs to the memory not by texts within the window."""
    (one, _), (other, _) = _in_two(train, given, {"max_steps": 3, **changes}, tmp_path)
    torch.testing.assert_close(one, other, rtol=0, atol=0)
    assert (tmp_path / "shared" / "model.safetensors").exists()


OPTIONS = (
    "--preset tiny --max-steps 30 --length 32 --tokens-per-step 256 --tokens-per-forward 64 "
    "--tokenizer-vocab-size 60 --tokenizer-kind wordpiece --save_steps 3 --eval_strategy no "
    "--validation-tokens 200 --use_cpu"
)


def _start(corpus: Path, output: Path) -> subprocess.Popen[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    return subprocess.Popen(
        [*launcher, "longform", "pretrain", str(corpus), "--output", str(output), *shlex.split(OPTIONS)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


@nightly
def test_one_process_is_killed(texts: list[str], tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n\n".join(texts))
    whole = _start(corpus, tmp_path / "whole")
    said = whole.communicate()[0]
    assert whole.returncode == 0, said
    broken = _start(corpus, tmp_path / "broken")
    while not list((tmp_path / "broken").glob("checkpoint-*")):
        assert broken.poll() is None
        time.sleep(0.02)
    workers = psutil.Process(broken.pid).children()
    ranks = [each for each in workers if each.environ().get("RANK") == "1"]
    ranks[0].send_signal(signal.SIGKILL)
    said = broken.communicate(timeout=300)[0]
    assert broken.returncode != 0
    assert not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in workers)
    assert "SIGKILL" in said, said  # torchrun says which one it was, and how it ended
    again = _start(corpus, tmp_path / "broken")
    said = again.communicate()[0]
    assert again.returncode == 0, said
    whole_loss, broken_loss = (
        [row["eval_loss"] for row in read_lines(tmp_path / name / "records.jsonl") if "eval_loss" in row][-1]
        for name in ("whole", "broken")
    )
    assert broken_loss == pytest.approx(whole_loss, rel=0.05)
