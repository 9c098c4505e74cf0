"""Tables of kernels: the first that serves is taken, one may be forced, and it can be said why not the others."""

from typing import NamedTuple

import pytest
import torch

from longform.errors import ConfigurationError
from longform.functional import dispatch
from longform.functional.dispatch import Kernel, choose, listening, run, use

EVEN, SMALL = "an even number", "a number below 10"


class Number(NamedTuple):
    number: int


def lacks_even(call: Number, _: bool) -> str | None:
    return EVEN if call.number % 2 else None


def lacks_small(call: Number, forced: bool) -> str | None:
    return SMALL if call.number >= 10 and not forced else None


def lacks_small_even(call: Number, forced: bool) -> str | None:
    return lacks_even(call, forced) or lacks_small(call, forced)


@pytest.fixture(autouse=True)
def _table(monkeypatch):
    kernels = (
        Kernel("small", lambda call: ("small", call.number), lacks_small_even),
        Kernel("declines", lambda call: NotImplemented if call.number == 3 else ("declines", call.number), lacks_small),
        Kernel("even", lambda call: ("even", call.number), lacks_even),
        Kernel("any", lambda call: ("any", call.number)),
    )
    monkeypatch.setitem(dispatch.OPERATIONS, "number", kernels)


@pytest.mark.parametrize(("number", "taken"), [(4, "small"), (12, "even"), (13, "any"), (5, "declines"), (3, "any")])
def test_the_first_kernel_whose_needs_hold_and_that_does_not_decline(number, taken):
    assert run("number", Number(number)) == (taken, number)


def test_a_forced_kernel_serves_where_it_can_and_needs_for_speed_do_not_count():
    with use(number="small"):
        assert run("number", Number(12)) == ("small", 12)
        assert choose("number", Number(12)).name == "small"
        with use(number="any"):
            assert run("number", Number(4)) == ("any", 4)
        with pytest.raises(ConfigurationError, match=r"number='small'.* lacks: an even number.*another of 'small'"):
            run("number", Number(13))
    assert run("number", Number(13)) == ("any", 13)


def test_what_does_not_exist_is_named():
    with (
        pytest.raises(ConfigurationError, match=r"no kernel 'odd' for 'number'; there are 'small', 'declines'"),
        use(number="odd"),
    ):
        pass
    with (
        pytest.raises(ConfigurationError, match=r"no operation 'numbers'; there are .*'attention'"),
        use(numbers="any"),
    ):
        pass


def test_an_error_inside_ends_the_force():
    with pytest.raises(ZeroDivisionError), use(number="any"):
        raise ZeroDivisionError
    assert run("number", Number(4)) == ("small", 4)


def test_who_listens_hears_the_choice_and_the_first_unmet_need_of_the_others():
    with listening() as heard:
        run("number", Number(13))
    [choice] = heard
    assert (choice.operation, choice.kernel) == ("number", "any")
    assert dict(choice.unmet) == {"small": EVEN, "declines": SMALL, "even": EVEN}
    run("number", Number(13))
    assert len(heard) == 1


def test_the_last_kernel_of_every_table_needs_nothing():
    assert {"attention", "window", "document"} <= set(dispatch.OPERATIONS)
    for kernels in dispatch.OPERATIONS.values():
        assert kernels[-1].lacks is None
        assert kernels[-1].dtype is None
        assert len({kernel.name for kernel in kernels}) == len(kernels)


def test_a_kernel_of_another_dtype_is_not_asked(monkeypatch):
    class Call(NamedTuple):
        query: torch.Tensor

    half = Kernel("half", lambda call: "half", lambda call, forced: pytest.fail("asked"), torch.bfloat16)
    monkeypatch.setitem(dispatch.OPERATIONS, "number", (half, Kernel("any", lambda call: "any")))
    with listening() as heard:
        assert run("number", Call(torch.ones(1))) == "any"
    assert heard[0].unmet == (("half", "bfloat16 tensors"),)


def test_a_forced_kernel_that_declines_leaves_the_call_to_the_others():
    with use(number="declines"):
        assert run("number", Number(3)) == ("any", 3)
