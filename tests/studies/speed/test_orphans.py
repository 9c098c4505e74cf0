"""A killed benchmark leaves no process behind that would slow whatever is measured next."""

import os
import subprocess
import sys
import time

import pytest

CHILD = """
import sys, time
from longform_lab.speed.worker import end_with_parent
end_with_parent(int(sys.argv[1]), seconds=0.05)
print("ready", flush=True)
time.sleep(300)
"""
PARENT = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], str(os.getpid())], stdout=subprocess.PIPE, text=True)
print(child.stdout.readline().strip(), child.pid, flush=True)
time.sleep(300)
"""


def is_alive(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(number)], capture_output=True, text=True).stdout
    return bool(state.strip()) and not state.startswith("Z")


@pytest.mark.nightly
def test_a_child_ends_with_a_killed_parent() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, CHILD], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        said, number = parent.stdout.readline().split()
    assert said == "ready"
    assert is_alive(int(number))
    parent.kill()
    parent.wait()
    last = time.monotonic() + 60
    while is_alive(int(number)) and time.monotonic() < last:
        time.sleep(0.05)
    assert not is_alive(int(number))
