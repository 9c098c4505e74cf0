"""``longform.kernels``: which kernels serve a model, and forcing one."""

import pytest
import torch
from model_kinds import model, text

import longform
from longform.errors import ConfigurationError


def test_it_says_what_served_and_why_not_the_others():
    made, given = model("mean-window"), text(2, 32)
    explained = longform.kernels.explain(made, given)
    shown = str(explained)
    assert "window: sdpa_training (2 calls)\n" in shown
    assert "    not documents: needs no gradient to form\n" in shown
    assert "    not formula: comes after it in the table" in shown
    assert sum(explained.counted().values()) == len(explained.choices)
    assert "window: documents" in str(longform.kernels.explain(made, length=32))


def test_a_forced_kernel_gives_the_same_and_is_left_with_the_block():
    made, given = model("mean-window"), text(2, 32)
    with torch.no_grad():
        expected = made(**given).last_hidden_state
        with longform.kernels.use(window="formula"):
            assert "window: formula" in str(longform.kernels.explain(made, given))
            torch.testing.assert_close(made(**given).last_hidden_state, expected, atol=1e-5, rtol=1e-5)
        assert "window: documents" in str(longform.kernels.explain(made, given))
    lacking = pytest.raises(ConfigurationError, match=r"document='compiled'.* lacks: bfloat16 tensors")
    with longform.kernels.use(document="compiled"), torch.no_grad(), lacking:
        made(**given)


def test_a_length_alone_is_for_our_own_models():
    with pytest.raises(ConfigurationError, match=r"this is a Linear: give what it is called with"):
        longform.kernels.explain(torch.nn.Linear(2, 2), length=32)


def test_tables_name_the_kernels_in_the_order_in_which_they_are_asked():
    tables = longform.kernels.tables()
    assert tables["window"][0] == "single_tokens"
    assert tables["window"][-1] == "formula"
    assert tables.keys() == {"attention", "document", "window"}
