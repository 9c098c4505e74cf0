"""Peak memory of each process that computes a part of one very long text, beside that of one process; appends records.

::

    python -m longform_lab.experiments.sequence_parallel_memory [--tokens 1048576] [--processes 1 2]

all-MiniLM-L6-v2 with mean slots alone (k = 512), converted for the text's length; random token ids, float32, one thread
a process. Each process begins anew, loads the model from its folder and computes its part; its peak is all that it had
resident, Python, torch and loading included. The vectors of the text must be the same.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import start_processes

from longform import LinformerModel
from longform.conversion.convert import convert
from longform.data.bundled import bundled_encoder_folder
from longform.distributed import sequence_parallel
from longform_lab.records import RECORDS, Record, append_record
from longform_lab.speed.memory import process_peak

SLOTS = 512
NEAR = 1e-5  # of an element of the mean state
MIB = 2**20


@torch.inference_mode()
def compute(rank: int, processes: int, tokens: int, folder: str) -> None:
    """Compute the part of this process; write its peak, seconds, and the mean of the states of its tokens."""
    torch.set_num_threads(1)
    model = LinformerModel.from_pretrained(f"{folder}/model").eval()
    loaded = process_peak()
    if processes > 1:
        dist.init_process_group("gloo", init_method=f"file://{folder}/of-{processes}", rank=rank, world_size=processes)
        model = sequence_parallel(model)
    ids = torch.randint(1_000, 30_000, (1, tokens), generator=torch.Generator().manual_seed(0))
    began = time.perf_counter()
    states = model(input_ids=ids).last_hidden_state
    seconds = time.perf_counter() - began
    np.savez(
        f"{folder}/{processes}-{rank}.npz", total=states[0].double().sum(0).numpy(), tokens=states.shape[1],
        peak=process_peak(), loaded=loaded, seconds=seconds,
    )  # fmt: skip
    if processes > 1:
        dist.barrier()
        dist.destroy_process_group()


def main() -> None:
    """Measure, compare, append, print."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--tokens", type=int, default=1_048_576)
    options.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    options.add_argument("--no-record", action="store_true")
    given = options.parse_args()
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    means: list[np.ndarray] = []
    with tempfile.TemporaryDirectory() as folder:
        convert(
            str(bundled_encoder_folder()), max_length=given.tokens, projection="mean", attention_window=None,
            projected_length=SLOTS,
        ).save_pretrained(f"{folder}/model")  # fmt: skip
        for processes in given.processes:
            start_processes(compute, (processes, given.tokens, folder), nprocs=processes, start_method="spawn")
            found = [np.load(Path(folder, f"{processes}-{rank}.npz")) for rank in range(processes)]
            means.append(sum(each["total"] for each in found) / given.tokens)
            difference = float(np.abs(means[-1] - means[0]).max())
            record = Record(
                name="sequence_parallel_memory",
                settings={
                    "model": "all-MiniLM-L6-v2", "tokens": given.tokens, "k": SLOTS, "processes": processes,
                    "dtype": "float32",
                },
                metrics={
                    "peak_mib": max(int(each["peak"]) for each in found) / MIB,
                    "loaded_mib": max(int(each["loaded"]) for each in found) / MIB,
                    "seconds": max(float(each["seconds"]) for each in found), "difference": difference,
                },
            )  # fmt: skip
            print(record.settings, record.metrics, flush=True)
            if difference > NEAR:
                raise SystemExit(f"the mean state differs by {difference}: nothing is recorded")
            if not given.no_record:
                append_record(RECORDS / "sequence_parallel_memory.jsonl", record)


if __name__ == "__main__":
    main()
