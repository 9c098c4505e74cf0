"""What processes send each other that share a text out, against its length and their number; appends records.

::

    python -m longform_lab.experiments.sequence_parallel [--width 64] [--slots 256] [--window 0] [--most 1048576]

One model reads texts of all lengths up to the longest that it takes (``--most``). Counted is what the collectives of
its one layer are given, forward, by the process that gives most; D is ``--width``, k ``--slots``, and what follows
attention, which sends nothing, is narrow. Beside it stands what other ways to share out attention send, computed: ring
attention passes the keys and values of all other processes' tokens on, and Ulysses exchanges tokens for heads and back.
Bytes are those of float32, and of an all-reduce those that a ring of processes sends.
"""

import argparse
import os
import tempfile
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import start_processes
from tqdm import tqdm

from longform import LinformerConfig, LinformerModel
from longform.distributed import sequence_parallel
from longform_lab.experiments.collective_traffic import Traffic
from longform_lab.records import RECORDS, Record, append_record

LENGTHS = (8_192, 32_768, 131_072, 524_288, 1_048_576)
PROCESSES = (2, 4)
HEAD, FLOAT = 32, 4  # features; bytes


class Sent(NamedTuple):
    """What the collectives of one layer were given: bytes to be summed, bytes for neighbours."""

    summed: int
    exchanged: int


def ring_all_reduce(size: int, processes: int) -> int:
    """Bytes that each process sends for the sum of ``size`` bytes: a part of them twice around the ring."""
    return 2 * (processes - 1) * size // processes


def ring_attention(tokens: int, width: int, processes: int) -> int:
    """Bytes that each process sends a layer: keys and values of a part of the text, once for each other process."""
    return 2 * (tokens // processes) * width * FLOAT * (processes - 1)


def ulysses(tokens: int, width: int, processes: int) -> int:
    """Bytes that each process sends a layer: queries, keys, values and outputs of its tokens but for its own heads."""
    return 4 * (tokens // processes) * width * FLOAT * (processes - 1) // processes


class Shape(NamedTuple):
    """A layer: D, k, w (0: no window), and the longest text."""

    width: int
    slots: int
    window: int
    most: int


def one_layer(shape: Shape) -> LinformerModel:
    """Random weights."""
    torch.manual_seed(0)
    config = LinformerConfig(
        vocab_size=1_000, hidden_size=shape.width, num_hidden_layers=1, use_pooler=False, projection="mean",
        num_attention_heads=max(1, shape.width // HEAD), intermediate_size=HEAD, projected_length=shape.slots,
        max_position_embeddings=shape.most, attention_window=shape.window or None,
    )  # fmt: skip
    return LinformerModel(config).eval()


@torch.inference_mode()
def count(rank: int, processes: int, tokens: int, shape: Shape, folder: str) -> None:
    """Run one text and write what this process's collectives were given."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=processes)
    model = sequence_parallel(one_layer(shape))
    with Traffic() as traffic:
        model(torch.randint(5, 1_000, (1, tokens), generator=torch.Generator().manual_seed(0)))
    given = {name: sum(size for found, size in traffic.messages if found == name) for name, _ in traffic.messages}
    Path(folder, str(rank)).write_text(f"{given.pop('all_reduce', 0)} {given.pop('all_to_all_single', 0)}")
    if given:
        raise SystemExit(f"other collectives than are known: {given}")
    dist.barrier()
    dist.destroy_process_group()


def measured(processes: int, tokens: int, shape: Shape) -> Record:
    """The record of one length."""
    with tempfile.TemporaryDirectory() as folder:
        start_processes(count, (processes, tokens, shape, folder), nprocs=processes, start_method="fork")
        found = [Sent(*map(int, Path(folder, str(rank)).read_text().split())) for rank in range(processes)]
    most = max(found, key=sum)
    return Record(
        name="sequence_parallel",
        settings={"processes": processes, "tokens": tokens, **shape._asdict(), "dtype": "float32", "layers": 1},
        metrics={
            "summed": most.summed, "exchanged": most.exchanged,
            "sent": ring_all_reduce(most.summed, processes) + most.exchanged,
            "ring_attention": ring_attention(tokens, shape.width, processes),
            "ulysses": ulysses(tokens, shape.width, processes),
        },
        units=dict.fromkeys(("summed", "exchanged", "sent", "ring_attention", "ulysses"), "bytes a layer"),
    )  # fmt: skip


def main() -> None:
    """Measure, append, print."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--width", type=int, default=64, help="D")
    options.add_argument("--slots", type=int, default=256, help="k")
    options.add_argument("--window", type=int, default=0, help="tokens seen exactly on either side; 0: none")
    options.add_argument("--most", type=int, default=LENGTHS[-1], help="tokens of the longest text")
    shape = Shape(**vars(options.parse_args()))
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    lengths = [length for length in LENGTHS if length <= shape.most]
    with tqdm(total=len(PROCESSES) * len(lengths), desc="sequence parallel", unit="length") as bar:
        for processes in PROCESSES:
            for length in lengths:
                record = measured(processes, length, shape)
                append_record(RECORDS / "sequence_parallel.jsonl", record)
                bar.update()
                tqdm.write(f"{record.settings} {record.metrics}")


if __name__ == "__main__":
    main()
