import os
import subprocess
import sys

import pytest

from longform.errors import is_out_of_memory
from longform_lab.speed import measuring
from longform_lab.speed.measuring import alternate, fitting_repeats, paired_ratio, spread
from longform_lab.speed.memory import ALLOCATOR, limit_memory


def unexpected(name: str, error: Exception) -> None:
    raise error


def test_competitors_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "TURN", 0.0)
    ran: list[str] = []
    actions = {name: (lambda name=name: ran.append(name)) for name in "abc"}
    told: list[str] = []
    seconds = alternate(actions, {"a": 3, "b": 3, "c": 1}, 60.0, told.append, unexpected)
    assert "".join(ran) == "aabbcc" + "abc" + "ab" + "ab"
    assert "".join(told) == "abc" * 4
    assert {name: len(values) for name, values in seconds.items()} == {"a": 3, "b": 3, "c": 1}


def test_short_passes_are_repeated_within_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(100))
    monkeypatch.setattr(measuring.time, "perf_counter", lambda: next(clock) / 1_000)
    ran: list[int] = []
    seconds = alternate({"a": lambda: ran.append(1)}, {"a": 2}, 60.0, str, unexpected)
    assert len(ran) == 2 + 2 * measuring.MOST_PASSES  # 1 ms a pass: a turn of 0.1 s would take 100
    assert seconds["a"] == [pytest.approx(1e-3 / measuring.MOST_PASSES)] * 2


def test_a_competitor_stops_when_its_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody could predict takes one round, and others go on."""
    clock = [0.0]
    monkeypatch.setattr(measuring.time, "perf_counter", lambda: clock[0])

    def takes(seconds: float) -> None:
        clock[0] += seconds

    actions = {name: (lambda seconds=seconds: takes(seconds)) for name, seconds in (("a", 300.0), ("b", 1.0))}
    seconds = alternate(actions, {"a": 5, "b": 5}, 4.0, str, unexpected)
    assert {name: len(values) for name, values in seconds.items()} == {"a": 1, "b": 4}


def test_one_that_fails_takes_no_further_part() -> None:
    def fails(after: int) -> None:
        ran.append(after)
        if ran.count(after) > after:
            raise RuntimeError(str(after))

    ran: list[int] = []
    lost: list[str] = []
    actions = {"a": lambda: fails(0), "b": lambda: fails(1_000_000), "c": lambda: fails(3)}
    seconds = alternate(
        actions, dict.fromkeys(actions, 3), 60.0, str, lambda name, error: lost.append(f"{name}: {error}")
    )
    assert lost == ["a: 0", "c: 3"]
    assert {name: len(values) for name, values in seconds.items()} == {"b": 3}
    assert alternate({}, {}, 60.0, str, unexpected) == {}


@pytest.mark.parametrize(
    ("seconds", "limit", "expected"), [(0.001, 10, 5), (2.0, 10, 3), (4.0, 10, 1), (5.1, 10, 0), (0.0, 10, 5)]
)
def test_rounds_fit_into_the_limit(seconds: float, limit: float, expected: int) -> None:
    assert fitting_repeats(seconds, 5, limit) == expected


def test_spread_is_the_distance_of_quartiles_over_the_median() -> None:
    assert spread([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(2 / 3)
    assert spread([1.0, 9.0]) is None
    assert spread([1.0, 1.0, 1.0]) == 0.0


def test_ratios_are_taken_round_by_round() -> None:
    """A round in which everything is ten times slower changes no ratio."""
    assert paired_ratio([2.0, 20.0, 2.0], [1.0, 10.0, 1.0]) == 2.0
    assert paired_ratio([1.0, 2.0], [1.0]) == 1.0
    assert paired_ratio([], [1.0]) is None


@pytest.mark.nightly  # a process that imports everything anew
def test_memory_that_is_freed_again_counts() -> None:
    """In a process of its own: what earlier tests have freed may be resident still, and is taken again for nothing."""
    program = (
        "from longform_lab.speed.memory import peak_growth\n"
        "print(peak_growth(lambda: bytearray(b'x' * 2**20) * 32, 'cpu'))"
    )
    environment = os.environ | ALLOCATOR
    said = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    size = 32 * 2**20
    assert said.stdout == "None\n" or 0.9 * size < int(said.stdout) < 1.5 * size


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory: you"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_which_errors_mean_that_memory_has_run_out(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) == expected


def test_a_limit_stays_below_that_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: given.append(limits))
    for most in (resource.RLIM_INFINITY, 500):
        monkeypatch.setattr(resource, "getrlimit", lambda which, most=most: (most, most))
        limit_memory(1_000)
    assert given == [(1_000, resource.RLIM_INFINITY), (500, 500)]
