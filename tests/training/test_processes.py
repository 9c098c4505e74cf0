"""Two processes of torchrun, on gloo."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers import BertModel

import longform

COMMON = """
import json, os, sys
import torch
torch.set_num_threads(1)
import longform
from longform.training.distillation import distill
from longform.training.settings import DistillationSettings
given = json.load(open(sys.argv[1]))
settings = DistillationSettings(length=48, min_length=12, tokens_per_step=200, max_steps=4, heldout_documents=6,
                                learning_rate=3e-3, evaluations=0, dtype="float32", **given["settings"])
result = distill(given["student"], given["teacher"], None, given["texts"], settings, output=given["output"])
total = sum(float(value.double().abs().sum()) for value in result.student.state_dict().values())
found = {"weights": total, "tokens": result.tokens, "cosine": result.after.cosine}
json.dump(found, open(given["output"] + os.environ["RANK"], "w"))
"""


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
        "settings": {"gradient_checkpointing": checkpointing},
    }  # fmt: skip
    (tmp_path / "given.json").write_text(json.dumps({**given, "output": str(tmp_path / "run")}))
    (tmp_path / "job.py").write_text(COMMON)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launcher, str(tmp_path / "job.py"), str(tmp_path / "given.json")],
        capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = [json.loads((tmp_path / f"run{rank}").read_text()) for rank in (0, 1)]
    assert said[0] == said[1]
    assert 4 * 2 * 150 < said[0]["tokens"] <= 4 * 2 * 200
    assert (tmp_path / "run" / "model.safetensors").exists()
