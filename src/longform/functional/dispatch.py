"""The choice of a kernel for an operation: a table for each, from the fastest kernel to one that takes every call.

An operation (attention, window, linear, norm, slot_means ...) has one function, one ``Call`` that holds its arguments,
and a tuple of ``Kernel``. ``run`` takes the first kernel whose needs all hold; one that finds out later that it cannot
serve returns NotImplemented, and the next one is asked. Nothing else in Longform decides how something is computed.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from longform.errors import ConfigurationError


class Condition(NamedTuple):
    """One thing that a kernel needs: ``name`` as ``explain`` prints it, and whether it ``holds`` for a call.

    ``for_speed``: without it the kernel would serve too, slower than the next one; ``use`` does not insist on it.
    ``of_machine``: the same for every call of this process, so that it is asked once.
    """

    name: str
    holds: Callable[[Any], bool]
    for_speed: bool = False
    of_machine: bool = False


class Kernel(NamedTuple):
    """One way to compute an operation: ``run`` takes its call; ``needs``, cheapest first, the machine last.

    Conditions on tracing come before conditions on lengths, which would tie a traced graph to some lengths.
    """

    name: str
    run: Callable[[Any], Any]
    needs: tuple[Condition, ...] = ()


class Choice(NamedTuple):
    """What was taken for one call, and of every other kernel before or after it the first need that did not hold."""

    operation: str
    kernel: str
    unmet: tuple[tuple[str, str | None], ...]


Way = tuple[Callable[[Any], Any], tuple[Callable[[Any], bool], ...]]  # a kernel's run, and what its calls are asked

OPERATIONS: dict[str, tuple[Kernel, ...]] = {}
_ways: dict[str, tuple[tuple[Kernel, ...], tuple[Way, ...]]] = {}  # a table, and its kernels for this machine
_forced: dict[str, str] = {}
_listeners: list[list[Choice]] = []


def operation(name: str, *kernels: Kernel) -> str:
    """Enter the table of an operation, fastest kernel first, the last one without needs; returns ``name``."""
    OPERATIONS[name] = kernels
    return name


def run(name: str, call: Any) -> Any:
    """What the first kernel of operation ``name`` that serves ``call`` returns."""
    if _forced or _listeners:
        return _run_and_tell(name, call)
    for kernel, needs in _ways_of(name):
        for holds in needs:
            if not holds(call):
                break
        else:
            found = kernel(call)
            if found is not NotImplemented:
                return found
    raise AssertionError(f"no kernel of {name!r} serves, and the last one has no needs")


def _ways_of(name: str) -> tuple[Way, ...]:
    """The kernels of an operation that this machine has, without the needs that it meets."""
    kernels = OPERATIONS[name]
    if torch.compiler.is_compiling():  # asks all: what is kept below changes, and a traced graph would depend on it
        return tuple((kernel.run, tuple(need.holds for need in kernel.needs)) for kernel in kernels)
    known = _ways.get(name)
    if known is None or known[0] is not kernels:
        served = [k for k in kernels if all(need.holds(None) for need in k.needs if need.of_machine)]
        known = kernels, tuple((k.run, tuple(n.holds for n in k.needs if not n.of_machine)) for k in served)
        _ways[name] = known
    return known[1]


def ask_the_machine_again() -> None:
    """Forget which kernels this machine has; for tests that pretend another one."""
    _ways.clear()


def _run_and_tell(name: str, call: Any) -> Any:
    for kernel in _candidates(name, call):
        if _unmet(kernel, call) is None:
            found = kernel.run(call)
            if found is not NotImplemented:
                if _listeners:
                    _tell(name, kernel, call)
                return found
    raise AssertionError(f"no kernel of {name!r} serves, and the last one has no needs")


def choose(name: str, call: Any) -> Kernel:
    """The kernel that ``run`` would take, if it does not decline."""
    kernel = next(kernel for kernel in _candidates(name, call) if _unmet(kernel, call) is None)
    if _listeners:
        _tell(name, kernel, call)
    return kernel


def _candidates(name: str, call: Any) -> tuple[Kernel, ...]:
    """All kernels, or the one that ``use`` forces, whose needs are checked here but for those of speed."""
    kernels = OPERATIONS[name]
    if name not in _forced:
        return kernels
    kernel = next(kernel for kernel in kernels if kernel.name == _forced[name])
    needs = tuple(need for need in kernel.needs if not need.for_speed)
    missing = _unmet(kernel._replace(needs=needs), call)
    if missing is not None:
        raise ConfigurationError(
            f"kernels.use({name}={kernel.name!r}) cannot serve this call, which lacks: {missing.name}; leave the "
            f"block, or force another of {', '.join(repr(other.name) for other in kernels)}"
        )
    return (kernel._replace(needs=()),)


def _unmet(kernel: Kernel, call: Any) -> Condition | None:
    for need in kernel.needs:
        if not need.holds(call):
            return need
    return None


def _tell(name: str, taken: Kernel, call: Any) -> None:
    unmet = [(kernel.name, _unmet(kernel, call)) for kernel in OPERATIONS[name] if kernel.name != taken.name]
    choice = Choice(name, taken.name, tuple((other, None if need is None else need.name) for other, need in unmet))
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
