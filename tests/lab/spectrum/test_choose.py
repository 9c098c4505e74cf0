"""k from a spectrum: by share and by total, against trying them all."""

from itertools import product

import pytest
import torch

from longform import LinformerConfig
from longform.errors import ConfigurationError
from longform.functional.slots import divisors, make_runs
from longform_lab.spectrum.choose import (
    allowed_slots,
    head_k_at_total,
    k_at_total,
    kept_share,
    smallest_slots,
)


def curves(rows, length, *, seed=0):
    torch.manual_seed(seed)
    values = torch.rand(rows, length, dtype=torch.float64).pow(4).sort(descending=True).values
    return values.cumsum(1) / values.sum(1, keepdim=True)


def test_pooled_slots_are_those_that_the_projection_fills():
    for length in (7, 12, 30):
        used = set()
        for k in range(1, length + 1):
            size = -(-length // k)
            slots = make_runs(None, batch=1, length=length, device=torch.device("cpu"), sizes=divisors(size), slots=k)
            used.add(slots.count.shape[1])
        assert allowed_slots(length, pooled=True) == sorted(used)
        assert allowed_slots(length, pooled=False) == list(range(1, length + 1))


def test_smallest_k_that_keeps_the_share():
    cumulative = curves(6, 10).unflatten(0, (2, 3))
    layer, head = (smallest_slots(each, 0.8, pooled=False).tolist() for each in (cumulative.mean(1), cumulative))
    for row, k in zip(cumulative.mean(1).tolist(), layer, strict=True):
        assert row[k - 1] >= 0.8
        assert k == 1 or row[k - 2] < 0.8
    assert head == [[int(smallest_slots(curve, 0.8, pooled=False)) for curve in rows] for rows in cumulative]
    allowed = allowed_slots(10, pooled=True)
    pooled = smallest_slots(cumulative.mean(1), 0.8, pooled=True).tolist()
    assert pooled == [min(a for a in allowed if a >= k) for k in layer]
    assert LinformerConfig(  # a config takes both lists
        hidden_size=24, num_attention_heads=3, num_hidden_layers=2, max_position_embeddings=10, projected_length=head,
        projection_sharing="none",
    ).head_slots() == tuple(map(tuple, head))  # fmt: skip


@pytest.mark.parametrize("pooled", [True, False])
def test_the_least_share_is_as_large_as_the_total_allows(pooled):
    for seed in range(5):
        rows = curves(3, 8, seed=seed)
        best = max(
            min(kept_share(rows, ks)) for ks in product(allowed_slots(8, pooled=pooled), repeat=3) if sum(ks) <= 11
        )
        chosen = k_at_total(rows, 11, pooled=pooled)
        assert sum(chosen) <= 11
        assert min(kept_share(rows, chosen)) == pytest.approx(best)
        assert pooled or sum(chosen) == 11


def test_heads_compete_for_the_same_total():
    cumulative = curves(6, 8).unflatten(0, (2, 3))
    chosen = head_k_at_total(cumulative, 10, pooled=False)
    assert [len(layer) for layer in chosen] == [3, 3]
    assert sum(map(sum, chosen)) == 30
    assert [k for layer in chosen for k in layer] == k_at_total(cumulative.flatten(0, 1), 30, pooled=False)


@pytest.mark.parametrize("total", [2, 25])
def test_totals_that_cannot_be_shared_out(total):
    with pytest.raises(ConfigurationError, match=f"total_k={total}.*at least 3.*more than 24"):
        k_at_total(curves(3, 8), total, pooled=False)
