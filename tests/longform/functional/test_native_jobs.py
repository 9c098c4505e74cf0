"""Structures of the compiled kernels: each has the size and the offsets of its twin in C, and pointers are checked."""

import ctypes
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import torch
from kernel_tables import UNITS

from longform.functional.native import jobs, library
from longform.functional.native.jobs import JOBS, Heads, heads_of, pointer, strided

SOURCES = Path(jobs.__file__).parent / "csrc"
NAMES = {job: f"{name}_job" for job, name in jobs.KERNELS.items()}


def compiler() -> str:
    return (sysconfig.get_config_var("CC") or "cc").split()[0]


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
    subprocess.run([compiler(), f"-I{SOURCES}", str(program), "-o", str(tmp_path / "layout")], check=True)
    printed = subprocess.run([tmp_path / "layout"], check=True, capture_output=True, text=True).stdout.split()
    ours = [ctypes.sizeof(kind) for kind in structures] + [getattr(kind, field).offset for kind, _, field in fields]
    assert list(map(int, printed)) == ours


def test_every_field_of_the_header_is_in_a_structure() -> None:
    assert set(NAMES) == set(JOBS)
    header = (SOURCES / "jobs.h").read_text()
    assert {name for name in NAMES.values() if f"}} {name};" in header} == set(NAMES.values())


class Grown(ctypes.Structure):
    _fields_ = [("more", ctypes.c_int64), *jobs.AttentionJob._fields_]


class Swapped(ctypes.Structure):
    _fields_ = [
        jobs.LinearJob._fields_[1],
        jobs.LinearJob._fields_[0],
        *jobs.LinearJob._fields_[2:],
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [("JOBS", (Grown, *JOBS[1:])), ("JOBS", (*JOBS[:-1], Swapped)), ("VERSION", jobs.VERSION + 1)],
)
def test_a_library_of_other_sources_is_not_used(monkeypatch: pytest.MonkeyPatch, name: str, value: object) -> None:
    monkeypatch.setattr(library, name, value)
    with pytest.warns(UserWarning, match=r"not used, slower paths serve instead \(it was built from other sources\)"):
        assert library.native_library.__wrapped__() is None


def test_the_header_says_what_the_structures_are() -> None:
    header = (SOURCES / "jobs.h").read_text()
    said = {name: int(value, 0) for name, value in re.findall(r"#define JOBS_(\w+) (\w+)", header)}
    assert said == {"VERSION": jobs.VERSION, "DIGEST": jobs.digest()}, f"JOBS_DIGEST is {jobs.digest():#x}"


STALE = """
import importlib.util, sys, warnings
from importlib.machinery import ModuleSpec
import torch
from longform import LinformerConfig, LinformerModel
from longform.functional.native import library

sizes = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
sizes |= {"max_position_embeddings": 32, "projected_length": 8, "projection": "mean", "attention_window": 8}
model = LinformerModel(LinformerConfig(vocab_size=9, **sizes)).eval().bfloat16()
for stale in sys.argv[1:]:
    spec = ModuleSpec("longform.functional.native._kernels", None, origin=stale)
    importlib.util.find_spec = lambda name, package=None: spec
    library.native_library.cache_clear()
    with warnings.catch_warnings(record=True) as heard, torch.no_grad():
        warnings.simplefilter("always")
        for _ in range(3):
            assert model(torch.ones(1, 20, dtype=torch.long)).last_hidden_state.isfinite().all()
    assert [str(warning.message).count("slower paths serve") for warning in heard] == [1], heard
    assert library.kernels() == "none"
"""


@pytest.mark.nightly
def test_beside_a_stale_library_slower_paths_serve_after_one_warning(tmp_path: Path) -> None:
    stale = [tmp_path / name for name in ("empty.so", "older.so", "broken.so")]
    for path, content in zip(stale, ("", "long longform_built_for[50];", "no library"), strict=True):
        source = path.with_suffix(".c")
        source.write_text(content)
        path.write_text(content)
        if path != stale[-1]:
            subprocess.run([compiler(), "-shared", "-fPIC", str(source), "-o", str(path)], check=True)
    subprocess.run([sys.executable, "-c", STALE, *map(str, stale)], check=True)


NOTHING = """
import sys
import torch
from longform.functional.attention import compiled as attention
from longform.functional.attention.formula import AttentionCall
from longform.functional.native import library
from longform.functional.native.jobs import LinearJob

def zeros(*shape, dtype=torch.bfloat16):
    return torch.zeros(shape, dtype=dtype, requires_grad=True)


for units in sys.argv[1:]:
    library.best_units = lambda: units
    library.run(LinearJob(rows=0, inputs=64, outputs=32))
    for batch, queries in ((2, 0), (0, 20)):
        given = [zeros(batch, 3, n, 32) for n in (queries, 7, 7)]
        assert attention.infer(AttentionCall(*(x.detach() for x in given))).shape == (batch, 3, queries, 32)
        out = attention.train(AttentionCall(*given))
        assert not any(x.any() for x in torch.autograd.grad(out.sum(), given))
"""


def test_no_rows_are_no_division_by_zero_and_zero_gradients() -> None:
    subprocess.run([sys.executable, "-c", NOTHING, *UNITS], check=True)  # SIGFPE ends the process


@pytest.mark.parametrize(
    "bad",
    [
        lambda: pointer(torch.zeros(3, dtype=torch.bfloat16), torch.float32, 3),
        lambda: pointer(torch.zeros(3), torch.float32, 4),
        lambda: pointer(torch.zeros(3, 2).t(), torch.float32, 2, 3),
        lambda: pointer(torch.zeros(3, device="meta"), torch.float32, 3),
        lambda: strided(torch.zeros(3, 2), torch.bfloat16, 3, 2),
        lambda: strided(torch.zeros(3, 2), torch.float32, 2, 3),
        lambda: strided(torch.zeros(2, 3).t(), torch.float32, 3, 2),
        lambda: heads_of(torch.zeros(1, 2, 3, 4, dtype=torch.bfloat16), 1, 2, 3, 5),
        lambda: heads_of(torch.zeros(1, 2, 4, 3, dtype=torch.bfloat16).mT, 1, 2, 3, 4),
    ],
)
def test_a_pointer_is_given_for_what_the_kernel_will_read_and_nothing_else(bad) -> None:
    with pytest.raises(AssertionError):
        bad()


def test_none_is_no_pointer() -> None:
    assert pointer(None, torch.float32, 3) is None
