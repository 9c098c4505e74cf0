"""Embedding by several processes, each of which computes a part of every document."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from process_group import in_processes
from tiny_models import save_longform

import longform
from longform.errors import ConfigurationError, LongformError
from tolerances import IN_OTHER_BATCHES

TEXTS = ["the long text is near and far " * 8, "a short one", "of it " * 30]
WINDOW = {"attention_window": 8}


def _embedded(model: str, folder: Path, **options: Any) -> list[list[float]]:
    output = folder / "out.jsonl"
    result = longform.embed(model, TEXTS, output, progress=False, sequence_parallel=2, pooling="mean", **options)
    assert result.documents == 3
    torch.distributed.barrier()
    return [json.loads(line)["embedding"] for line in output.read_text().splitlines()]


def _job(model: str, folder: Path) -> tuple[Any, list[str]]:
    os.environ |= {"RANK": str(torch.distributed.get_rank()), "WORLD_SIZE": "2"}
    vectors, said = _embedded(model, folder), []
    with pytest.raises(LongformError) as caught:  # it is finished, which the first process alone sees
        _embedded(model, folder)
    said.append(str(caught.value))
    for options in ({"pooling": "max"}, {"chunk_tokens": 4}, {"compile": True}, {"sequence_parallel": 3}):
        with pytest.raises(LongformError) as caught:
            longform.embed(model, TEXTS, **({"sequence_parallel": 2, "progress": False} | options))
        said.append(str(caught.value))
    return vectors, said


def test_two_processes_embed_as_one_does(tmp_path: Path, tiny_tokenizer: Any) -> None:
    model = str(save_longform(tmp_path / "model", tiny_tokenizer, **WINDOW))
    expected = longform.embed(model, TEXTS, pooling="mean", progress=False).vectors
    for rank, (vectors, said) in enumerate(in_processes(2, _job, tmp_path, model, tmp_path)):
        torch.testing.assert_close(
            torch.tensor(vectors), torch.from_numpy(expected), atol=IN_OTHER_BATCHES.atol, rtol=IN_OTHER_BATCHES.rtol
        )
        assert "finished already" in said[0]
        assert said[0].startswith("the first process stopped") == (rank == 1)
        for fragment, message in zip(
            ("--pooling mean", "chunk_tokens", "compile", "there are 2"), said[1:], strict=True
        ):
            assert fragment in message


def test_one_process_is_too_few() -> None:
    with pytest.raises(ConfigurationError, match="there is 1: torchrun --nproc-per-node 4"):
        longform.embed("nowhere", TEXTS, sequence_parallel=4)


@pytest.mark.nightly
def test_the_command_under_torchrun(tmp_path: Path, tiny_tokenizer: Any) -> None:
    model = save_longform(tmp_path / "model", tiny_tokenizer, **WINDOW)
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    output = tmp_path / "vectors.jsonl"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "longform"]
    command += ["embed", str(model), str(tmp_path / "texts.jsonl"), "--output", str(output), "--pooling", "mean"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = [*command, "--sequence-parallel", "2"]
    done = subprocess.run(run, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("are the vectors") == 1
    expected = longform.embed(model, TEXTS, pooling="mean", progress=False).vectors
    vectors = [json.loads(line)["embedding"] for line in output.read_text().splitlines()]
    torch.testing.assert_close(
        torch.tensor(vectors), torch.from_numpy(expected), atol=IN_OTHER_BATCHES.atol, rtol=IN_OTHER_BATCHES.rtol
    )
    again = subprocess.run(run, capture_output=True, text=True, env=environment)
    assert again.returncode != 0
    assert "finished already" in again.stderr
