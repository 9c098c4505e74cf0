"""Commands killed with SIGKILL and started again: the output is that of an unbroken run, and nothing is left over.

Moments are spread over the seconds of an unbroken run, and over the changes that it makes to files (just before each).
What may differ is listed in ``contents.py``: times, dates, measured memory, and pages and pictures that show them.
"""

import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from campaign.commands import BUT_DEMO, LINES, QUICK, command_line, trials_of
from campaign.contents import differences
from campaign.counting import FULL, Tally, scaled
from campaign.processes import Ended, Running, run_truly
from campaign.trials import Trials

from longform.files import recover

AGAIN = 0.3  # of the trials are killed once more when they are started again
# Of the quick commands, make test kills a third at random moments, and another third before changes of files.
AT_MOMENTS, AT_CHANGES = (list(LINES), BUT_DEMO) if FULL else (list(QUICK)[::3], list(QUICK)[1::3])


@pytest.fixture
def trials(request: pytest.FixtureRequest, given: Path, tmp_path: Path) -> Trials:
    return Trials(request.param, given, tmp_path)


def killed(trials: Trials, ended: Ended) -> bool:
    """Whether it was; else it was faster, or found all done."""
    assert ended.status == -signal.SIGKILL or trials.done(ended), ended.said
    return ended.status == -signal.SIGKILL


def spread(count: int, end: float, draw: random.Random) -> Iterator[list[float]]:
    """``count`` trials: the moments at which each is killed, the first somewhere in its own part of 0 to ``end``."""
    for number in range(count):
        moments = [end * (number + draw.random()) / count]
        while draw.random() < AGAIN:
            moments.append(end * draw.random())
        yield moments


@pytest.mark.parametrize("trials", AT_MOMENTS, indirect=True)
def test_killed_at_random_moments_it_goes_on_to_the_same_output(trials: Trials, tally: Tally) -> None:
    whole, lost = trials.unbroken(), []
    for moments in spread(trials_of(trials.name), whole.seconds, random.Random(trials.name)):
        place = trials.place()
        tally.kills += sum(killed(trials, trials.start(place).kill(after)) for after in moments)
        lost += trials.finish(place, whole, f"killed after {moments} s")
        tally.compared += 1
    assert not lost, "\n".join(lost)
    assert trials.orphans() == []


@pytest.mark.parametrize("trials", AT_CHANGES, indirect=True)
def test_killed_before_a_change_of_a_file_it_goes_on_to_the_same_output(trials: Trials, tally: Tally) -> None:
    whole, lost = trials.unbroken(), []
    count = min(len(whole.changes), trials_of(trials.name))
    for moments in spread(count, len(whole.changes), random.Random(trials.name)):
        place, changes = trials.place(), list(map(int, moments))
        tally.kills += sum(killed(trials, trials.start(place, change=1 + change).end()) for change in changes)
        lost += trials.finish(place, whole, f"killed before {[(change, whole.changes[change]) for change in changes]}")
        tally.compared += 1
    assert not lost, "\n".join(lost)
    assert trials.orphans() == []


@pytest.mark.parametrize(("name", "older", "newer"), [
    ("embed", "--max-length 8", "--restart"), ("convert", "--attention-window 32", "--restart"),
    *([(name, "--max-length 8", "--restart") for name in ("embed to parquet", "predict")] if FULL else []),
])  # fmt: skip
def test_an_older_output_is_there_until_the_new_one_is(
    name: str, older: str, newer: str, given: Path, tmp_path: Path, tally: Tally
) -> None:
    trials = Trials(name, given, tmp_path, newer.split())
    whole, lost = trials.unbroken(), []
    before = trials.place()
    assert Running([*command_line(name, given, before), *older.split()], tmp_path / "older.log").end().status == 0
    draw = random.Random(name)
    for change in draw.sample(range(len(whole.changes)), min(len(whole.changes), scaled(2, 10))):
        place = trials.place()
        assert Running([*command_line(name, given, place), *older.split()], tmp_path / "older.log").end().status == 0
        tally.kills += killed(trials, trials.start(place, change=1 + change).end())
        for output in {at.split("/")[0] for at in whole.written}:
            recover(place / output)  # as the next command does: a folder is moved aside for a moment
        there = {at: value for at, value in trials.written(place).items() if at in whole.written}
        if differences(trials.written(before), there) and differences(whole.written, there):
            lost.append(f"killed before {whole.changes[change]}: neither the older output is there nor the new one")
        lost += trials.finish(place, whole, f"killed before {whole.changes[change]}")
        tally.compared += 2
    assert not lost, "\n".join(lost)


@pytest.mark.nightly  # its processes import everything anew
@pytest.mark.parametrize("name", ["embed", "finetune"] if FULL else ["embed"])
def test_a_true_start_that_is_killed_goes_on(name: str, given: Path, tmp_path: Path, tally: Tally) -> None:
    trials, draw, lost = Trials(name, given, tmp_path), random.Random(name), []
    whole = trials.unbroken()
    seconds = run_truly(command_line(name, given, trials.place()), tmp_path / "unbroken.log").seconds
    for _ in range(scaled(1, 2)):
        place = trials.place()
        line = command_line(name, given, place)
        tally.kills += killed(
            trials, run_truly(line, tmp_path / "killed.log", kill_after=seconds * draw.uniform(0.5, 1))
        )
        assert trials.done(run_truly(line, tmp_path / "again.log"))
        lost += trials.lost(place, whole)
        tally.compared += 1
    assert not lost, "\n".join(lost)
