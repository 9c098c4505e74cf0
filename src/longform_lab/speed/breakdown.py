"""Shares of a pass's time by torch's profiler: products, attention, and what is neither."""

import re
from collections.abc import Callable, Iterable
from typing import Any

from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

# The first kind whose words begin the name of an operation takes it.
KINDS = {
    "products": re.compile(r"aten::(_?int_mm|_?add(mm|mv|r)|b?mm|baddbmm|matmul|linear|einsum|mkldnn)|mkldnn|onednn"),
    "attention": re.compile(r"aten::_?(scaled_dot_product|flash_attention|efficient_attention|flex_attention)"),
    "activation": re.compile(r"aten::(gelu|relu|tanh|silu|sigmoid)"),
    "normalisation": re.compile(r"aten::(native_)?layer_norm"),
    "copies": re.compile(r"aten::(copy_|clone|contiguous|cat|stack|index|gather|scatter|_to_copy|pad|fill)"),
    "elementwise": re.compile(r"aten::"),
}
OTHER = "other"


def kind_of(operation: str) -> str:
    """Kind of an operation of the profiler: a key of ``KINDS``, or "other"."""
    return next((kind for kind, names in KINDS.items() if names.match(operation)), OTHER)


def shares(times: Iterable[tuple[str, float]]) -> dict[str, float]:
    """The share of each kind in the time of (operation, time) pairs; they add up to 1, or are all 0."""
    sums = dict.fromkeys((*KINDS, OTHER), 0.0)
    for operation, time in times:
        sums[kind_of(operation)] += time
    whole = sum(sums.values()) or 1.0
    return {kind: value / whole for kind, value in sums.items()}


def shares_of(action: Callable[[], None], device: str) -> dict[str, float]:
    """Shares of one pass: time inside each operation itself, on the calling thread or on the GPU."""
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device != "cpu" else [])
    with profile(activities=activities) as profiler:
        action()
    return shares(times_of(profiler.key_averages(), device))


def times_of(events: Iterable[Any], device: str) -> list[tuple[str, float]]:
    """(operation, time inside it) of the profiler's averages.

    Only of operations: on a GPU each has the time of its kernels, which are listed beside it once more.
    """
    name = "self_cpu_time_total" if device == "cpu" else "self_device_time_total"
    return [(event.key, getattr(event, name)) for event in events if event.device_type == DeviceType.CPU]
