"""Commands on a disk that becomes full somewhere: one line says so, and with room made they go on to the same output.

The disk is a small file system in memory where this process may mount one, else a limit for the size of a file.
"""

import os
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from campaign.commands import QUICK, trials_of
from campaign.counting import FULL, Tally
from campaign.trials import Trials, complaint

ROOM = 1.3  # of what an unbroken run leaves: while it works it needs more
PAGE = os.sysconf("SC_PAGE_SIZE")
NAMES = [*QUICK, "reproduce figure1", "benchmark"] if FULL else ["finetune"]


@contextmanager
def small_disk(place: Path, size: int) -> Iterator[dict[str, Any]]:
    """``place`` on a disk of ``size`` bytes; yields what bounds a command instead, where that is not possible."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        yield {"file_bytes": size // 2}
        return
    try:
        yield {}
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def make_room(place: Path) -> None:
    """More of the disk, where ``small_disk`` mounted one."""
    if place.is_mount():
        subprocess.run(["mount", "-o", "remount,size=1g", str(place)], check=True)


@pytest.mark.parametrize("name", NAMES)
def test_a_full_disk_is_said_in_one_line_and_costs_nothing(
    name: str, given: Path, tmp_path: Path, tally: Tally
) -> None:
    trials, draw, lost = Trials(name, given, tmp_path), random.Random(name), []
    whole, count = trials.unbroken(), trials_of(name)
    for number in range(count):
        place = trials.place()
        size = PAGE + int(ROOM * whole.bytes * (number + draw.random()) / count)
        with small_disk(place, size) as bounds:
            ended = trials.start(place, **bounds).end()
            if ended.status != 0:
                tally.kills += 1
                lost += [f"{size} bytes: {what}" for what in [complaint(ended)] if what]
            make_room(place)
            lost += trials.finish(place, whole, f"a disk of {size} bytes")
            tally.compared += 1
    assert not lost, "\n".join(lost)
