"""One process of torchrun is killed: all stop and say why, and the training goes on as if it was unbroken."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from safetensors.torch import load_file

OPTIONS = (
    "--preset tiny --max-steps 30 --length 32 --tokens-per-step 256 --tokens-per-forward 64 "
    "--tokenizer-vocab-size 60 --tokenizer-kind wordpiece --save-every-steps 3 --evaluations 0 "
    "--validation-tokens 200 --device cpu"
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
