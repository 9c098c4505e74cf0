"""The units that a machine is taken to have, and one answer to "does it multiply bfloat16", for all who ask."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from longform import units
from longform.errors import ConfigurationError
from longform.functional.conditions import native_bfloat16
from longform.functional.linear import onednn
from longform.functional.native import library
from longform_lab.speed import precision
from longform_text.training.run import training_arguments
from longform_text.training.settings import TrainingSettings

CPU = torch.device("cpu")
CAPS = list(units.CAPS)
FLAGS = ("_is_avx2_supported", "_is_avx512_supported", "_is_avx512_bf16_supported", "_is_amx_tile_supported")
BEST_UNITS, DTYPES = library.best_units.__wrapped__, onednn.supported_dtypes.__wrapped__


@pytest.fixture(autouse=True)
def _no_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(units.VARIABLE, raising=False)


@pytest.fixture
def greatest(monkeypatch):
    """A machine that has every unit."""
    for flag in FLAGS:
        monkeypatch.setattr(torch.cpu, flag, lambda: True)
    found = {"architecture": "x86_64", "avx512_bf16": True, "amx_bf16": True}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found, raising=False)
    monkeypatch.setattr(library, "native_library", lambda: SimpleNamespace(longform_grants_amx=lambda: True))
    return monkeypatch


@pytest.mark.parametrize("cap", ["", *CAPS])
def test_the_greatest_machine_plays_each_lesser_one(greatest, cap):
    greatest.setenv(units.VARIABLE, cap)
    last = CAPS.index(cap or "amx")
    assert [unit for unit in CAPS if units.has(unit)] == CAPS[: last + 1]
    assert BEST_UNITS() == (None, None, None, "avx512", "amx")[last]
    assert native_bfloat16(CPU) is (last >= CAPS.index("avx512_bf16"))
    assert torch.bfloat16 not in DTYPES() or last >= CAPS.index("avx512")


@pytest.mark.parametrize("flag", FLAGS)
def test_a_cap_gives_no_unit_that_the_machine_lacks(greatest, flag):
    greatest.setattr(torch.cpu, flag, lambda: False)
    greatest.setenv(units.VARIABLE, "amx")
    assert [unit for unit in CAPS if not units.has(unit)] == [CAPS[1 + FLAGS.index(flag)]]


def test_another_cap_is_refused(monkeypatch):
    monkeypatch.setenv(units.VARIABLE, "avx3")
    for ask in (units.cap_torch, lambda: units.has("avx2"), lambda: native_bfloat16(CPU)):
        with pytest.raises(ConfigurationError, match="LONGFORM_UNITS is 'avx3'; it takes portable, avx2, avx512, avx"):
            ask()


ASKED = """
import torch
import longform
from longform.functional.linear import onednn
from longform.functional.native import library
assert torch.backends.cpu.get_cpu_capability() in ("DEFAULT", "NO AVX")
assert onednn.supported_dtypes() == (torch.float32,) and library.best_units() is None
assert not torch.ops.mkldnn._is_mkldnn_bf16_supported()
"""


def test_torch_is_held_to_the_cap_too():
    """Also where it is imported first: it looks when it computes."""
    subprocess.run([sys.executable, "-c", ASKED], env={**os.environ, units.VARIABLE: "portable"}, check=True)


@pytest.mark.parametrize(
    ("found", "native"),
    [
        ({"architecture": "x86_64", "avx512_bf16": True, "amx_bf16": False}, True),
        ({"architecture": "x86_64", "avx512_bf16": False, "amx_bf16": True}, True),
        ({"architecture": "x86_64", "avx512_bf16": False, "amx_bf16": False, "avx2": True}, False),
        ({"architecture": "aarch64", "bf16": True}, True),
        ({"architecture": "aarch64", "neon": True, "bf16": False}, False),
    ],
)
def test_the_flags_of_a_cpu(monkeypatch, found, native):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found, raising=False)
    assert native_bfloat16(CPU) is native


@pytest.mark.parametrize("amx", [False, True])
@pytest.mark.parametrize("avx512", [False, True])
def test_the_flags_that_an_older_torch_has(monkeypatch, amx, avx512):
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512)
    assert native_bfloat16(CPU) is (amx or avx512)


def test_gpus_count_without_emulation(monkeypatch):
    for native in (False, True):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation, native=native: native)
        assert native_bfloat16(torch.device("cuda")) is native
    assert not native_bfloat16(torch.device("meta"))


def test_training_and_benchmark_ask_the_same_function():
    assert training_arguments(TrainingSettings(use_cpu=True), None).bf16 == native_bfloat16(CPU)
    assert precision.native_bfloat16 is native_bfloat16
