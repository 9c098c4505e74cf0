"""Tables of kernels: the first that serves is taken, one may be forced, and it can be said why not the others."""

import pytest
import torch

from longform.errors import ConfigurationError
from longform.functional import dispatch
from longform.functional.conditions import Call
from longform.functional.dispatch import Condition, Kernel, choose, listening, run, use

EVEN = Condition("an even number", lambda call: call.number % 2 == 0)
SMALL = Condition("a number below 10", lambda call: call.number < 10, for_speed=True)


class Number(Call):
    def __init__(self, number: int) -> None:
        self.number = number

    def kind(self):
        return (self.number,)


@pytest.fixture(autouse=True)
def _table(monkeypatch):
    kernels = (
        Kernel("small", lambda call: ("small", call.number), (EVEN, SMALL)),
        Kernel("declines", lambda call: NotImplemented if call.number == 3 else ("declines", call.number), (SMALL,)),
        Kernel("even", lambda call: ("even", call.number), (EVEN,)),
        Kernel("any", lambda call: ("any", call.number)),
    )
    monkeypatch.setitem(dispatch.OPERATIONS, "number", kernels)
    dispatch.ask_again()


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
    assert dict(choice.unmet) == {"small": EVEN.name, "declines": SMALL.name, "even": EVEN.name}
    run("number", Number(13))
    assert len(heard) == 1


def test_the_last_kernel_of_every_table_needs_nothing():
    assert {"attention", "window", "document"} <= set(dispatch.OPERATIONS)
    for kernels in dispatch.OPERATIONS.values():
        assert kernels[-1].needs == ()
        assert len({kernel.name for kernel in kernels}) == len(kernels)


def test_facts_about_a_call_are_found_out_once(monkeypatch):
    asked = []
    monkeypatch.setattr("longform.functional.conditions.has_values", lambda: asked.append(1) or True)
    call = Number(1)
    assert call.eager
    assert call.eager
    assert asked == [1]
    call.tensors = (torch.ones(1, requires_grad=True),)
    assert call.wants_gradient
    with torch.no_grad():
        assert call.wants_gradient
