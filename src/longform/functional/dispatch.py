"""The choice of a kernel for an operation: a table for each, from the fastest kernel to one that takes every call.

An operation (attention, window, document) has one function, one tuple of arguments (a call) and a tuple of ``Kernel``;
the first kernel that lacks nothing for a call serves it. Products, norms, sums of runs and convolutions have no table:
their functions say which kernel they take, and when.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from longform.errors import ConfigurationError


class Kernel(NamedTuple):
    """One way to compute an operation: ``run`` takes its call, whose query has ``dtype``, or any where it is None.

    ``lacks``: names the first thing that a call lacks for it, or gives None; its second argument says whether the
    kernel is forced: then what only makes it slower than the next one is not asked for. It asks about tracing before
    lengths, which would tie a traced graph to some lengths, and about the machine last.
    """

    name: str
    run: Callable[[Any], Any]
    lacks: Callable[[Any, bool], str | None] | None = None
    dtype: torch.dtype | None = None


class Choice(NamedTuple):
    """Kernel taken for one call, and what it lacked for every other one, None for those behind it in the table."""

    operation: str
    kernel: str
    unmet: tuple[tuple[str, str | None], ...]


OPERATIONS: dict[str, tuple[Kernel, ...]] = {}
_forced: dict[str, str] = {}
_listeners: list[list[Choice]] = []


def is_watched() -> bool:
    """Whether kernels are forced by ``use``, or somebody listens to what is chosen."""
    return bool(_forced or _listeners)


def operation(name: str, *kernels: Kernel) -> str:
    """Enter the table of an operation, fastest kernel first, the last one without needs; returns ``name``."""
    OPERATIONS[name] = kernels
    return name


def run(name: str, call: Any, declined: tuple[str, ...] = ()) -> Any:
    """The result of the first kernel of operation ``name`` that serves ``call`` and does not decline by NotImplemented,
    as those named ``declined`` have.
    """
    kernel = choose(name, call, declined)
    out = kernel.run(call)
    return run(name, call, (*declined, kernel.name)) if out is NotImplemented else out


def choose(name: str, call: Any, declined: tuple[str, ...] = ()) -> Kernel:
    """The first kernel of operation ``name`` that serves ``call``, but for those ``declined``; listeners are told."""
    forced = name in _forced and not declined
    for kernel in (_forced_kernel(name, call),) if forced else OPERATIONS[name]:
        fits = kernel.dtype is None or kernel.dtype == call.query.dtype
        if fits and kernel.name not in declined and (kernel.lacks is None or kernel.lacks(call, forced) is None):
            if _listeners:
                _tell(name, kernel, call)
            return kernel
    raise AssertionError(f"no kernel of {name!r} serves, and the last one has no needs")


def _forced_kernel(name: str, call: Any) -> Kernel:
    """The kernel that ``use`` forces. Raises ConfigurationError where ``call`` lacks something for it."""
    kernel = next(kernel for kernel in OPERATIONS[name] if kernel.name == _forced[name])
    missing = _lacking(kernel, call, forced=True)
    if missing is not None:
        raise ConfigurationError(
            f"kernels.use({name}={kernel.name!r}) cannot serve this call, which lacks: {missing}; leave the "
            f"block, or force another of {', '.join(repr(other.name) for other in OPERATIONS[name])}"
        )
    return kernel


def _lacking(kernel: Kernel, call: Any, *, forced: bool = False) -> str | None:
    if kernel.dtype is not None and kernel.dtype != call.query.dtype:
        return f"{str(kernel.dtype).removeprefix('torch.')} tensors"
    return None if kernel.lacks is None else kernel.lacks(call, forced)


def _tell(name: str, taken: Kernel, call: Any) -> None:
    others = ((kernel.name, _lacking(kernel, call)) for kernel in OPERATIONS[name] if kernel.name != taken.name)
    choice = Choice(name, taken.name, tuple(others))
    for listener in _listeners:
        listener.append(choice)


@contextmanager
def use(**kernels: str) -> Generator[None]:
    """Inside, the named kernels serve: ``with use(window="formula"): ...``, in this process, for all threads.

    Raises ConfigurationError for an operation or kernel that does not exist, and at a call that the kernel cannot
    serve.
    """
    for name, kernel in kernels.items():
        known = [entry.name for entry in OPERATIONS.get(name, ())]
        if kernel not in known:
            raise ConfigurationError(
                f"no kernel {kernel!r} for {name!r}; there are {', '.join(map(repr, known))}"
                if known
                else f"no operation {name!r}; there are {', '.join(map(repr, OPERATIONS))}"
            )
    before = dict(_forced)
    _forced.update(kernels)
    try:
        yield
    finally:
        _forced.clear()
        _forced.update(before)


@contextmanager
def listening() -> Generator[list[Choice]]:
    """Inside, every choice is added to the list that it gives."""
    heard: list[Choice] = []
    _listeners.append(heard)
    try:
        yield heard
    finally:
        _listeners[:] = [other for other in _listeners if other is not heard]
