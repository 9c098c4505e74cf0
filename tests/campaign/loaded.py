"""What the fork server imports once, so that a command costs no seconds of importing: kills can then be many."""

import importlib
import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import torch

from longform_text.cli.main import all_commands, command_module

torch.set_num_threads(1)  # threads do not live through a fork
LATE = ("accelerate", "datasets", "matplotlib.pyplot", "pandas", "pyarrow.parquet", "rich.console", "sklearn.metrics")
OURS = (
    "longform_lab.evaluation.comparison", "longform_text.inference.run", "longform_text.training.distillation.run",
    "longform_text.training.finetuning.run", "longform_text.training.pretraining.run", "longform_lab.compare.run",
    "longform.models.task_heads", "longform_text.search.index",
    "longform_lab.demo.run", "longform_lab.paper.figure1", "longform_lab.paper.figure3", "longform_lab.speed.grid",
)  # fmt: skip
for name in (*LATE, *OURS):
    importlib.import_module(name)
for name in all_commands():
    command_module(name)
