"""The choice of a kernel for an operation: a table for each, from the fastest kernel to one that takes every call.

An operation (attention, window, document) has one function, one ``Call`` that holds its arguments, and a tuple of
``Kernel``. ``find`` gives the first kernel whose needs all hold. Needs that only ask what a call's
``kind`` says (device, dtype, shapes, gradients) are asked once a kind. Products, norms, sums of runs and
convolutions have no table: their functions say which kernel they take, and when.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from longform.errors import ConfigurationError
from longform.functional.execution import Execution, execution_mode


class Condition(NamedTuple):
    """One thing that a kernel needs: ``name`` as ``explain`` prints it, and whether it ``holds`` for a call.

    ``for_speed``: without it the kernel would serve too, slower than the next one; ``use`` does not insist on it.
    ``of_values``: it looks at more than the call's ``kind``, so that every call is asked.
    """

    name: str
    holds: Callable[[Any], bool]
    for_speed: bool = False
    of_values: bool = False


class Kernel(NamedTuple):
    """One way to compute an operation: ``run`` takes its call; ``needs``, cheapest first, the machine last.

    Conditions on tracing come before conditions on lengths, which would tie a traced graph to some lengths.
    """

    name: str
    run: Callable[[Any], Any]
    needs: tuple[Condition, ...] = ()


class Choice(NamedTuple):
    """Kernel taken for one call, and of every other one before or after it the first need that did not hold."""

    operation: str
    kernel: str
    unmet: tuple[tuple[str, str | None], ...]


Ways = tuple[tuple[Callable[[Any], Any], tuple[Callable[[Any], bool], ...]], ...]  # kernels, what calls are asked

MOST_KINDS = 4096  # remembered; then all are forgotten
OPERATIONS: dict[str, tuple[Kernel, ...]] = {}
_ways: dict[tuple[Any, ...], Ways] = {}  # of an operation, its table and a kind of call
_forced: dict[str, str] = {}
_listeners: list[list[Choice]] = []


def is_watched() -> bool:
    """Whether kernels are forced by ``use``, or somebody listens to what is chosen."""
    return bool(_forced or _listeners)


def operation(name: str, *kernels: Kernel) -> str:
    """Enter the table of an operation, fastest kernel first, the last one without needs; returns ``name``."""
    OPERATIONS[name] = kernels
    return name


def run(name: str, call: Any) -> Any:
    """The result of the first kernel of operation ``name`` that serves ``call`` and does not decline."""
    taken = find(name, call, call.kind())
    found = taken(call)
    return found if found is not NotImplemented else _without(name, call, [taken])


def _without(name: str, call: Any, declined: list[Callable[[Any], Any]]) -> Any:
    """``run`` without kernels that found out that they cannot serve, and returned NotImplemented."""
    for kernel in OPERATIONS[name]:
        if kernel.run not in declined and _unmet(kernel, call) is None:
            found = kernel.run(call)
            if found is not NotImplemented:
                if _listeners:
                    _tell(name, kernel, call)
                return found
    raise AssertionError(f"no kernel of {name!r} serves, and the last one has no needs")


def find(name: str, call: Any, kind: tuple[Any, ...]) -> Callable[[Any], Any]:
    """The first kernel of operation ``name`` that serves ``call``, which it takes.

    ``kind``: facts about its tensors and options on which the choice depends, to be compared with those of other
    calls. Where operations are traced, transformed or seen by a mode each call is asked by itself.
    """
    if _forced or _listeners or execution_mode() is not Execution.PLAIN:
        return choose(name, call).run
    key = name, torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), kind
    ways = _ways.get(key)
    if ways is None:
        ways = _remember(key, call)
    for kernel, needs in ways:
        for holds in needs:
            if not holds(call):
                break
        else:
            return kernel
    raise AssertionError(f"no kernel of {name!r} serves, and the last one has no needs")


def _remember(key: tuple[Any, ...], call: Any) -> Ways:
    """The kernels of an operation that may serve calls of this kind, each with what every call is asked."""
    found = []
    for kernel in OPERATIONS[key[0]]:
        if all(need.holds(call) for need in kernel.needs if not need.of_values):
            found.append((kernel.run, tuple(need.holds for need in kernel.needs if need.of_values)))
    if len(_ways) >= MOST_KINDS:
        _ways.clear()
    _ways[key] = tuple(found)
    return _ways[key]


def ask_again() -> None:
    """Forget what was chosen; for tests that change a table or pretend another machine."""
    _ways.clear()


def choose(name: str, call: Any) -> Kernel:
    """The kernel that serves ``call``, and say so to whoever listens."""
    kernel = next(kernel for kernel in _candidates(name, call) if _unmet(kernel, call) is None)
    if _listeners:
        _tell(name, kernel, call)
    return kernel


def _candidates(name: str, call: Any) -> tuple[Kernel, ...]:
    """Kernels to choose among: all, or that which ``use`` forces, whose needs (but for speed) are checked here."""
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
