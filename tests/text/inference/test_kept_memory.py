"""What a process holds of memory that was freed, in processes of their own: allocation is set for all of one."""

import json
import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import psutil
import pytest
import torch

from longform_text.inference import kept_memory
from longform_text.inference.kept_memory import _glibc

SCRIPT = """
import json, resource, sys, threading
import torch
from longform_text.inference import kept_memory as module

SIZE = 2**26
PAGE = resource.getpagesize()

def held():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE / SIZE

def use(times=1):
    torch.ones(times * SIZE, dtype=torch.uint8)

if sys.argv[2] == "absent":
    module._glibc = lambda: None
use()
found = {"before": held()}
with module.kept_memory(torch.device(sys.argv[1])):
    use()
    found["inside"] = held()
    for _ in range(15):
        use()
    found["again"] = held()
    worker = threading.Thread(target=use)
    worker.start()
    worker.join()
found["after"] = held()
use(16)
found["later"] = held()
print(json.dumps(found))
"""


def _found(device: str = "cpu", library: str = "present", **variables: str) -> dict[str, float]:
    """Held memory at each point, less what was held before, in tensors."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, device, library],
        env={**kept, **variables}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = json.loads(done.stdout)
    return {name: value - found["before"] for name, value in found.items()}


@pytest.mark.nightly  # a process that imports torch
def test_memory_is_kept_inside_and_given_back_at_the_end():
    found = _found()
    assert (found["inside"] > 0.9) == (_glibc() is not None)
    assert found["again"] < 12  # after 16 tensors: mostly the same memory, though small objects lie in between
    assert found["after"] < 0.2
    assert found["later"] < 0.2  # mapped by itself, as before: larger than all that could be free in pieces


@pytest.mark.nightly
@pytest.mark.parametrize("case", [{"device": "meta"}, {"library": "absent"}, {"MALLOC_ARENA_MAX": "2"}])
def test_other_devices_other_systems_and_what_the_user_set_are_left_alone(case):
    found = _found(**case)
    assert max(found.values()) < 0.2


def test_the_last_one_out_gives_the_memory_back(monkeypatch):
    set_to = []
    monkeypatch.setattr(kept_memory, "_set", lambda library, values: set_to.append(values))
    monkeypatch.setattr(kept_memory, "_glibc", lambda: SimpleNamespace(malloc_trim=lambda kept: set_to.append("trim")))
    for name in [name for name in os.environ if name.startswith(("MALLOC_", "GLIBC_"))]:
        monkeypatch.delenv(name)
    entered, leave = threading.Event(), threading.Event()

    def other_training():
        with kept_memory.kept_memory(torch.device("cpu")):
            entered.set()
            leave.wait(60)

    thread = threading.Thread(target=other_training)
    with kept_memory.kept_memory(torch.device("cpu")):
        with pytest.raises(KeyError), kept_memory.kept_memory(torch.device("cpu")):
            raise KeyError
        thread.start()
        assert entered.wait(60)
        assert set_to == [kept_memory.KEPT]
    assert set_to == [kept_memory.KEPT]  # the thread is inside still
    leave.set()
    thread.join()
    assert set_to == [kept_memory.KEPT, kept_memory.USUAL, "trim"]


@pytest.mark.skipif(_glibc() is None, reason="there is no glibc")
def test_free_memory_between_pieces_in_use_is_given_back() -> None:
    pieces = [b"x" * 100_000 for _ in range(2000)]  # each below what glibc maps by itself
    last = pieces[-1]
    held = psutil.Process().memory_info().rss
    del pieces
    kept_memory.give_back()
    assert held - psutil.Process().memory_info().rss > 100e6
    assert last
