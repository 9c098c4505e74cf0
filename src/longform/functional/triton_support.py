"""Whether a Triton program can run here, and what serves where one does not compile."""

import os
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch

from longform.functional.conditions import ON_CUDA, Call
from longform.functional.dispatch import Condition
from longform.functional.execution import Execution, execution_mode

OPTIONS: dict[str, Any] = {"enable_fp_fusion": True}  # of all programs; Triton 3.9 warns where nothing is said
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_INSTALLED = find_spec("triton") is not None
_refused: set[Any] = set()


def has_triton() -> bool:
    """Whether Triton is installed."""
    return _INSTALLED


def _can_run(call: Call) -> bool:
    """On a GPU; by Triton's interpreter, which takes bfloat16 for integers in products, in other dtypes."""
    first = call.tensors[0]
    return first.is_cuda or (os.environ.get("TRITON_INTERPRET") == "1" and first.dtype != torch.bfloat16)


WANTED_ON_CUDA = ON_CUDA._replace(for_speed=True)  # elsewhere an interpreter runs it, where it is forced
UNSEEN = Condition(
    "no transform, dispatch mode or exported graph",
    lambda call: execution_mode() is Execution.PLAIN or compiles_here(),
    of_values=True,
)
DEVICE = Condition("tensors on a CUDA device, or Triton's interpreter and no bfloat16", _can_run)
HAS_TRITON = Condition("Triton", lambda call: has_triton())


def compiles_here() -> bool:
    """Whether the line is traced by torch.compile, whose graph runs where Longform is; an exported one need not."""
    return torch.compiler.is_dynamo_compiling() and not torch.compiler.is_exporting()


def attempt(kind: Any, run: Callable[[], Any]) -> Any:
    """run(); NotImplemented, with one warning for each ``kind`` of call, where Triton compiles no program for it.

    In a compiled graph run() stands for an operator: Triton's error is raised when the graph runs.
    """
    if torch.compiler.is_compiling():
        return run()
    if kind in _refused:
        return NotImplemented
    from triton import CompilationError, OutOfResources

    try:
        return run()
    except (CompilationError, OutOfResources) as error:
        _refused.add(kind)
        reason = str(error).strip().split("\n", 1)[0]
        warnings.warn(f"Triton fails here, a slower path serves instead: {reason}", stacklevel=5)
        return NotImplemented
