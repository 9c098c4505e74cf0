"""k and the bounds, against numbers worked out by hand and published ones."""

import math

import pytest

from longform.errors import ConfigurationError
from longform_lab.bounds.settings import BoundSettings
from longform_lab.bounds.theorems import failure_bound, guarantees, smallest_useful_length, theorem_1, theorem_2


@pytest.mark.parametrize(
    ("length", "epsilon", "k"),
    [(512, 0.5, 249.53), (512, 0.25, 665.4), (512, 0.1, 3465.7), (4096, 0.5, 332.7), (65536, 0.1, 6161.3)],
)
def test_k_of_theorem_1(length, epsilon, k):
    found = theorem_1(length, epsilon)
    assert found.k == math.ceil(k)
    assert found.failure == pytest.approx(2 * length**-0.25, rel=0.02)  # 2 n n^(-5/4), k rounded up
    assert found.failure <= 2 * length**-0.25
    assert (found.vacuous is None) == (k < length)


def test_every_form_at_512_tokens_and_64_dimensions():
    first, second, by_rank, stated = guarantees(512, 64, 0.5)
    assert [row.k for row in (first, second, by_rank, stated)] == [250, 416, 300, 125]
    assert second.failure == pytest.approx(2 * (512 * 64) ** -0.25, rel=0.02)
    assert by_rank.failure == pytest.approx(2 * 64**2 * math.exp(-0.125 * 300 / 4))
    assert stated.failure is None
    assert guarantees(10**6, 2, 0.5)[3].k == math.ceil(18 * math.log(2) / 0.25)  # d ln(d) is the smaller one


def test_where_it_says_nothing():
    assert "bound is not below 1" in theorem_1(10, 0.5).vacuous
    assert "k is not below n = 512" in theorem_1(512, 0.25).vacuous
    for epsilon in (0.1, 0.25, 0.5, 2 / 3):
        length = smallest_useful_length(epsilon)
        assert theorem_1(length, epsilon).vacuous is None
        assert theorem_1(length - 1, epsilon).vacuous is not None
    assert theorem_1(512, 0.9).k > theorem_1(512, 2 / 3).k == math.ceil(33.75 * math.log(512))


def test_the_bound_of_one_pair_and_of_many():
    assert failure_bound(64, 0.5) == pytest.approx(2 * math.exp(-2))
    assert failure_bound(64, 0.5, events=7) == pytest.approx(14 * math.exp(-2))


@pytest.mark.parametrize("epsilon", [0.0, 1.0, -0.5, 2.0, math.nan])
def test_epsilon_outside_0_to_1(epsilon):
    for asked in (lambda: theorem_1(512, epsilon), lambda: theorem_2(512, 64, epsilon),
                  lambda: guarantees(512, 64, epsilon), lambda: failure_bound(8, epsilon),
                  lambda: BoundSettings(epsilon=[0.5, epsilon])):  # fmt: skip
        with pytest.raises(ConfigurationError, match=r"epsilon is .*above 0 and below 1"):
            asked()


def test_sizes_and_settings_that_mean_nothing():
    for asked, message in (
        (lambda: theorem_1(1, 0.5), "length is 1"), (lambda: theorem_2(512, 1, 0.5), "head_size is 1"),
        (lambda: failure_bound(0, 0.5), "k=0"), (lambda: BoundSettings(trials=1), "trials=1 must be at least 2"),
        (lambda: BoundSettings(length=[]), "length is an empty list"),
        (lambda: BoundSettings(length=[128]), "projected_length 256 is above the largest length 128"),
        (lambda: BoundSettings(learning_rate=0.0), "learning_rate=0.0 must be more than 0"),
    ):  # fmt: skip
        with pytest.raises(ConfigurationError, match=message):
            asked()
