"""The training commands of the guide to several processes run as printed, with options that make them small."""

import json
import os
import random
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny_models import save_bert

import longform

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "scale.md"
COMMANDS = re.findall(r"^torchrun .*", GUIDE.read_text(), re.MULTILINE)
SMALL = {
    "pretrain": "--length 32 --tokens-per-step 256 --tokenizer-vocab-size 60 --tokenizer-kind wordpiece "
    "--evaluations 0 --validation-tokens 200 --max-steps 2 --device cpu",
    "distill": "--max-steps 2 --heldout-documents 4 --evaluations 0 --device cpu",
    "finetune": "--max-steps 2 --device cpu",
}
WORDS = ["the", "a", "of", "and", "to", "in", "is", "it", "for", "long", "short", "text", "near", "far", "good", "bad"]


@pytest.mark.nightly
def test_the_commands_run(tiny_tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In their order, each in processes of torchrun; the folders are ordinary ones."""
    monkeypatch.chdir(tmp_path)
    draw = random.Random(3)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(3, 90))) for _ in range(60)]
    Path("corpus.txt").write_text("\n\n".join(texts))
    rows = [{"text": text, "label": ("good", "bad")[number % 2]} for number, text in enumerate(texts)]
    for name in ("texts.jsonl", "labelled.jsonl"):
        Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("original").mkdir()
    save_bert(Path("original"), tiny_tokenizer)
    longform.convert("original", max_length=64, projected_length=8, attention_window=8).save_pretrained("minilm-4096")
    for line in COMMANDS:
        _, *words = shlex.split(line)
        command = words[words.index("longform") + 1]
        if (Path("new") / "run.json").exists() and command == "pretrain":
            words += ["--restart"]
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        done = subprocess.run(
            [*launcher, *words, *shlex.split(SMALL[command])],
            capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert Path(words[words.index("--output") + 1], "model.safetensors").exists()
