"""Two processes of torchrun, on gloo."""

import json
import os
import subprocess
import sys
from pathlib import Path

from transformers import BertModel

COMMON = """
import json, os, sys
import torch
torch.set_num_threads(1)
import longform
from longform.training.distillation import distill
from longform.training.settings import DistillationSettings
given = json.load(open(sys.argv[1]))
settings = DistillationSettings(length=48, min_length=12, tokens_per_step=200, max_steps=4, heldout_documents=6,
                                learning_rate=3e-3, evaluations=0, dtype="float32")
result = distill(given["student"], given["teacher"], None, given["texts"], settings, output=given["output"])
total = sum(float(value.double().abs().sum()) for value in result.student.state_dict().values())
found = {"weights": total, "tokens": result.tokens, "cosine": result.after.cosine}
json.dump(found, open(given["output"] + os.environ["RANK"], "w"))
"""


def test_two_processes_learn_together(
    student_folder: Path, teacher: BertModel, texts: list[str], tmp_path: Path
) -> None:
    teacher.save_pretrained(tmp_path / "teacher")
    given = {"student": str(student_folder), "teacher": str(tmp_path / "teacher"), "texts": texts}
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
