"""Whether a Triton program can run here, and what serves where one does not compile."""

import os
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from longform.functional.execution import Execution, execution_mode

OPTIONS: dict[str, Any] = {"enable_fp_fusion": True}  # of all programs; Triton 3.9 warns where nothing is said
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_INSTALLED = find_spec("triton") is not None
_refused: set[Any] = set()


def has_triton() -> bool:
    """Whether Triton is installed."""
    return _INSTALLED


def lacks_triton(x: Tensor) -> str | None:
    """The first thing that is missing for a Triton program that reads ``x``, of any shape; None for nothing.

    On a CPU Triton's interpreter runs it, which takes bfloat16 for integers in products.
    """
    if execution_mode() is not Execution.PLAIN and not compiles_here():
        return "no transform, dispatch mode or exported graph"
    interpreted = os.environ.get("TRITON_INTERPRET") == "1" and x.dtype != torch.bfloat16
    if not (x.is_cuda or interpreted):
        return "tensors on a CUDA device, or Triton's interpreter and no bfloat16"
    return None if has_triton() else "Triton"


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
