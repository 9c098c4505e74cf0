"""A command started while another process writes the same output: one of them writes it, the other is told who does."""

import random
import time
from pathlib import Path

import pytest
from campaign.commands import BUT_DEMO, trials_of
from campaign.contents import differences
from campaign.counting import FULL, Tally
from campaign.processes import Ended
from campaign.trials import Trials, complaint

SHARED = ("compare", "reproduce figure3")  # of these several processes may share the work out
NAMES = BUT_DEMO if FULL else ["embed", "finetune"]


def objections(name: str, both: list[Ended]) -> list[str]:
    """What is wrong with how the two ended."""
    losers = [ended for ended in both if ended.status != 0]
    if len(losers) > 1:
        return [f"both failed: {[ended.error for ended in both]}"]
    told = ("written by another process", "is not empty" if name == "convert" else "is finished already")
    wrong = [ended for ended in losers if complaint(ended) or not any(part in ended.error for part in told)]
    return [f"the loser is not told that another writes: {ended.said[-1000:]}" for ended in wrong]


@pytest.mark.parametrize("name", NAMES)
def test_of_two_at_once_one_writes_and_the_other_is_told(name: str, given: Path, tmp_path: Path, tally: Tally) -> None:
    trials, draw, lost = Trials(name, given, tmp_path), random.Random(name), []
    whole, losers = trials.unbroken(), 0
    for number in range(trials_of(name)):
        place = trials.place()
        first = trials.start(place)
        time.sleep(draw.random() * whole.seconds / 2 if number else 0)
        second = trials.start(place)
        both = [first.end(), second.end()]
        tally.kills += sum(ended.status != 0 for ended in both)
        losers += sum(ended.status != 0 for ended in both)
        lost += objections(name, both) + differences(whole.written, trials.written(place))
        tally.compared += 1
    assert not lost, "\n".join(lost)
    assert losers or name in SHARED, "they never met"
