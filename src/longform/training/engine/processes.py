"""How a training is distributed: which of its processes read the same texts, and whether they share the weights out."""

import signal
import threading
import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import init_device_mesh

from longform.distributed import sequence_parallel
from longform.errors import ConfigurationError, LongformError, require
from longform.inference.loading import pick_device
from longform.training.engine.sharding import empty_copy, make_whole, share_weights_out

T = TypeVar("T")
GOING_ON = (
    "Started again with the same output folder and options, the training goes on from its newest checkpoint, where "
    "there is one"
)


@dataclass(frozen=True)
class Processes:
    """This process among all that train together. ``state``: accelerate's PartialState.

    ``fsdp``: each process has a part of every weight, which are gathered for a pass in ``fsdp_dtype``. ``sequence``:
    the processes that compute each text together, this one among them, or None.
    """

    state: Any
    fsdp: bool = False
    fsdp_dtype: torch.dtype = torch.float32
    sequence: ProcessGroup | None = None

    @property
    def device(self) -> torch.device:
        """Where this process computes."""
        return self.state.device

    @property
    def weights_device(self) -> torch.device:
        """Where a model is to be before ``sharing``: with FSDP, whole models may be too large for a GPU."""
        return torch.device("cpu") if self.fsdp else self.device

    @property
    def is_main_process(self) -> bool:
        """Whether this is the one that writes."""
        return self.state.is_main_process

    @property
    def num_processes(self) -> int:
        """Number of processes that train together."""
        return self.state.num_processes

    @property
    def readers(self) -> int:
        """How many groups of processes read texts of their own."""
        return self.num_processes // self._together

    @property
    def reader(self) -> int:
        """Which of them this process belongs to."""
        return self.state.process_index // self._together

    @property
    def _together(self) -> int:
        return 1 if self.sequence is None else dist.get_world_size(self.sequence)

    def wait_for_everyone(self) -> None:
        """Return when every process has come here."""
        self.state.wait_for_everyone()

    def main_process_first(self) -> AbstractContextManager[None]:
        """Inside, the others come after the main process."""
        return self.state.main_process_first()

    @contextmanager
    def sharing(self, model: nn.Module) -> Generator[None]:
        """Inside, ``model`` shares texts and weights out as was chosen; at the end each process has all of it again.

        Where a process fails inside, it stays as it is.
        """
        if not self.fsdp and self.sequence is None:
            yield
            return
        empty = empty_copy(model)
        if self.sequence is not None:
            sequence_parallel(model, self.sequence)  # ty: ignore[invalid-argument-type]  it refuses others
        if self.fsdp:
            share_weights_out(model, self.device.type, dtype=self.fsdp_dtype)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view", UserWarning)  # not written to
            yield
        make_whole(model, empty)

    def level(self, items: Sequence[T]) -> Iterator[tuple[T, bool]]:
        """``items``, at least one, each with whether it counts.

        With FSDP every pass is one of all processes: those with fewer items pass the last again, which does not count.
        """
        most = len(items)
        if self.fsdp:
            longest = torch.tensor(most, device=self.device)
            dist.all_reduce(longest, dist.ReduceOp.MAX)
            most = int(longest)
        for place in range(most):
            yield items[min(place, len(items) - 1)], place < len(items)


def is_lost(error: BaseException) -> bool:
    """Whether ``error`` says that another process is gone: torch has a class for it, gloo a text."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))


@contextmanager
def stopping_together(processes: Processes) -> Generator[None]:
    """Raise LongformError where another process of the training is gone, which says how it goes on.

    ``torchrun`` then ends all that are left with SIGTERM, perhaps before they notice themselves.
    """

    def stop(*_: Any) -> None:
        raise LongformError(f"torchrun ends this process, as it does where another one is gone. {GOING_ON}")

    alone = processes.num_processes == 1 or threading.current_thread() is not threading.main_thread()
    before = None if alone else signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except RuntimeError as error:
        if not is_lost(error):
            raise
        said = str(error).partition("\n")[0]
        raise LongformError(f"another process of this training is gone ({said}). {GOING_ON}") from error
    finally:
        if not alone:
            signal.signal(signal.SIGTERM, before)


def processes_of(settings: Any) -> Processes:
    """The processes of a training with these ``settings``, those of ``torchrun`` or ``accelerate launch``.

    Raises ConfigurationError for a device that is not there, and for numbers of processes that do not go together.
    """
    state = current_process(settings.device)
    together, count = settings.sequence_parallel, state.num_processes
    if (settings.fsdp or together > 1) and not dist.is_initialized():
        asked = "fsdp" if settings.fsdp else f"sequence_parallel={together}"
        raise ConfigurationError(
            f"{asked} needs several processes, and this is one alone: torchrun --nproc-per-node {max(2, together)} "
            "-m longform ..."
        )
    if count % together:
        raise ConfigurationError(
            f"sequence_parallel={together} does not divide the {count} processes that torchrun started: of each "
            f"{together} of them one text is computed"
        )
    sequence = None
    if together > 1:
        mesh = init_device_mesh(state.device.type, (count // together, together), mesh_dim_names=("texts", "sequence"))
        sequence = mesh.get_group("sequence")
    return Processes(state, settings.fsdp, getattr(torch, settings.fsdp_dtype), sequence)


def current_process(device: str = "auto") -> Any:
    """This process among those of ``torchrun`` or ``accelerate launch``, on ``device``: accelerate's PartialState.

    Raises ConfigurationError for a device that is not there (``pick_device``), and for a number of one.
    """
    chosen = pick_device(device)
    if chosen.index:
        raise ConfigurationError(
            f'device="{device}": a training takes the first one; CUDA_VISIBLE_DEVICES={chosen.index} makes it that one'
        )
    states = require("accelerate.state", extra="train")
    cpu = chosen.type == "cpu"
    process = states.PartialState(cpu=cpu)
    if process.device.type != chosen.type:  # an earlier training of this process was elsewhere
        states.AcceleratorState._reset_state(reset_partial_state=True)
        process = states.PartialState(cpu=cpu)
    return process
