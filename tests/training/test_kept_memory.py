"""What a process holds of memory that was freed, in processes of their own: allocation is set for all of one."""

import json
import os
import subprocess
import sys

import pytest
import torch

from longform.training import kept_memory as module

SCRIPT = """
import json, resource, sys, threading
import torch
from longform.training.kept_memory import kept_memory

SIZE = 2**28
PAGE = resource.getpagesize()

def held():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE / SIZE

def use():
    torch.ones(SIZE, dtype=torch.uint8)

use()
found = {"before": held()}
with kept_memory(torch.device(sys.argv[1])):
    use()
    found["inside"] = held()
    use()
    found["again"] = held()
    worker = threading.Thread(target=use)
    worker.start()
    worker.join()
found["after"] = held()
use()
found["later"] = held()
print(json.dumps(found))
"""


def _found(device: str = "cpu", **variables: str) -> dict[str, float]:
    """Held memory at each point, less what was held before, in tensors."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, device], env={**kept, **variables}, capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    return {name: value - found["before"] for name, value in found.items()}


needs_glibc = pytest.mark.skipif(module._glibc() is None, reason="another system's allocation")


@needs_glibc
def test_memory_is_kept_inside_and_given_back_at_the_end():
    found = _found()
    assert found["inside"] > 0.9
    assert found["again"] < found["inside"] + 0.1  # the same memory, not more of it
    assert found["after"] < 0.1
    assert found["later"] < 0.1


@needs_glibc
@pytest.mark.parametrize(("device", "variables"), [("meta", {}), ("cpu", {"MALLOC_ARENA_MAX": "2"})])
def test_other_devices_and_what_the_user_set_are_left_alone(device, variables):
    found = _found(device, **variables)
    assert max(found.values()) < 0.1


def test_without_glibc_nothing_happens(monkeypatch):
    monkeypatch.setattr(module, "_glibc", lambda: None)
    with module.kept_memory(torch.device("cpu")):
        assert torch.ones(3).sum() == 3
