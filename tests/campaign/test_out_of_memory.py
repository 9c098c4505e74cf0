"""Commands that may have little memory: one line says so, and with more they go on to the same output.

Where oneDNN, the tokenizers' Rust or the C library gets no memory, it ends the process, and where a new thread gets
none, Python waits for it forever and is killed here; nothing in Longform can prevent that. What is on the disk is as
whole as after a kill.
"""

import random
import signal
from pathlib import Path

import pytest
from campaign.commands import QUICK, trials_of
from campaign.counting import FULL, Tally
from campaign.trials import Trials, complaint

MOST = 256 * 2**20  # bytes of address space beyond what is loaded; these commands need less
WAITING = 20.0  # seconds after which it is taken to wait forever
CRASHES = (127, *(-kind for kind in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGKILL)))
PICTURES = {"out/learning_curve.png"}
NAMES = list(QUICK) if FULL else ["embed", "finetune"]


@pytest.mark.parametrize("name", NAMES)
def test_a_lack_of_memory_is_said_in_one_line_and_costs_nothing(
    name: str, given: Path, tmp_path: Path, tally: Tally
) -> None:
    trials, draw, lost = Trials(name, given, tmp_path), random.Random(name), []
    whole = trials.unbroken()
    for _ in range(trials_of(name)):
        place = trials.place()
        size = int(MOST * draw.random() ** 3)  # most of them small
        ended = trials.start(place, memory_bytes=size).kill(WAITING + 5 * whole.seconds)
        if ended.status != 0:
            tally.kills += 1
            lost += [f"{size} bytes: {what}" for what in [complaint(ended, crashes=CRASHES)] if what]
            lost += trials.finish(place, whole, f"{size} bytes of memory", rounded=True)
        else:  # products are summed in another order, and what cannot be drawn is warned of
            missing = whole.written.keys() - trials.written(place).keys() - PICTURES
            lost += [f"{size} bytes of memory: {name} is missing" for name in sorted(missing)]
        tally.compared += 1
    assert not lost, "\n".join(lost)
