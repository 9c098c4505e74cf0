"""Processes of one group on gloo, forked so that nothing is imported anew: each runs the same function."""

import multiprocessing
import pickle
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

PATIENCE = timedelta(seconds=60)


def in_processes(count: int, job: Callable[..., Any], folder: Path, *given: Any) -> list[Any]:
    """What ``job(*given)`` returns in each of ``count`` processes; AssertionError with the trace of one that fails."""
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_run, args=(rank, count, job, folder, given)) for rank in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    results = [pickle.loads((folder / f"result{rank}").read_bytes()) for rank in range(count)]
    assert all(ok for ok, _ in results), "\n".join(found for ok, found in results if not ok)
    return [found for _, found in results]


def _run(rank: int, count: int, job: Callable[..., Any], folder: Path, given: tuple[Any, ...]) -> None:
    try:
        dist.init_process_group(
            "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=count, timeout=PATIENCE
        )
        found = (True, job(*given))
        dist.barrier()
        dist.destroy_process_group()
    except BaseException:
        found = (False, traceback.format_exc())
    (folder / f"result{rank}").write_bytes(pickle.dumps(found))
