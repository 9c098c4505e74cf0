"""A document alone, in a padded batch, with a mask of ones or none, beside NaN: one result and one gradient.

At every run some 500 cases over every allowed projection x sharing x window, in the nightly tests 2,000.
"""

import math
from typing import NamedTuple

import pytest
import torch
from attention_kinds import KINDS, PAPER, SELECTED, SPECIAL, WINDOWED, Kind, Layer
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longform.choices import PROJECTIONS, SHARINGS
from longform.errors import ConfigurationError
from longform.layers.attention import LinformerAttention
from longform.layers.options import Projection
from strategies import generator, gradients, mask_rows, normal
from tolerances import assert_close

MANY = settings.get_current_profile_name() != "ci"
CASES_A_KIND = 84 if MANY else 21
CASES_A_SPECIAL_KIND = 30 if MANY else 10
POISONS = (math.nan, math.inf, -math.inf, 1e30, 0.0)
MASK_TYPES = (torch.bool, torch.int64, torch.int32, torch.uint8, torch.float32)


class Case(NamedTuple):
    """Documents of their own lengths and holes, in a batch that is wider than they are."""

    kind: Kind
    rows: list[list[int]]  # the mask of each document alone; [] is a row of padding in the batch
    width: int
    poison: float  # what stands in the padding
    mask_type: torch.dtype
    eager: bool
    seed: int


@st.composite
def cases(draw: st.DrawFn, kind: Kind) -> Case:
    documents = draw(st.integers(1, 3))
    lengths = [draw(st.integers(0 if b else 1, kind.longest)) for b in range(documents)]
    rows = []
    for length in lengths:
        row = draw(mask_rows(length, ("full", "holes"))) if length else []
        rows.append([*row[:-1], 1] if row else row)
    width = draw(st.sampled_from([max(lengths), kind.longest]) | st.integers(max(lengths), kind.longest))
    poison, mask_type = draw(st.sampled_from(POISONS)), draw(st.sampled_from(MASK_TYPES))
    return Case(kind, rows, width, poison, mask_type, draw(st.booleans()), draw(st.integers(0, 2**31 - 1)))


def run(layer: Layer, hidden: Tensor, mask: Tensor | None, eager: bool) -> Tensor:
    out = layer(hidden, mask, output_attentions=eager)
    return out[0] if eager else out


def check(case: Case) -> None:
    layer = Layer(case.kind, case.seed, taps=3.0)
    source = generator(case.seed + 1)
    leaves = [leaf for leaf in layer.leaves if leaf.requires_grad]
    hidden = torch.full((len(case.rows), case.width, case.kind.width), case.poison, dtype=torch.float64)
    mask = torch.zeros(len(case.rows), case.width, dtype=torch.bool)
    for b, row in enumerate(case.rows):
        valid = torch.tensor(row, dtype=torch.bool)
        mask[b, : len(row)] = valid
        hidden[b, : len(row)][valid] = normal(source, int(valid.sum()), case.kind.width)
    hidden.requires_grad_()
    cotangent = normal(source, *hidden.shape) * mask[..., None]

    together = run(layer, hidden, mask.to(case.mask_type), case.eager)
    assert torch.isfinite(together).all()
    padded = gradients(torch.where(mask[..., None], together, 0.0), cotangent, [hidden, *leaves])
    assert (padded[0][~mask] == 0).all()

    sums = [torch.zeros_like(leaf) for leaf in leaves]
    for b, row in enumerate(case.rows):
        if not row:
            continue
        valid, part = torch.tensor([row]).bool(), slice(0, len(row))
        document = hidden[b : b + 1, part].detach().requires_grad_()
        alone = run(layer, document, None if valid.all() else valid, case.eager)
        assert_close(together[b, part][valid[0]], alone[valid])
        if valid.all():
            assert_close(run(layer, document, torch.ones_like(valid).to(case.mask_type), case.eager), alone)
        found = gradients(torch.where(valid[..., None], alone, 0.0), cotangent[b : b + 1, part], [document, *leaves])
        assert_close(padded[0][b, part][valid[0]], found[0][valid])
        sums = [total + one for total, one in zip(sums, found[1:], strict=True)]
    for one, total in zip(padded[1:], sums, strict=True):
        assert_close(one, total)


@pytest.mark.parametrize("kind", [*PAPER, *WINDOWED], ids=str)
@settings(max_examples=CASES_A_KIND)
@given(st.data())
def test_padding_batch_mask_and_nan_change_nothing(kind, data):
    check(data.draw(cases(kind)))


@pytest.mark.parametrize("kind", [*SPECIAL, *SELECTED], ids=str)
@settings(max_examples=CASES_A_SPECIAL_KIND)
@given(st.data())
def test_nor_where_each_head_has_its_own_k_or_slots_are_selected(kind, data):
    check(data.draw(cases(kind)))


def allowed(projection: str, sharing: str, window: int | None) -> bool:
    options = {"max_length": 8, "projected_length": 4, "projection": Projection(projection, sharing)}
    try:
        LinformerAttention(6, 2, attention_window=window, **options)
    except ConfigurationError:
        return False
    return True


def test_no_allowed_combination_is_left_out():
    covered = {(kind.projection, kind.sharing, kind.window) for kind in (*PAPER, *WINDOWED)}
    everything = {(p, s, w) for p in PROJECTIONS for s in SHARINGS for w in (None, 2) if allowed(p, s, w)}
    assert covered == everything
    assert len(covered) * CASES_A_KIND >= (2_000 if MANY else 500)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_batch_of_padding_alone_is_finite(kind):
    """Forward and backward, NaN in every position."""
    layer = Layer(kind, 0, taps=3.0)
    for length in (1, kind.longest - 1, kind.longest):
        hidden = torch.full((2, length, kind.width), math.nan, dtype=torch.float64)
        out = layer(hidden, torch.zeros(2, length))
        assert torch.isfinite(out).all()
        leaves = [leaf for leaf in layer.leaves if leaf.requires_grad]
        assert all(torch.isfinite(x).all() for x in gradients(out, torch.ones(1), leaves))


@pytest.mark.parametrize("sharing", ["headwise", "none", "key_value"])
def test_a_row_of_zeros_in_e_is_treated_alike_alone_and_in_a_batch(sharing):
    """And its gradient is finite: such a row is where a pruned or zero-initialised E starts."""
    kind = Kind("linear", sharing)
    layer = Layer(kind, 1)
    with torch.no_grad():
        for matrix in layer.matrices(layer.projections[0]):
            matrix[:, 1] = 0.0
    hidden, mask = normal(generator(2), 2, kind.longest, kind.width), torch.ones(2, kind.longest)
    mask[1, 5:] = 0
    together = layer(hidden, mask)
    assert_close(together[:1], layer(hidden[:1], None))
    assert all(torch.isfinite(x).all() for x in gradients(together, mask[..., None], layer.leaves))
