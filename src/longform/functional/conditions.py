"""The conditions that kernels need, by name, and the facts about a call that they ask for, each found out once.

Torch's own predicates of the machine (AMX, oneDNN, Triton) cannot be traced by a compiler, so they come last in a
kernel's needs, behind ``EAGER``.
"""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from longform.functional.dispatch import Condition
from longform.functional.execution import Execution, execution_mode, has_values
from longform.functional.native.library import best_units, native_library

BFLOAT16_UNITS = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")  # of x86, then of ARM
TILE_MULTIPLE = 32  # features: the rows of two tiles, and the pairs of one


class lazy_property:
    """A property that is found out when first asked for; functools' has a lock, which a compiler cannot trace."""

    def __init__(self, find: Callable[[Any], Any]) -> None:
        self.find, self.__doc__ = find, find.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, call: Any, owner: type | None = None) -> Any:
        found = call.__dict__[self.name] = self.find(call)
        return found


class Call:
    """The arguments of one call of an operation, and facts about them.

    ``tensors``: those that kernels read, of any shape; ``options``, on which the choice of a kernel depends too:
    numbers, and which arguments are there.
    """

    tensors: tuple[Tensor, ...]
    options: Any = None

    def kind(self) -> tuple[Any, ...]:
        """Facts about the tensors and options on which the choice of a kernel depends."""
        facts = [self.options]
        for x in self.tensors:  # here and below loops take half of what a generator takes
            facts += type(x), x.dtype, x.device.type, x.shape, x.requires_grad
        return tuple(facts)

    @lazy_property
    def eager(self) -> bool:
        """Whether operations are just carried out: no graph is traced, and no transform of torch.func is at work."""
        return has_values()

    @lazy_property
    def plain(self) -> bool:
        """Whether all tensors are plain ones on a CPU, of one dtype, and no mode sees what is done with them."""
        if execution_mode() is not Execution.PLAIN:
            return False
        first = self.tensors[0].dtype
        for x in self.tensors:  # noqa: SIM110
            if not is_plain(x, first):
                return False
        return True

    @lazy_property
    def wants_gradient(self) -> bool:
        """Whether autograd will ask for a gradient of any of the tensors."""
        return ask_gradient(self.tensors)


def ask_gradient(tensors: Iterable[Tensor | None]) -> bool:
    """Whether autograd will ask for a gradient of any of ``tensors``."""
    if torch.is_grad_enabled():
        for x in tensors:
            if x is not None and x.requires_grad:
                return True
    return False


def is_plain(x: Tensor, dtype: torch.dtype) -> bool:
    """Whether ``x``, of any shape, is a torch.Tensor or Parameter itself, on a CPU, of that dtype."""
    return x.dtype == dtype and x.is_cpu and (type(x) is Tensor or type(x) is Parameter)


@cache
def has_amx() -> bool:
    """Whether the CPU has Intel's unit for products of matrices, and the system lets it be used."""
    return torch.cpu._is_amx_tile_supported()


def native_bfloat16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 matrices; elsewhere torch emulates it, slower than float32.

    Measured on one core of a Zen 4 with AVX512-bf16, n = 512, base size: 75 ms a layer in float32, 41 in bfloat16;
    a training step of MiniLM's size at n = 4,096: 576 and 334 ms a layer.
    """
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type != "cpu":
        return False
    if not hasattr(torch.cpu, "get_capabilities"):  # older torch
        return torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
    found = torch.cpu.get_capabilities()
    return any(found.get(unit, False) for unit in BFLOAT16_UNITS)


def _is_bfloat16(call: Any) -> bool:
    return call.tensors[0].dtype == torch.bfloat16


EAGER = Condition("eager execution (no graph is traced, no torch.func transform)", lambda call: call.eager)
PLAIN = Condition("plain tensors of one dtype on a CPU, seen by no dispatch mode", lambda call: call.plain)
ON_CPU = Condition("tensors on a CPU", lambda call: call.tensors[0].is_cpu)
ON_CUDA = Condition("tensors on a CUDA device", lambda call: call.tensors[0].is_cuda)
NO_GRADIENT = Condition("no gradient to form", lambda call: not call.wants_gradient)
GRADIENT = Condition("a gradient to form", lambda call: call.wants_gradient)
NO_DISTANCES = Condition("no bias by distance", lambda call: call.distance_bias is None)
NO_DROPOUT = Condition("no dropout", lambda call: call.dropout == 0.0)
BFLOAT16 = Condition("bfloat16 tensors", _is_bfloat16)
LIBRARY = Condition("compiled kernels", lambda call: native_library() is not None)
AMX = Condition("a CPU with AMX", lambda call: best_units() == "amx", for_speed=True)
AVX512_BF16 = Condition(  # which every CPU with AMX has
    "a CPU with AVX512-bf16", lambda call: best_units() is not None, for_speed=True
)
