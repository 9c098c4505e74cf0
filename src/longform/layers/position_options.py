"""Checks of options of positions: rotary ones, biases by distance, and how far local attention reaches.

Every mismatch is a ConfigurationError that says what to change.
"""

from collections.abc import Sequence
from typing import Any

from longform.choices import POOLED
from longform.errors import ConfigurationError
from longform.functional.positions.distances import saturated_distance
from longform.layers.options import check_choice

ROPE_TYPES = ("default", "linear", "yarn", "llama3")  # those whose angles do not depend on the length of a text


def check_reach_of_local(reach: int | None) -> None:
    """Raise ConfigurationError unless local attention sees a token on each side, or more."""
    if reach is None or reach < 1:
        raise ConfigurationError(
            f"sliding_window={reach} must be 1 or more where layer_types has 'sliding_attention': the tokens that such "
            "a layer sees on each side"
        )


def check_rotary(
    rope_parameters: dict[str, Any] | None, layer_types: Sequence[str], *, head_dim: int, distances: bool
) -> None:
    """Check the rotary positions of layers of these types; ``distances``: there is a bias by distance, too.

    Raises ConfigurationError.
    """
    local = "sliding_attention" in layer_types
    if distances and (local or rope_parameters is not None):
        raise ConfigurationError(
            "relative_attention_num_buckets goes neither with rope_parameters nor with 'sliding_attention' in "
            "layer_types: leave it at None"
        )
    if rope_parameters is None:
        return
    for kind in dict.fromkeys(layer_types):
        parameters = rope_parameters.get(kind, rope_parameters)
        rope_type, theta = parameters.get("rope_type"), parameters.get("rope_theta")
        check_choice(f"rope_type of {kind}", str(rope_type), ROPE_TYPES)
        if not isinstance(theta, int | float) or theta <= 1:
            raise ConfigurationError(f"rope_theta={theta!r} of {kind} must be a number above 1; 10000.0 is usual")
        features = head_dim * parameters.get("partial_rotary_factor", 1.0)
        if not 2 <= features <= head_dim or features % 2:
            raise ConfigurationError(
                f"rotary positions turn pairs of features, and a head of {head_dim} features (head_dim, or hidden_size "
                f"/ num_attention_heads) with partial_rotary_factor={parameters.get('partial_rotary_factor', 1.0)} "
                f"gives {features:g} to turn: make them an even number"
            )


def check_relative_positions(
    num_buckets: int | None, max_distance: int, *, attention_window: int | None, max_length: int
) -> None:
    """Check a bias by distance, in ``num_buckets`` up to ``max_distance``, and the window that it needs; None is none.

    Raises ConfigurationError.
    """
    if num_buckets is None:
        return
    if num_buckets < 4 or num_buckets % 2:
        raise ConfigurationError(
            f"relative_attention_num_buckets={num_buckets} must be an even number from 4 on (half of them for keys "
            "behind a query, half for those after it), or None for no relative positions"
        )
    if max_distance <= num_buckets // 4:
        raise ConfigurationError(
            f"relative_attention_max_distance={max_distance} must be more than {num_buckets // 4}, the distances that "
            f"have a bucket each with relative_attention_num_buckets={num_buckets}"
        )
    check_reach(saturated_distance(num_buckets, max_distance), window=attention_window, max_length=max_length)


def check_reach(reach: int, *, window: int | None, max_length: int) -> None:
    """Raise ConfigurationError where a slot could be nearer than ``reach``, and so have several biases by distance."""
    if window is None:
        raise ConfigurationError(
            "relative positions need a window: a slot stands for many tokens, which are not at one distance from a "
            f"query unless all of them are {reach} tokens away or more; keep attention_window={reach - 1} or more "
            f"(in conversion: 'auto'), with projection in {POOLED}"
        )
    if window + 1 < reach and 2 * window < max_length:
        raise ConfigurationError(
            f"attention_window={window} is too small for relative positions, which differ below {reach} tokens: the "
            f"tokens of a slot so near have several; use attention_window={reach - 1} or more (in conversion: 'auto')"
        )
