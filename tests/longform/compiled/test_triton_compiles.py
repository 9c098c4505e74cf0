"""Triton programs compiled for GPUs that are not there; Triton has its own assembler."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "triton_target.py"
SMALLEST = 99 * 1024  # bytes of shared memory a program may have on consumers' GPUs; an A100 has 163 KiB, an H100 227
A100, H100, RTX = 80, 90, 89


def programs(capability: int, cases: list[str], folder: Path) -> list[dict]:
    without = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment = without | {"TRITON_CACHE_DIR": str(folder), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-W", "error", str(SCRIPT), str(capability), *cases]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_usual_heads_on_an_h100(tmp_path):
    made = programs(H100, ["64,bfloat16,128,1,0"], tmp_path)
    names = ["forward", "backward_queries", *["backward_keys"] * 2, "normalise", *["pool"] * 2]
    assert [program["name"] for program in made] == names
    assert all(program["shared"] <= SMALLEST and program["spilled"] <= 16 for program in made)


@pytest.mark.nightly
@pytest.mark.parametrize("capability", [A100, RTX, H100])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("dim", [16, 32, 64, 96, 128, 256])
def test_all_heads(dim, dtype, capability, tmp_path):
    made = programs(capability, [f"{dim},{dtype},128,1,0", f"{dim},{dtype},100,0,0"], tmp_path)
    assert all(program["shared"] <= SMALLEST for program in made)
    assert all(program["spilled"] <= (2048 if dtype == "float32" else 128) for program in made), made


def test_selection(tmp_path):
    """With tiles as wide as a block; one program more, for the tokens of selected slots."""
    made = programs(H100, ["64,bfloat16,64,1,0,8"], tmp_path)
    assert [program["name"] for program in made][:5] == ["forward", "backward_queries", *["backward_keys"] * 3]
    assert all(program["shared"] <= SMALLEST and program["spilled"] <= 16 for program in made)


@pytest.mark.nightly
@pytest.mark.parametrize("capability", [A100, RTX, H100])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("dim", [16, 64, 128, 256])
def test_selection_of_all_heads(dim, dtype, capability, tmp_path):
    made = programs(capability, [f"{dim},{dtype},32,1,0,8", f"{dim},{dtype},100,0,1,8"], tmp_path)
    assert all(program["shared"] <= 227 * 1024 for program in made)


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_bias_by_distance(dtype, tmp_path):
    assert all(program["shared"] <= 227 * 1024 for program in programs(H100, [f"64,{dtype},128,1,1"], tmp_path))
