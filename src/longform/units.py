"""Units of the processor (its instruction sets) that Longform takes this machine to have, and the variable that caps
them: with ``LONGFORM_UNITS=avx2`` a machine with AVX512 computes as one without.

Each value allows what those before it do and more; without the variable all is allowed that the machine has:

* ``portable``: no kernel of ours that asks for a unit, torch's plainest loops, oneDNN's for SSE4.1;
* ``avx2``: torch's and oneDNN's kernels for AVX2;
* ``avx512``: those for AVX512, where bfloat16 is multiplied as float32;
* ``avx512_bf16``: products of bfloat16, and our attention;
* ``amx``: products of tiles, and our linear layers in inference.

``import longform`` caps torch too, by variables that torch and oneDNN read when they compute for the first time. In a
process that has computed before, only our own kernels are capped. MKL's products of float32 never are.
"""

import os
from collections.abc import Callable

from longform.errors import ConfigurationError

VARIABLE = "LONGFORM_UNITS"
OF_TORCH = "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA"
# The least first, with the values of both variables.
CAPS: dict[str, tuple[str, ...]] = {
    "portable": ("default", "SSE41"),
    "avx2": ("avx2", "AVX2"),
    "avx512": ("avx512", "AVX512_CORE"),
    "avx512_bf16": ("avx512", "AVX512_CORE_BF16"),
    "amx": (),  # no cap
}


def cap() -> str:
    """The best unit that may be used: of ``CAPS``. Raises ConfigurationError for another value of the variable."""
    chosen = os.environ.get(VARIABLE) or "amx"
    if chosen not in CAPS:
        raise ConfigurationError(f"{VARIABLE} is {chosen!r}; it takes {', '.join(CAPS)}, or is not set")
    return chosen


def cap_torch() -> None:
    """Hold torch and oneDNN to the cap, in this process and those that it starts, unless they have computed before."""
    os.environ.update(zip(OF_TORCH, CAPS[cap()], strict=False))


def allows(unit: str) -> bool:
    """Whether the cap allows ``unit``, of ``CAPS``."""
    units = list(CAPS)
    return units.index(unit) <= units.index(cap())


def has(unit: str) -> bool:
    """Whether this machine has ``unit``, of ``CAPS``, and the cap allows it."""
    import torch

    asked: dict[str, Callable[[], bool]] = {
        "avx2": torch.cpu._is_avx2_supported,
        "avx512": torch.cpu._is_avx512_supported,
        "avx512_bf16": torch.cpu._is_avx512_bf16_supported,
        "amx": torch.cpu._is_amx_tile_supported,
    }
    return allows(unit) and (unit not in asked or asked[unit]())
