"""What the fork server imports once, so that a command costs no seconds of importing: kills can then be many."""

import importlib
import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import torch

from longform.cli.main import COMMANDS

torch.set_num_threads(1)  # threads do not live through a fork
LATE = ("accelerate", "datasets", "matplotlib.pyplot", "pandas", "pyarrow.parquet", "rich.console", "sklearn.metrics")
OURS = (
    "evaluation.comparison", "inference.run", "studies.compare.run", "studies.demo.run", "studies.paper.figure1",
    "studies.paper.figure3", "studies.speed.grid", "training.distillation", "training.finetuning",
    "training.pretraining",
)  # fmt: skip
for name in (*LATE, *(f"longform.{name}" for name in OURS), *(f"longform.cli.{name}" for name in COMMANDS)):
    importlib.import_module(name)
