"""Time and peak memory of one document against its length, in a process of its own.

::

    python -m longform_lab.demo.measuring ENCODER MODEL '{"longform": [256, 512], ...}' REPETITIONS

Peak memory is how far the process's resident memory rises above its level before the document (the kernel's own record
on Linux; elsewhere there is none). "original, longer table" is the original encoder with more positions, so that
its full attention can be timed on long documents; their values mean nothing, and time and memory do not depend on it.
"""

import gc
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm
from transformers import AutoConfig, AutoModel, PreTrainedModel
from transformers.utils import logging

from longform.training.settings import compute_dtype
from longform_lab.speed.memory import ALLOCATOR, peak_growth

MIB = 2**20
LONG_PASS = 2.0  # seconds; passes that take longer are not repeated
LONG, ORIGINAL, LONGER = "longform", "original", "original, longer table"


def measure_lengths(
    encoder: str, model: Path, lengths: dict[str, tuple[int, ...]], repetitions: int
) -> list[dict[str, Any]]:
    """A row for each model and length, in a process of its own: "model", "length", "seconds" (median), "mib" (peak).

    "mib" is None where the system does not say it.
    """
    command = [sys.executable, "-m", "longform_lab.demo.measuring", encoder, str(model), json.dumps(lengths)]
    rows = []
    with subprocess.Popen(
        [*command, str(repetitions)], env=os.environ | ALLOCATOR, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        with tqdm(total=sum(map(len, lengths.values())), desc="measuring", unit="length") as bar:
            for line in child.stdout:
                rows.append(json.loads(line))
                bar.update()
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)
    return rows


def _child(encoder: str, model: str, lengths: dict[str, list[int]], repetitions: int) -> None:
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    for name, chosen in lengths.items():
        network = _network(name, encoder, model, max(chosen))
        _pass(network, min(64, *chosen))  # loads the kernels
        for length in chosen:
            print(json.dumps({"model": name, "length": length, **_measure(network, length, repetitions)}), flush=True)
        del network
        gc.collect()


def _network(name: str, encoder: str, model: str, longest: int) -> PreTrainedModel:
    if name == LONG:
        network = AutoModel.from_pretrained(model)
        if longest > network.config.max_position_embeddings:
            network.resize_sequence_length(longest, projected_length=network.config.projected_length)
    elif name == ORIGINAL:
        network = AutoModel.from_pretrained(encoder)
    else:
        config = AutoConfig.from_pretrained(encoder)
        config.max_position_embeddings = longest
        network = AutoModel.from_config(config)
    return network.float().eval()


def _pass(network: PreTrainedModel, length: int) -> None:
    dtype = compute_dtype("auto", torch.device("cpu"))
    ids = torch.randint(0, network.config.vocab_size, (1, length), generator=torch.Generator().manual_seed(length))
    with torch.inference_mode(), torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32):
        network(input_ids=ids)


def _measure(network: PreTrainedModel, length: int, repetitions: int) -> dict[str, float | None]:
    seconds: list[float] = []

    def timed() -> None:
        began = time.perf_counter()
        _pass(network, length)
        seconds.append(time.perf_counter() - began)

    growth = peak_growth(timed, "cpu")
    if seconds[0] < LONG_PASS:
        seconds.clear()  # the first pass of a length has to get memory from the system
        for _ in range(repetitions):
            timed()
    return {"seconds": sorted(seconds)[len(seconds) // 2], "mib": None if growth is None else growth / MIB}


if __name__ == "__main__":
    import longform  # noqa: F401  (registers the Auto classes)

    _child(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4]))
