"""Options of attention, with their defaults, and checks of which go together.

Every mismatch is a ConfigurationError that says what to change.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from longform.choices import (
    DEFAULT_PROJECTION,
    DEFAULT_SHARING,
    NAMED_PROJECTIONS,
    POOLED,
    PROJECTION_INITS,
    PROJECTION_KINDS,
    PROJECTION_NAMES,
    PROJECTIONS,
    SHARINGS,
    did_you_mean,
)
from longform.errors import ConfigurationError
from longform.functional.slots import base_slot_size


@dataclass(frozen=True)
class Projection:
    """Options by which a layer shortens keys and values to slots; a name is a ``kind`` with the other defaults.

    ``kind``: "linear" (the paper's learned E and F), "weighted_mean" (means of runs of tokens weighted by content),
    "mean", "max", "convolution", "random" or "latent" (E made of the input, whatever its order). ``sharing``: "none"
    (an E and F a head), "headwise" (one each for all heads), "key_value" (E = F), "layerwise" (E = F, handed to
    ``forward`` by its owner). ``init``: how a linear E begins: "block_mean", means of k runs, or "normal", N(0, 1/k),
    as in the paper's theory. ``frozen``: nothing of it is trained. ``sink_tokens``: leading tokens that every query
    sees exactly, beside the k slots (with a dense E: rows of E that start as one token each). ``memory_budget``: how
    many tokens all slots together stand for at most beside a window, or None. ``rescale`` False and ``bias`` (a number
    a slot, from zero): a linear E as other packages have it, which shorter texts meet as it is. ``places``: to each
    weighted mean a learned mixture of all places is added.

    Two names stand for a kind with options: "by_place", ``Projection("linear", init="normal")``, and
    "content_and_place", ``Projection("weighted_mean", places=True)``.

    Raises ConfigurationError for names that there are not.
    """

    kind: str = DEFAULT_PROJECTION
    sharing: str = DEFAULT_SHARING
    init: str = "block_mean"
    frozen: bool = False
    sink_tokens: int = 0
    memory_budget: float | None = None
    rescale: bool = True
    bias: bool = False
    places: bool = False

    def __post_init__(self) -> None:
        check_choice("projection", self.kind, PROJECTIONS)
        check_choice("projection_sharing", self.sharing, SHARINGS)
        check_choice("projection_init", self.init, PROJECTION_INITS)

    @classmethod
    def of(cls, projection: "str | Projection") -> "Projection":
        """A Projection of its name, or as it is. Raises ConfigurationError for a name that there is not."""
        if isinstance(projection, Projection):
            return projection
        check_choice("projection", projection, PROJECTION_NAMES)
        named: dict[str, Any] = {"kind": projection} | NAMED_PROJECTIONS.get(projection, {})
        return cls(**named)


ENDLESS = 2**32  # slots where texts have no longest length
TAPS = 5  # of the short convolution where nothing is said
RUN = 4  # tokens of a slot where nothing is said
LATENTS = 64  # slots of tokens without an order where nothing is said


@dataclass(frozen=True)
class Lengths:
    """``tokens`` N and ``slots`` k of each head; ``fixed``: a slot has N / k tokens whatever the length of a text."""

    tokens: int
    slots: tuple[int, ...]
    fixed: bool


# Other names of options, which are taken for them: those that Longform had, and that other packages have.
OTHER_NAMES = {"sharing": "projection_sharing", "num_prefix_tokens": "sink_tokens"}


def by_our_names(options: Mapping[str, Any]) -> dict[str, Any]:
    """``options`` under the names that they have here. Raises ConfigurationError for one that is given by two."""
    if twice := [name for name in options if OTHER_NAMES.get(name, "") in options]:
        raise ConfigurationError(f"{twice[0]!r} is another name of {OTHER_NAMES[twice[0]]!r}: give one of them")
    return {OTHER_NAMES.get(name, name): value for name, value in options.items()}


@dataclass(frozen=True, kw_only=True)
class AttentionOptions:
    """Options of attention, which LinformerAttention, LinformerEncoder, the stand-ins for torch's modules and
    LinformerConfig take by these names with these defaults. ``convert`` takes the same names, with a window, one sink,
    no taps and k by the length, since it copies an encoder that has weights.

    LinformerAttention says what ``projection``, ``projected_length``, ``tokens_per_slot``, ``attention_window``,
    ``selected_slots`` and ``short_convolution`` are, Projection the others: ``projection_sharing`` is its ``sharing``,
    ``projection_init`` its ``init``, ``freeze_projection`` its ``frozen``; ``sink_tokens`` and ``memory_budget`` have
    its names. A value other than the default goes before the one in a Projection.

    Raises ConfigurationError for a name that there is not, and for two lengths of a slot.
    """

    projection: str | Projection = DEFAULT_PROJECTION
    projected_length: Any = None
    tokens_per_slot: int | None = None
    projection_sharing: str = DEFAULT_SHARING
    projection_init: str = "block_mean"
    freeze_projection: bool = False
    attention_window: int | None = None
    selected_slots: int = 0
    memory_budget: float | None = None
    sink_tokens: int = 0
    short_convolution: int | None = None

    of_projection: Projection = field(init=False)  # how keys and values are shortened

    def __post_init__(self) -> None:
        said = {name: getattr(self, name) for name in OF_PROJECTION if getattr(self, name) != getattr(type(self), name)}
        chosen = replace(Projection.of(self.projection), **{OF_PROJECTION[name]: x for name, x in said.items()})
        object.__setattr__(self, "of_projection", chosen)
        if self.projected_length is not None and self.tokens_per_slot is not None:
            raise ConfigurationError(
                f"projected_length={self.projected_length!r} and tokens_per_slot={self.tokens_per_slot} both say how "
                "long a slot is: give one of them"
            )

    @property
    def taps(self) -> int:
        """Taps of the short convolution: where nothing is said none before E and F of a whole text, as the paper has
        it, and 5 before runs.
        """
        if self.short_convolution is not None:
            return self.short_convolution
        return TAPS if PROJECTION_KINDS[self.of_projection.kind].covers_runs else 0

    def lengths(self, max_length: int | None, *, heads: int, fixed: bool = False, capped: bool = True) -> Lengths:
        """Lengths for texts of ``max_length`` tokens, None for any: k, a list of them, "auto" (see LinformerAttention),
        or the tokens of a slot, of which there are 4 where neither is said.

        ``capped``: k is at most N, where ``check`` would refuse more. Raises ConfigurationError where a length is
        missing or senseless.
        """
        kind, tokens_per_slot = self.of_projection.kind, self.tokens_per_slot
        if not PROJECTION_KINDS[kind].has_order:
            _check_no_runs(tokens_per_slot, kind)
            longest = max_length or ENDLESS
            return Lengths(
                longest, _listed_slots(self.projected_length or min(LATENTS, longest), longest, heads, capped), fixed
            )
        if self.projected_length is None and tokens_per_slot is None:
            tokens_per_slot = RUN
        _check_longest(max_length, tokens_per_slot, kind)
        if tokens_per_slot is not None:
            _check_run(tokens_per_slot, self.attention_window)
            slots = ENDLESS if max_length is None else -(-max_length // tokens_per_slot)
            runs = kind in POOLED
            return Lengths(slots * tokens_per_slot if runs else max_length or 0, (slots,) * heads, runs)
        assert max_length is not None
        return Lengths(max_length, _listed_slots(self.projected_length, max_length, heads, capped), fixed)

    def settled(self, max_length: int, *, heads: int) -> "AttentionOptions":
        """These options with the taps and the length of a slot said: of runs by its tokens, of E by their number k."""
        if isinstance(self.projected_length, int | list | tuple):
            return replace(self, short_convolution=self.taps)
        chosen = self.of_projection
        if self.projected_length is None and chosen.kind in POOLED and not chosen.places:
            return replace(self, short_convolution=self.taps, tokens_per_slot=self.tokens_per_slot or RUN)
        k = self.lengths(max_length, heads=heads).slots[0]
        return replace(self, short_convolution=self.taps, tokens_per_slot=None, projected_length=k)

    def of_layers(self, *, num_layers: int, num_heads: int) -> tuple["AttentionOptions", ...]:
        """Options of every layer, where k is one for all, a list per layer, or a list per layer of lists per head.

        Raises ConfigurationError for a list of another length, and for several k where all layers share E.
        """
        k = self.projected_length
        if not isinstance(k, list | tuple):
            return (self,) * num_layers
        if len(k) != num_layers:
            raise ConfigurationError(
                f"projected_length lists {len(k)} layers, the model has num_hidden_layers={num_layers}"
            )
        rows = [tuple(entry) if isinstance(entry, list | tuple) else (entry,) * num_heads for entry in k]
        if self.of_projection.sharing == "layerwise" and len(set(rows)) > 1:
            raise ConfigurationError(
                "projected_length differs between layers, which projection_sharing='layerwise' cannot have: one E for "
                "all layers has one k; use 'headwise' or 'key_value'"
            )
        return tuple(replace(self, projected_length=row) for row in rows)

    def check(
        self,
        sizes: Lengths,
        *,
        hidden_size: int,
        num_heads: int,
        head_dim: int | None = None,
        causal: bool = False,
        tile: tuple[int, ...] | None = None,
        model_slots: tuple[int, ...] = (),
    ) -> None:
        """Raise ConfigurationError where the options of an attention layer of ``sizes`` do not go together.

        ``model_slots``: k of the heads of all layers; what is said about a window holds for these. Messages have the
        layer's words, ``in_model_words`` a configuration's.
        """
        chosen, window, max_length, head_slots = self.of_projection, self.attention_window, sizes.tokens, sizes.slots
        head_size(hidden_size, num_heads, head_dim)
        _check_slots(head_slots, num_heads, max_length, chosen.sharing)
        if not PROJECTION_KINDS[chosen.kind].has_matrices and chosen.sharing in ("key_value", "layerwise"):
            raise ConfigurationError(
                f"projection={chosen.kind!r} has no E and F to share, so projection_sharing={chosen.sharing!r} means "
                "nothing; leave it at 'headwise' ('none' where k differs between heads)"
            )
        if chosen.sink_tokens < 0 or chosen.sink_tokens >= min(head_slots):
            raise ConfigurationError(
                f"sink_tokens={chosen.sink_tokens} must be at least 0 and less than projected_length="
                f"{min(head_slots)} (the smallest there is): fewer sinks, or more slots"
            )
        _check_taps(self.taps)
        if chosen.places:
            _check_places(chosen, max_length, window, tile, causal=causal)
        if causal:  # before the window, which it needs
            _check_causal(chosen.kind, window, head_slots, max_length)
        _check_window(window, chosen.memory_budget, chosen.kind, model_slots or head_slots, max_length)
        _check_selection(self.selected_slots, window, chosen.kind, causal=causal)


OF_PROJECTION = {  # fields of a Projection by the names of options
    "projection_sharing": "sharing",
    "projection_init": "init",
    "freeze_projection": "frozen",
    "sink_tokens": "sink_tokens",
    "memory_budget": "memory_budget",
}
OPTIONS = tuple(each.name for each in fields(AttentionOptions) if each.init)


def _check_taps(taps: int) -> None:
    if taps and (taps < 3 or taps % 2 == 0):
        near = max(3, taps - 1), max(3, taps + 1)
        raise ConfigurationError(
            f"short_convolution={taps} must be an odd number of tokens from 3 on, as many on either side of each; use "
            f"{' or '.join(map(str, dict.fromkeys(near)))}, or 0 for none"
        )


def _check_no_runs(tokens_per_slot: int | None, kind: str) -> None:
    if tokens_per_slot is not None:
        raise ConfigurationError(
            f"projection={kind!r} has projected_length slots for an input of any length and order (default {LATENTS}), "
            "each made of all of it, so it takes no tokens_per_slot and no tile"
        )


def _check_longest(max_length: int | None, tokens_per_slot: int | None, kind: str) -> None:
    if max_length is None and (tokens_per_slot is None or kind not in POOLED):
        raise ConfigurationError(
            "max_length=None needs tokens_per_slot=, so that slots are runs of so many tokens, and a projection in "
            f"{POOLED}, not {kind!r}; or say max_length, the most tokens of an input"
        )
    if max_length is not None and max_length < 1:
        raise ConfigurationError(f"max_length={max_length} must be at least 1")


def _check_causal(kind: str, window: int | None, head_slots: tuple[int, ...], max_length: int) -> None:
    if kind not in POOLED:
        raise ConfigurationError(
            f"causal=True needs slots that are complete before a query, and each slot of projection={kind!r} is made "
            f"of the whole text, the tokens after the query too; use projection in {POOLED}"
        )
    if len(set(head_slots)) > 1:
        raise ConfigurationError(f"causal=True needs one k for all heads, not projected_length={head_slots}")
    run = base_slot_size(max_length=max_length, slots=head_slots[0])
    if window is None or window % run:
        raise ConfigurationError(
            f"causal=True needs attention_window, a multiple of the {run} tokens of a slot, not {window}: the tokens "
            f"just before a query are in no complete slot; use attention_window={-(-(window or 64) // run) * run}"
        )


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raise ConfigurationError unless ``value`` is one of ``allowed``."""
    if value not in allowed:
        near = did_you_mean(value, allowed)
        raise ConfigurationError(f"{name}={value!r} is not known; choose one of {', '.join(map(repr, allowed))}{near}")


def _check_places(options: Projection, max_length: int, window: Any, tile: Any, *, causal: bool) -> None:
    """Raise ConfigurationError where a mixture of all places cannot be added to weighted means."""
    refused = {
        "a projection of kind": options.kind if options.kind != "weighted_mean" else "",
        "sink_tokens": options.sink_tokens,
        "attention_window": window,
        "tile": tile,
        "causal": causal,
        "max_length": "None" if max_length >= ENDLESS else "",
    }
    wrong = ", ".join(f"{name}={value}" for name, value in refused.items() if value)
    if wrong:
        raise ConfigurationError(
            "'content_and_place' (places=True) adds a learned mixture of all places to weighted means of runs, so it "
            f"needs max_length and takes no window, tile, sink_tokens or causal=True, not {wrong}; take the "
            "default projection"
        )


MODEL_WORDS = {"max_length": "max_position_embeddings", "num_heads": "num_attention_heads"}


def in_model_words(message: str) -> str:
    """A layer's ``message`` with the names that a configuration has for its arguments."""
    return re.sub(rf"\b({'|'.join(MODEL_WORDS)})\b", lambda found: MODEL_WORDS[found[1]], message)


def head_size(hidden_size: int, num_heads: int, head_dim: int | None = None) -> int:
    """Features of each of ``num_heads`` heads: ``head_dim``, or None for an even part of ``hidden_size``.

    Raises ConfigurationError where there is no such part.
    """
    for name, size in (("hidden_size", hidden_size), ("num_heads", num_heads), ("head_dim", head_dim)):
        if size is not None and size < 1:
            raise ConfigurationError(f"{name}={size} must be at least 1")
    if head_dim is None and hidden_size % num_heads:
        raise ConfigurationError(
            f"hidden_size={hidden_size} is not a multiple of num_heads={num_heads}; "
            "each head takes hidden_size / num_heads features, unless head_dim says how many"
        )
    return head_dim or hidden_size // num_heads


def check_key_value_heads(num_heads: int, key_value_heads: int | None) -> None:
    """Raise ConfigurationError unless each of ``key_value_heads`` serves as many of ``num_heads``; None is all."""
    if key_value_heads is not None and (key_value_heads < 1 or num_heads % key_value_heads):
        raise ConfigurationError(
            f"num_key_value_heads={key_value_heads} does not divide num_heads={num_heads}: each head of keys "
            "and values serves as many heads of queries; None gives each head one"
        )


def _check_slots(head_slots: tuple[int, ...], num_heads: int, max_length: int, sharing: str) -> None:
    if len(head_slots) != num_heads:
        raise ConfigurationError(
            f"projected_length lists {len(head_slots)} values for a layer of {num_heads} heads; give one a head"
        )
    for slots in head_slots:
        if not isinstance(slots, int) or isinstance(slots, bool) or not 1 <= slots <= max_length:
            raise ConfigurationError(
                f"projected_length={slots!r} must be a whole number from 1 to max_length={max_length}; "
                "with fewer tokens than slots there is nothing to shorten"
            )
    if len(set(head_slots)) > 1 and sharing != "none":
        raise ConfigurationError(
            f"projected_length differs between heads ({sorted(set(head_slots))}), which projection_sharing="
            f"{sharing!r} cannot have: one E for all heads has one k; use projection_sharing='none'"
        )


def _check_run(tokens_per_slot: int, window: int | None) -> None:
    if tokens_per_slot < 1 or (window or 0) % tokens_per_slot:
        raise ConfigurationError(
            f"tokens_per_slot={tokens_per_slot} must be at least 1 and divide attention_window={window}"
        )


def _listed_slots(projected_length: Any, max_length: int, heads: int, capped: bool) -> tuple[int, ...]:
    """The k of each head, at most ``max_length`` where it is ``capped``."""
    if projected_length == "auto":
        projected_length = min(max_length, max(64, min(256, -(-max_length // RUN))))
    if isinstance(projected_length, str):
        raise ConfigurationError(f"projected_length={projected_length!r} must be a number of slots, or 'auto'")
    listed = (projected_length,) * heads if isinstance(projected_length, int) else tuple(projected_length)
    return tuple(min(k, max_length) if capped and isinstance(k, int) else k for k in listed)


def _check_window(
    window: int | None, budget: float | None, projection: str, head_slots: tuple[int, ...], max_length: int
) -> None:
    if budget is not None and not budget > 0:
        raise ConfigurationError(f"memory_budget={budget!r} must be a number of tokens above 0, or None")
    if window is None:
        return
    if not isinstance(window, int) or window < 1:
        raise ConfigurationError(f"attention_window={window!r} must be a whole number of tokens, at least 1, or None")
    if projection not in POOLED:
        raise ConfigurationError(
            f"attention_window={window} needs slots that cover a run of tokens each, which projection={projection!r} "
            f"does not give; use projection in {POOLED}, or attention_window=None"
        )
    _check_blocks(window, head_slots, max_length)


def _check_selection(selected: Any, window: int | None, projection: str, *, causal: bool) -> None:
    whole = isinstance(selected, int) and not isinstance(selected, bool) and selected >= 0
    if not whole or (selected and (window is None or projection not in POOLED or causal)):
        raise ConfigurationError(
            f"selected_slots={selected!r} must be a whole number from 0 on; above 0 it needs attention_window (here "
            f"{window}), whose blocks select, slots that cover a run of tokens each (projection in {POOLED}, here "
            f"{projection!r}) and causal=False (here {causal}), since the queries of a block select together; give "
            "these, or selected_slots=0"
        )


def _check_blocks(window: int, head_slots: tuple[int, ...], max_length: int) -> None:
    """Raise ConfigurationError where slots do not divide the window, unless it sees everything."""
    sizes = {slots: base_slot_size(max_length=max_length, slots=slots) for slots in sorted(set(head_slots))}
    unfit = [slots for slots, size in sizes.items() if window % size]
    if unfit and 2 * window < max_length:  # else the window sees everything, and there are no slots
        common = math.lcm(*sizes.values())
        wider = f"attention_window={-(-window // common) * common}" if 2 * common < max_length else "no window (None)"
        fitting = {k: fitting_slots(max_length=max_length, window=window, least=k) for k in unfit}
        others = ", ".join(f"{k} for {small}" for small, k in fitting.items())
        raise ConfigurationError(
            f"attention_window={window} is not a multiple of the {sizes[unfit[0]]} tokens that a slot covers "
            f"(max_length={max_length} / projected_length={unfit[0]}); use {wider}, or a projected_length "
            f"whose slots divide the window: {others}"
        )


def fitting_slots(*, max_length: int, window: int, least: int = 1) -> int:
    """The smallest k of at least ``least`` whose slots divide the ``window``."""
    ks = (-(-max_length // size) for size in range(window, 0, -1) if window % size == 0)
    return next(k for k in ks if k >= least and window % base_slot_size(max_length=max_length, slots=k) == 0)
