"""One model that several processes run together, each on a part of every text: ``longform embed --sequence-parallel``.

The first process reads, batches and writes, as one process alone does. It tells the others each batch, of which all
compute their parts, and at the end the result.
"""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from longform.errors import ConfigurationError, LongformError

CPU = torch.device("cpu")


class Said(NamedTuple):
    """Message of the first process to the others: one of a batch's ``inputs``, the ``result``, or why it ``failed``."""

    inputs: dict[str, Tensor] | None = None
    result: Any = None
    failed: str | None = None


class Team:
    """The processes of a run, of which the first leads."""

    @property
    def leads(self) -> bool:
        """Whether this is the first process."""
        return dist.get_rank() == 0

    def tell(self, said: Said) -> None:
        """From the first process to the others."""
        dist.broadcast_object_list([said], src=0, device=CPU)

    def follow(self, make: Callable[[], Callable[[dict[str, Tensor]], Tensor]]) -> Any:
        """Take part in every batch until there is a result, which is returned.

        ``make`` gives what computes a batch's inputs, (B, n) each; it is called with the first batch, so that what the
        first process refuses before is refused once. Raises LongformError with the reason where that process failed.
        """
        compute = None
        while True:
            heard: list[Any] = [None]
            dist.broadcast_object_list(heard, src=0, device=CPU)
            said: Said = heard[0]
            if said.inputs is None:
                break
            compute = compute or make()
            with torch.inference_mode():
                compute(said.inputs)
        if said.failed is not None:
            raise LongformError(f"the first process stopped: {said.failed}")
        return said.result


@contextmanager
def together(processes: int) -> Generator[Team]:
    """The team of a run of that many ``processes``; where the first one fails inside, the others are told.

    Raises ConfigurationError unless torchrun started as many.
    """
    started = int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1
    if processes < 2 or started != processes:
        count, there = max(2, processes), "is 1" if started == 1 else f"are {started}"
        raise ConfigurationError(
            f"sequence_parallel={processes} needs as many processes, at least 2, and there {there}: torchrun "
            f"--nproc-per-node {count} -m longform embed ... --sequence-parallel {count}"
        )
    own = not dist.is_initialized()
    if own:
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    team = Team()
    try:
        yield team
    except Exception as error:
        if team.leads:
            with suppress(RuntimeError):  # others that are gone do not listen
                team.tell(Said(failed=str(error)))
        raise
    finally:
        if own:
            dist.destroy_process_group()


def own_device(name: str) -> str:
    """The device of this process for ``name``: with "auto" or "cuda" and GPUs, that of its number on this machine."""
    if name in ("auto", "cuda") and torch.cuda.is_available():
        return f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    return name
