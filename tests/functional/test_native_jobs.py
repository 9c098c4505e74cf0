"""Structures of the compiled kernels: each has the size and the offsets of its twin in C, and pointers are checked."""

import ctypes
import subprocess
import sysconfig
from pathlib import Path

import pytest
import torch

from longform.functional.native import jobs, library
from longform.functional.native.jobs import JOBS, Heads, heads_of, pointer, rows_of

SOURCES = Path(jobs.__file__).parent / "csrc"
NAMES = {job: f"{name}_job" for job, name in {**jobs.TILED, jobs.MeanJob: "mean", jobs.NormJob: "norm"}.items()}


def test_every_structure_has_the_size_and_offsets_of_its_twin_in_c(tmp_path: Path) -> None:
    structures = {Heads: "heads_of", **NAMES}
    fields = [(kind, name, field) for kind, name in structures.items() for field, *_ in kind._fields_]
    lines = [f'printf("%zu\\n", sizeof({name}));' for name in structures.values()]
    lines += [f'printf("%zu\\n", offsetof({name}, {field}));' for _, name, field in fields]
    program = tmp_path / "layout.c"
    program.write_text(
        '#include <stddef.h>\n#include <stdio.h>\n#include "jobs.h"\n'
        f"int main(void) {{ {' '.join(lines)} return 0; }}\n"
    )
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    subprocess.run([compiler, f"-I{SOURCES}", str(program), "-o", str(tmp_path / "layout")], check=True)
    printed = subprocess.run([tmp_path / "layout"], check=True, capture_output=True, text=True).stdout.split()
    ours = [ctypes.sizeof(kind) for kind in structures] + [getattr(kind, field).offset for kind, _, field in fields]
    assert list(map(int, printed)) == ours


def test_every_field_of_the_header_is_in_a_structure() -> None:
    assert set(NAMES) == set(JOBS)
    header = (SOURCES / "jobs.h").read_text()
    assert {name for name in NAMES.values() if f"}} {name};" in header} == set(NAMES.values())


def test_a_library_of_other_sources_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    class Grown(ctypes.Structure):
        _fields_ = [("more", ctypes.c_int64), *jobs.AttentionJob._fields_]

    monkeypatch.setattr(library, "JOBS", (Grown, *JOBS[1:]))
    with pytest.warns(UserWarning, match=r"not used, slower paths serve instead \(it was built from other sources\)"):
        assert library.native_library.__wrapped__() is None


@pytest.mark.parametrize(
    "bad",
    [
        lambda: pointer(torch.zeros(3, dtype=torch.bfloat16), torch.float32, 3),
        lambda: pointer(torch.zeros(3), torch.float32, 4),
        lambda: pointer(torch.zeros(3, 2).t(), torch.float32, 2, 3),
        lambda: pointer(torch.zeros(3, device="meta"), torch.float32, 3),
        lambda: rows_of(torch.zeros(3, 2), 3, 2),
        lambda: rows_of(torch.zeros(2, 3, dtype=torch.bfloat16).t(), 3, 2),
        lambda: heads_of(torch.zeros(1, 2, 3, 4, dtype=torch.bfloat16), 1, 2, 3, 5),
        lambda: heads_of(torch.zeros(1, 2, 4, 3, dtype=torch.bfloat16).mT, 1, 2, 3, 4),
    ],
)
def test_a_pointer_is_given_for_what_the_kernel_will_read_and_nothing_else(bad) -> None:
    with pytest.raises(AssertionError):
        bad()


def test_none_is_no_pointer() -> None:
    assert pointer(None, torch.float32, 3) is None


def test_another_default_dtype_of_torch_changes_nothing() -> None:
    """Masks' biases are float32 whatever torch makes of numbers."""
    from longform.functional.attention import amx, usable_slots
    from longform.functional.attention.call import AttentionCall

    heads = [torch.randn(1, 2, 40, 32).bfloat16() for _ in range(3)]
    usable = usable_slots(torch.arange(40)[None] < 25)
    expected = amx.infer(AttentionCall(*heads, usable))
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert torch.equal(amx.infer(AttentionCall(*heads, usable)), expected)
    finally:
        torch.set_default_dtype(torch.float32)
