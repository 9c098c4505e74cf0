"""How the calling line of code is running, and what may be remembered while it runs plainly.

Kernels, caches and checks of values ask the first before anything else. Remembered are tensors that all layers of a
forward pass make of the same mask: a mask's runs, its tiles and the like are small, but on a GPU an operation costs the
same however small it is: a layer with a window gives it 20 of them, and 34 where it makes these anew
(tests/longform/models/test_steps.py counts). On a CPU it is as fast without. Outside of ``one_pass`` everything is made
where it is asked for.
"""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from enum import Enum
from functools import lru_cache, wraps
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad

MOST_KEPT = 64
_made: ContextVar[dict[Any, Any] | None] = ContextVar("made", default=None)


class Execution(Enum):
    """Ways in which a line of code may be running.

    PLAIN: it is carried out, and nobody looks on. OBSERVED: it is carried out, and a dispatch mode sees each operation
    (FlopCounterMode, fake tensors). TRANSFORMED: by torch.func or forward-mode differentiation. TRACED: a graph is made
    of it (torch.compile, torch.export, torch.jit.trace).
    """

    PLAIN = 0
    OBSERVED = 1
    TRANSFORMED = 2
    TRACED = 3


def execution_mode() -> Execution:
    """The way in which the calling line is running."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return Execution.TRACED
    if torch._C._functorch.maybe_current_level() is not None or forward_ad._current_level >= 0:
        return Execution.TRANSFORMED
    return Execution.PLAIN if torch._C._len_torch_dispatch_stack() == 0 else Execution.OBSERVED


def has_values(*tensors: Tensor | None) -> bool:
    """Whether ``tensors`` of any shapes have values that may be looked at: nothing is traced or transformed, and none
    is on the device "meta" or fake, which have shapes only.
    """
    if execution_mode() not in (Execution.PLAIN, Execution.OBSERVED):
        return False
    for x in tensors:  # noqa: SIM110  each layer asks, and a generator costs a call
        if x is not None and (x.is_meta or isinstance(x, FakeTensor)):
            return False
    return True


def autocasts(x: Tensor) -> bool:
    """Whether autocast is on for ``x``, of any shape; on the device "meta" there is none."""
    return not x.is_meta and torch.is_autocast_enabled(x.device.type)


def unrounded(x: Tensor) -> AbstractContextManager[Any]:
    """Inside, autocast does not round products of ``x``, of any shape."""
    return nullcontext() if x.is_meta else torch.autocast(x.device.type, enabled=False)


def one_pass() -> AbstractContextManager[None]:
    """Around the layers of a model: until its end ``cached_in_forward`` remembers, in this thread.

    Not where operations are traced, transformed or counted.
    """
    return _remembering() if execution_mode() is Execution.PLAIN else nullcontext()


@contextmanager
def _remembering() -> Generator[None]:
    token = _made.set({})
    try:
        yield
    finally:
        _made.reset(token)


def kept(make: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of what makes tensors of arguments that can be hashed: the last ``MOST_KEPT`` are made once.

    Not where operations are traced, transformed or counted. What inference made may be used in training.
    """

    @lru_cache(MOST_KEPT)
    def once(*args: Any) -> Any:
        with torch.inference_mode(False):
            return make(*args)

    @wraps(make)
    def either(*args: Any) -> Any:
        return once(*args) if execution_mode() is Execution.PLAIN else make(*args)

    return either


@kept
def constant(values: tuple[int, ...], device: torch.device) -> Tensor:
    """``values`` as a tensor (m,) on ``device``, copied there once: nothing may be sent there in a capture."""
    return torch.tensor(values, device=device)


def cached_in_forward(make: Callable[..., Any], *objects: Any, **options: Any) -> Any:
    """``make(*objects, **options)``, or what that was before in this pass.

    ``objects`` are told apart by identity, and are not changed during a pass; ``options``, which can be hashed, by
    value. The result needs no gradient.
    """
    made = None if torch.compiler.is_compiling() else _made.get()
    if made is None:
        return make(*objects, **options)
    key = make, *map(id, objects), *options.items()
    if key not in made:
        made[key] = make(*objects, **options), objects  # kept, so that nothing else gets their identity
    return made[key][0]
