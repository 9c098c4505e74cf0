"""The one table of tolerances. Whole tensors are compared; a failure is a failure.

``TOLERANCES[scope][dtype]`` is how far a result may be from its float64 twin, absolutely and relative to the value.
Scope "function" is one numeric function or layer; "model" is a whole network of a few layers.
"""

from typing import NamedTuple

import torch


class Tolerance(NamedTuple):
    """Largest absolute and relative difference that still counts as equal."""

    atol: float
    rtol: float


TOLERANCES: dict[str, dict[torch.dtype, Tolerance]] = {
    "function": {
        torch.float64: Tolerance(1e-10, 1e-10),  # 53 bits of mantissa; sums over < 1,000 terms lose about three digits
        torch.float32: Tolerance(1e-5, 1e-5),  # 24 bits (6e-8); the same sums in another order lose about two digits
        torch.bfloat16: Tolerance(2e-2, 2e-2),  # 8 bits (4e-3); inputs, weights and output are each rounded once
    },
    "model": {
        torch.float64: Tolerance(1e-10, 1e-10),  # layer norms keep values near one, so depth adds errors, not digits
        torch.float32: Tolerance(1e-4, 1e-4),  # a few layers, each as above, in sequence
        torch.bfloat16: Tolerance(5e-2, 5e-2),  # the residual stream is rounded twice a layer
    },
}

# Values in a command's output, of the same texts in other batches: padding to another length changes the last digits.
IN_OTHER_BATCHES = Tolerance(1e-5, 1e-5)


def assert_close(actual: torch.Tensor, expected: torch.Tensor, *, scope: str = "function") -> None:
    """Compare whole tensors of one shape, within the tolerance of the actual tensor's dtype."""
    tolerance = TOLERANCES[scope][actual.dtype]
    torch.testing.assert_close(
        actual, expected, atol=tolerance.atol, rtol=tolerance.rtol, check_dtype=False, check_device=False
    )
