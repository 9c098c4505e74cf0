"""What layers share of a mask: made once within a pass, and never taken over into another."""

import pytest
import torch
from model_kinds import KINDS, LONGEST, model, text
from torch.fx.experimental.proxy_tensor import make_fx

from longform.functional.execution import cached_in_forward, one_pass
from longform.functional.slots import make_runs
from longform.functional.window import formula
from longform.layers import sequence_projection
from tolerances import assert_close

WHERE = {"batch": 2, "length": 6, "device": torch.device("cpu"), "sizes": (1, 2), "slots": 4}


def slots_of(mask, **options):
    return cached_in_forward(make_runs, mask, **(WHERE | options))


def test_outside_of_a_pass_all_is_made_anew():
    assert slots_of(None) is not slots_of(None)


def test_in_a_pass_the_same_mask_has_the_same_slots():
    mask = torch.ones(2, 6, dtype=torch.bool)
    with one_pass():
        first = slots_of(mask)
        assert slots_of(mask) is first
        assert slots_of(mask.clone()) is not first
        assert slots_of(mask, slots=3) is not first
        with one_pass():  # a model within a model
            assert slots_of(mask) is not first
        assert slots_of(mask) is first
    with one_pass():
        assert slots_of(mask) is not first


def test_masks_that_come_and_go_are_not_taken_for_each_other():
    with one_pass():
        for tokens in range(1, 7):
            mask = torch.arange(6).expand(2, 6) < tokens  # where the last one may have stood
            assert slots_of(mask).count.sum() == 2 * tokens


def test_an_error_ends_the_pass():
    with pytest.raises(ZeroDivisionError), one_pass():
        cached_in_forward(lambda: 1 / 0)
    assert slots_of(None) is not slots_of(None)


def counted(monkeypatch, module, name):
    """A list that gets the options of each call of ``module.name`` from now on."""
    asked, plain = [], getattr(module, name)
    monkeypatch.setattr(module, name, lambda *args, **options: (asked.append(options), plain(*args, **options))[1])
    return asked


def test_layers_share_the_logits_of_far_slots(monkeypatch):
    asked = counted(monkeypatch, formula, "far_parts")
    model("mean-window-sinks")(**text(3, LONGEST)).last_hidden_state.sum().backward()
    assert len(asked) == 1


@pytest.mark.parametrize("kind", ["mean", pytest.param("mean-window", marks=pytest.mark.nightly)])
def test_a_traced_graph_shares_nothing_and_may_have_a_length_of_its_own(kind):
    made, hidden = model(kind), torch.randn(2, LONGEST - 3, 8)
    trace = make_fx(
        lambda given: made(inputs_embeds=given).last_hidden_state, tracing_mode="symbolic", _allow_non_fake_inputs=True
    )
    assert_close(trace(hidden)(hidden), made(inputs_embeds=hidden).last_hidden_state, scope="model")


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_a_model_asks_once_for_all_its_layers(kind, monkeypatch):
    made, given, asked = model(kind), text(3, LONGEST), counted(monkeypatch, sequence_projection, "make_runs")
    found = made(**given).last_hidden_state
    dense = made.config.projection in ("linear", "random", "by_place", "latent") or kind == "window over everything"
    assert len(asked) == (0 if dense else 2 if kind == "k of each head" else 1)
    mask = given["attention_mask"].bool()
    for row in range(3):
        alone = made(input_ids=given["input_ids"][row : row + 1, mask[row]]).last_hidden_state
        assert_close(found[row, mask[row]], alone[0], scope="model")
