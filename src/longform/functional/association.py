"""Which order of matrix products is cheaper: E (X W) or (E X) W.

Counts are multiply-adds of one projected side (keys or values) for one document.
Axes: n tokens, k slots, D hidden, h heads.
"""


def weights_first_cost(*, n: int, k: int, hidden: int) -> int:
    """Multiply-adds of E (X W): n D² for X W, n k D for the shortening (whatever the heads share)."""
    return n * hidden * hidden + n * k * hidden


def projection_first_cost(*, n: int, k: int, hidden: int, heads: int, per_head: bool) -> int:
    """Multiply-adds of (E X) W: n k D and k D² with one E; with an E per head, E X is formed for each head."""
    shorten = n * k * hidden * (heads if per_head else 1)
    return shorten + k * hidden * hidden


def project_first_is_cheaper(*, n: int, k: int, hidden: int, heads: int, per_head: bool, shared: bool = False) -> bool:
    """True where (E X) W takes fewer multiply-adds than E (X W), or no more: its intermediate result is shorter.

    Both are the same number up to rounding. ``shared``: keys and values share E, so that one E X serves both.
    """
    first = 2 * projection_first_cost(n=n, k=k, hidden=hidden, heads=heads, per_head=per_head)
    if shared:
        first -= n * k * hidden * (heads if per_head else 1)
    return first <= 2 * weights_first_cost(n=n, k=k, hidden=hidden)
