"""Trainings of several processes: shared steps, what one process learns, another number of them, a killed one."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from process_group import in_processes
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from shared_trainings import Trained, finetuned, pretrained
from tiny_models import save_longform
from transformers import BertModel

import longform
from longform import LinformerForMaskedLM

COMMON = """
import json, os, sys
import torch
torch.set_num_threads(1)
import longform
from longform_text.training.distillation.run import distill
from longform_text.training.distillation.settings import DistillationSettings
given = json.load(open(sys.argv[1]))
settings = DistillationSettings(length=48, min_length=12, tokens_per_step=200, max_steps=4, heldout_documents=6,
                                learning_rate=3e-3, eval_strategy="no", bf16=False, **given["settings"])
result = distill(given["student"], given["teacher"], given["texts"], settings, output=given["output"])
total = sum(float(value.double().abs().sum()) for value in result.student.state_dict().values())
found = {"weights": total, "tokens": result.tokens, "cosine": result.after.cosine}
json.dump(found, open(given["output"] + os.environ["RANK"], "w"))
"""
ALIGNMENT = """
import json, os, sys
import torch
torch.set_num_threads(1)
from longform_text.training.alignment.run import align
from longform_text.training.alignment.settings import AlignmentSettings
given = json.load(open(sys.argv[1]))
settings = AlignmentSettings(max_steps=3, documents_per_step=4, learning_rate=3e-3, heldout_documents=4, keep_texts=4,
                             eval_strategy="no", tokens_per_forward=100, bf16=False)
result = align(given["model"], tuple(given["pairs"]), settings, output=given["output"], progress=False)
total = sum(float(value.double().abs().sum()) for value in result.model.state_dict().values())
json.dump({"weights": total, "documents": result.documents}, open(given["output"] + os.environ["RANK"], "w"))
"""
PRETRAINING = """
import json, os, sys
import torch
torch.set_num_threads(1)
from longform_text.data.tokenizer_training import TokenizerSettings
from longform_text.training.pretraining.run import pretrain
from longform_text.training.pretraining.settings import PretrainingSettings
given = json.load(open(sys.argv[1]))
settings = PretrainingSettings(tokens_per_step=128, tokens_per_forward=64, max_steps=3, learning_rate=3e-3,
                               eval_strategy="no", validation_tokens=150, bf16=False, packing=given["packing"],
                               objective="causal")  # masks are drawn anew in each process
result = pretrain(given["texts"], settings, config=given["model"], tokenizer=TokenizerSettings("wordpiece", 60),
                  output=given["output"], cache=given["output"] + "-cache", progress=False)
total = sum(float(value.double().abs().sum()) for value in result.model.state_dict().values())
found = {"weights": total, "tokens": result.tokens, "loss": result.validation_loss}
json.dump(found, open(given["output"] + os.environ["RANK"], "w"))
"""
TINY = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24,
    "max_position_embeddings": 16, "projected_length": 4, "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0, "projection": "mean", "attention_window": 4,
}  # fmt: skip


def _in_processes(count: int, script: str, given: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """What each process wrote beside ``folder``/run."""
    (folder / "given.json").write_text(json.dumps({**given, "output": str(folder / "run")}))
    (folder / "job.py").write_text(script)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    done = subprocess.run(
        [*launcher, str(folder / "job.py"), str(folder / "given.json")],
        capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"run{rank}").read_text()) for rank in range(count)]


@pytest.mark.nightly
@pytest.mark.parametrize("packing", ["full", "documents"])
def test_two_processes_pretrain_as_one_does(packing: str, texts: list[str], tmp_path: Path) -> None:
    """Also where one is asked for more tokens than the other: every token counts the same."""
    found, given = [], {"texts": texts, "model": TINY, "packing": packing}
    for count in (1, 2):
        (tmp_path / str(count)).mkdir()
        found.append(_in_processes(count, PRETRAINING, given, tmp_path / str(count)))
    (alone,), together = found
    assert together[0] == together[1]
    assert together[0]["tokens"] == alone["tokens"] == 3 * 128
    assert together[0]["loss"] == pytest.approx(alone["loss"], rel=1e-4)
    assert together[0]["weights"] == pytest.approx(alone["weights"], rel=1e-4)
    assert (tmp_path / "2" / "run" / "model.safetensors").exists()


@pytest.mark.nightly
@pytest.mark.parametrize("checkpointing", [False, True])
def test_two_processes_learn_together(
    checkpointing: bool, teacher: BertModel, tiny_tokenizer: Any, texts: list[str], tmp_path: Path
) -> None:
    """The pooler is never used, and what belongs to the memory not by texts within the window."""
    student = longform.convert(
        teacher, tokenizer=tiny_tokenizer, max_length=64, projected_length=8, memory_budget=None,
        attention_window=16 if checkpointing else None,
    )  # fmt: skip
    assert any("pooler" in name for name, _ in student.model.named_parameters())
    student.save_pretrained(tmp_path / "student")
    teacher.save_pretrained(tmp_path / "teacher")
    given = {
        "student": str(tmp_path / "student"), "teacher": str(tmp_path / "teacher"), "texts": texts,
        "settings": {"activation_checkpointing": checkpointing},
    }  # fmt: skip
    said = _in_processes(2, COMMON, given, tmp_path)
    assert said[0] == said[1]
    assert 4 * 2 * 150 < said[0]["tokens"] <= 4 * 2 * 200
    assert (tmp_path / "run" / "model.safetensors").exists()


@pytest.mark.nightly
def test_two_processes_align_together(sentence_transformer_folder: Path, texts: list[str], tmp_path: Path) -> None:
    """Each reads documents of its own; the weights stay the same in both."""
    pairs = [
        [f"number {number}" for number in range(40)],
        [f"{number} {text}" for number, text in enumerate(texts[:40])],
    ]
    given = {"model": str(sentence_transformer_folder), "pairs": pairs}
    first, second = _in_processes(2, ALIGNMENT, given, tmp_path)
    assert first == second
    assert first["documents"] == 3 * 4 * 2
    unchanged = SentenceTransformer(str(sentence_transformer_folder), use_cpu=True).state_dict()
    assert first["weights"] != sum(float(value.double().abs().sum()) for value in unchanged.values())


def _check(found: list[Trained], alone: Trained) -> None:
    for each in found:
        assert max(each.difference(alone)) <= 1e-4, each.difference(alone)


def test_two_processes_learn_what_one_does_and_one_goes_on(texts: list[str], tmp_path: Path) -> None:
    alone, output = pretrained(texts, tmp_path / "alone"), tmp_path / "shared"
    assert alone is not None
    in_processes(2, lambda: pretrained(texts, output, stopped_at=17), tmp_path)
    gone_on = pretrained(texts, output)
    assert gone_on is not None
    _check([gone_on], alone)
    assert LinformerForMaskedLM.from_pretrained(output).num_parameters() > 0


@pytest.mark.nightly
def test_finetuning(tiny_tokenizer: Any, texts: list[str], tmp_path: Path) -> None:
    (tmp_path / "encoder").mkdir()
    folder = save_longform(tmp_path / "encoder", tiny_tokenizer, initializer_range=0.02)
    alone = finetuned(folder, texts, tmp_path / "alone", batch_size=8)
    found = in_processes(2, lambda: finetuned(folder, texts, tmp_path / "shared", batch_size=4), tmp_path)
    _check(found, alone)


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


@pytest.mark.nightly
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
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "broken"))
    assert all(one[name].equal(other[name]) for name in one)
