"""Defaults of a conversion, chosen by measurement: see docs/lab/quality.md."""

from typing import Any

from longform.choices import POOLED

MAX_LENGTH = 4096  # tokens
WINDOW = 64  # tokens seen exactly on each side, where the projection allows a window
SELECTED, SELECTED_TOKENS = 10, 256  # slots that are seen token by token, and their tokens, at most
SELECTED_RUN = 16  # tokens of a slot where slots are selected, at least: their tokens matter more than short slots
SLOTS = 256  # at most; fixed, so that time and memory stay linear in the length
POSITIONS = "tile"
TAPS = 0  # a copied encoder has no weights of a short convolution, and learned without one
SINKS = 1  # the first token, to which trained encoders send much of their attention


def default_window(projection: str, *, least: int = 0) -> int | None:
    """Tokens seen exactly on each side, ``least`` or more: none where slots have no place in the text."""
    return max(WINDOW, least) if projection in POOLED else None


def default_slots(*, max_length: int, window: int | None, selected: int | str = 0) -> int:
    """k for ``max_length`` tokens: about SLOTS, with slots that divide the window; longer ones where some are
    ``selected``.

    Beyond SLOTS x window tokens a slot covers as many tokens as the window has, or the largest part of it that fits,
    and k grows with the length.
    """
    from longform.layers.options import fitting_slots  # not above: it brings torch, and --help reads the defaults

    if window is None or 2 * window >= max_length:
        return min(SLOTS, max_length)
    for size in range(min(SELECTED_RUN, window) if selected else 1, window + 1):
        slots = -(-max_length // size)
        if window % size == 0 and slots <= SLOTS and -(-max_length // slots) == size:
            return slots
    return fitting_slots(max_length=max_length, window=window)


def default_selected(*, max_length: int, slots: int, window: int | None) -> int:
    """Selected slots for k = ``slots``: SELECTED, and fewer where slots are long; none where there is no memory."""
    if window is None or 2 * window >= max_length:
        return 0
    return min(SELECTED, max(1, SELECTED_TOKENS // -(-max_length // slots)))


def slots_that_fit(projected_length: Any, *, max_length: int, window: int | None, sinks: int) -> Any:
    """``projected_length`` with each k raised to the next that the other options allow, none above ``max_length``."""
    from longform.layers.options import fitting_slots

    if isinstance(projected_length, list):
        options: Any = {"max_length": max_length, "window": window, "sinks": sinks}
        return [slots_that_fit(entry, **options) for entry in projected_length]
    least = min(max(projected_length, sinks + 1), max_length)
    if window is None or 2 * window >= max_length:
        return least
    return fitting_slots(max_length=max_length, window=window, least=least)
