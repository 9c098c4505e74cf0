"""One answer to "does this machine multiply bfloat16", for inference, training and the benchmark."""

import pytest
import torch

from longform.functional.conditions import has_amx, native_bfloat16
from longform_lab.speed import precision
from longform_text.training.run import training_arguments
from longform_text.training.settings import TrainingSettings

CPU = torch.device("cpu")


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


@pytest.mark.parametrize("amx", [False, True])
def test_the_unit_for_products(monkeypatch, amx):
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    assert has_amx.__wrapped__() is amx


def test_gpus_count_without_emulation(monkeypatch):
    for native in (False, True):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation, native=native: native)
        assert native_bfloat16(torch.device("cuda")) is native
    assert not native_bfloat16(torch.device("meta"))


def test_training_and_benchmark_ask_the_same_function():
    assert training_arguments(TrainingSettings(use_cpu=True), None).bf16 == native_bfloat16(CPU)
    assert precision.native_bfloat16 is native_bfloat16
