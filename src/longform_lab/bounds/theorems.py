"""The slots k and probabilities of failure of the paper's Theorems 1 and 2; natural logarithms, its constants.

Symbols: n tokens, d head dimension, k slots, ε the error. R (k, n) has independent entries N(0, 1/k). For any two
vectors x and y of n numbers,

    Pr( |x RᵀR y - x y| > ε ‖x‖ ‖y‖ ) <= 2 exp(-(ε² - ε³) k / 4),

and a union over rows and columns does the rest. The paper writes ε |x y| on the left, which no such bound can give
(x y may be 0); the form above is what its proof has, and what is checked in ``monte_carlo.py``.
"""

import math
from dataclasses import dataclass

from longform.errors import ConfigurationError


@dataclass(frozen=True)
class Guarantee:
    """Promise of a theorem for maps of ``length`` n tokens and values of ``head_size`` d.

    ``form``: which of the theorems' k it is; ``k``: rounded up; ``failure``: the bound on the probability that the
    promise is broken, None where the paper gives none; ``vacuous``: why this says nothing, or None.
    """

    form: str
    length: int
    head_size: int
    epsilon: float
    k: int
    failure: float | None
    vacuous: str | None


def decay(epsilon: float) -> float:
    """ε² - ε³, the rate in the exponent; largest at ε = 2/3. Raises ConfigurationError for ε outside (0, 1)."""
    if not 0.0 < epsilon < 1.0:
        raise ConfigurationError(
            f"epsilon is {epsilon}; it is an error relative to the norms, above 0 and below 1 (0.5, for example)"
        )
    return epsilon**2 - epsilon**3


def failure_bound(k: int, epsilon: float, *, events: int = 1) -> float:
    """2 · ``events`` · exp(-(ε² - ε³) k / 4): one event is one row against one column. Above 1 it says nothing."""
    if k < 1 or events < 1:
        raise ConfigurationError(f"k={k} and events={events} are at least 1")
    return 2.0 * events * math.exp(-decay(epsilon) * k / 4.0)


def theorem_1(length: int, epsilon: float, *, head_size: int = 1) -> Guarantee:
    """k = 5 ln(n) / (ε² - ε³): all n rows of P against one column of V, P RᵀR in the place of P."""
    k = 5 * _log(length) / decay(epsilon)
    return _guarantee("theorem 1: n rows, one column", length, head_size, epsilon, k, events=length)


def theorem_2(length: int, head_size: int, epsilon: float) -> Guarantee:
    """k = 5 ln(n d) / (ε² - ε³): all n rows of exp(A) against all d columns of V."""
    k = 5 * (_log(length) + _log(head_size, "head_size")) / decay(epsilon)
    return _guarantee("theorem 2: n rows, d columns", length, head_size, epsilon, k, events=length * head_size)


def theorem_2_by_rank(length: int, head_size: int, epsilon: float) -> Guarantee:
    """k = 9 ln(d) / (ε² - ε³), free of n: d rows that span A (whose rank is d) against d columns.

    The bound is for those d rows; the other rows, combinations of them, lose a factor that the paper leaves out.
    """
    k = 9 * _log(head_size, "head_size") / decay(epsilon)
    return _guarantee("theorem 2: d rows, d columns", length, head_size, epsilon, k, events=head_size**2)


def theorem_2_as_stated(length: int, head_size: int, epsilon: float) -> Guarantee:
    """k = min(9 d ln(d) / ε², 5 ln(n) / ε²), each Θ taken as 1; no probability is given with it."""
    decay(epsilon)
    k = min(9 * head_size * _log(head_size, "head_size"), 5 * _log(length)) / epsilon**2
    return _guarantee("theorem 2: as stated, Θ taken as 1", length, head_size, epsilon, k, events=None)


def guarantees(length: int, head_size: int, epsilon: float) -> list[Guarantee]:
    """Every form of k, for one n, d and ε. Raises ConfigurationError for ε outside (0, 1), n < 2 or d < 2."""
    return [
        theorem_1(length, epsilon, head_size=head_size),
        theorem_2(length, head_size, epsilon),
        theorem_2_by_rank(length, head_size, epsilon),
        theorem_2_as_stated(length, head_size, epsilon),
    ]


def smallest_useful_length(epsilon: float) -> int:
    """The first n from which on Theorem 1 has k < n and a bound below 1 (n > 16: 2 n^(-1/4) < 1)."""
    rate = decay(epsilon)

    def useful(length: int) -> bool:
        return length > 16 and math.ceil(5 * math.log(length) / rate) < length

    high = 32
    while not useful(high):
        high *= 2
    low = 16  # not useful; ln(n) / n falls from n = 3 on, so that useful lengths have no gaps
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if useful(middle) else (middle, high)
    return high


def _guarantee(form: str, length: int, head_size: int, epsilon: float, k: float, *, events: int | None) -> Guarantee:
    slots = max(1, math.ceil(k))
    failure = None if events is None else failure_bound(slots, epsilon, events=events)
    reasons = [f"k is not below n = {length:,}"] if slots >= length else []
    if failure is not None and failure >= 1:
        reasons.append("the bound is not below 1")
    return Guarantee(form, length, head_size, epsilon, slots, failure, "; ".join(reasons) or None)


def _log(value: int, name: str = "length") -> float:
    if value < 2:
        raise ConfigurationError(f"{name} is {value}; the theorems take the logarithm of 2 or more")
    return math.log(value)
