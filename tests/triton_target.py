"""The Triton programs compiled for an absent GPU: ``python triton_target.py 90 64,bfloat16,128,1,0``.

The arguments are a compute capability, and heads' features, dtype, window, whether texts are padded, whether there is
a bias by distance, and, if any, selected slots. Prints a JSON object a program: name, bytes of shared memory, registers
and bytes spilled.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime import driver

from longform.functional import norm, norm_programs, slot_programs
from longform.functional import slots as slots_of_texts
from longform.functional.window import triton_kernel, triton_programs

PROGRAMS = {
    triton_programs: ("forward", "backward_queries", "backward_keys"),
    norm_programs: ("normalise",),
    slot_programs: ("pool",),
}


class Absent(DriverBase):
    """The driver of a GPU of some compute capability."""

    capability = 90
    is_active = classmethod(lambda cls: True)

    def __init__(self) -> None:
        pass

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return device

    def map_python_to_cpp_type(self, kind: str) -> str:
        return kind

    def get_benchmarker(self) -> None:
        raise NotImplementedError


class Launch:
    """Stands for a program: ``launch[grid](...)`` compiles it."""

    def __init__(self, program: Any) -> None:
        self.program = program

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return partial(compiled, self.program, grid)


def compiled(program: Any, grid: tuple[int, ...], *places: Any, **given: Any) -> None:
    made, capability = program.warmup(*places, grid=grid, **given), Absent.capability
    assembler = next((Path(triton.__file__).parent / "backends/nvidia/bin").glob("ptxas*"))
    name = f"sm_{capability}{'a' if capability == 90 else ''}"
    with TemporaryDirectory() as folder:
        source = Path(folder) / "program.ptx"
        source.write_text(made.asm["ptx"])
        options = ["-v", "--gpu-name", name, str(source), "-o", str(Path(folder) / "program.cubin")]
        said = subprocess.run([str(assembler), *options], capture_output=True, text=True, check=True).stderr
    registers, spilled = re.search(r"Used (\d+) registers", said), re.search(r"(\d+) bytes spill stores", said)
    found = {"name": program.__name__, "shared": made.metadata.shared}
    print(json.dumps(found | {"registers": int(registers[1]), "spilled": int(spilled[1])}), flush=True)


def main(capability: int, *cases: str) -> None:
    Absent.capability = capability
    driver.set_active(Absent())
    for module, names in PROGRAMS.items():
        for name in names:
            setattr(module, name, Launch(getattr(module, name)))
    for case in cases:
        dim, dtype, window, padded, distances, *selected = case.split(",")
        marks = padded == "1", distances == "1"
        build(int(dim), getattr(torch, dtype), int(window), *marks, *map(int, selected))


def build(dim: int, dtype: torch.dtype, window: int, padded: bool, distances: bool, selected: int = 0) -> None:
    batch, heads, length, slots = 2, 12, 1024, 256
    by_token = [torch.empty(batch, length, heads, dim, dtype=dtype).transpose(1, 2) for _ in range(4)]
    memory = [torch.empty(batch, heads, slots, dim, dtype=dtype) for _ in range(2)]
    biases = torch.empty(heads), torch.empty(heads, 2 * window + 1) if distances else None
    marks = torch.empty(batch, length).byte(), torch.empty(batch, 2).int()
    blocks, home = -(-length // window), torch.empty(batch, slots).long()
    parts = home, torch.empty(batch, slots), torch.empty(batch, blocks), None, None, None
    if selected:
        chosen = torch.zeros(batch, heads, blocks, selected, dtype=torch.int32)
        parts = home, torch.empty(batch, heads, blocks, slots), None, chosen, torch.full((batch,), 4), None
    given = [*by_token[:3], *memory, *biases, *(marks if padded else (None, None)), *parts]
    options = window, 1, None, False, 4 if selected else None
    out, lse = triton_kernel._forward(given, *options)
    triton_kernel._backward(given, out, lse, by_token[3], *options)
    x, weight = by_token[0].transpose(1, 2).flatten(2), torch.empty(heads * dim, dtype=dtype)
    norm.norm_by_triton(x, weight, weight, epsilon=1e-5, residual=x)
    pooled = slots_of_texts.Runs(torch.empty(batch, slots), torch.full((batch,), 4), 4, 4)
    for weights in (None, torch.empty(batch, length, heads)):
        slots_of_texts.pool_by_triton(x, pooled, weights)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
