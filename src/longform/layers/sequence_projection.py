"""One module for each way to shorten keys and values along the sequence; it owns E, F and their sharing.

Axes: B batch, n tokens, N longest n, S <= k slots, C = ceil(N / k), D hidden, h heads, d head dimension,
g = 1 (heads share) or h.
"""

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from longform.functional.dense import (
    Rows,
    dense_project,
    project_first_is_cheaper,
    project_heads,
    select_rows,
    shortened_heads,
)
from longform.functional.execution import cached_in_forward
from longform.functional.latent import latent_slots, unit_rms
from longform.functional.masks import blank_padding
from longform.functional.slots import (
    Exact,
    Runs,
    Slots,
    base_slot_size,
    convolve,
    divisors,
    heads_of_pooled,
    make_runs,
    max_pool,
    mean_pool,
    picked,
    pool_heads,
    pool_hidden,
    run_weights,
    with_exact_runs,
)
from longform.layers.options import Projection

SCORE_DEVIATION = 0.02  # as small as words and layers begin: runs are nearly means
LATENT_DEVIATION = 0.5


Side = Any  # the key or value layer, or Weights: has weight and bias, and takes hidden states


class ProjectionShape(NamedTuple):
    """Sizes of a layer for its projection: ``hidden_size`` D of what keys and values are made of, ``heads`` of
    ``head_dim`` d, ``slots`` k, ``max_length`` N; ``fixed_runs``: a slot stands for ceil(N / k) tokens, whatever the
    length of a text.
    """

    hidden_size: int
    heads: int
    head_dim: int
    max_length: int
    slots: int
    fixed_runs: bool = False


class SequenceProjection(nn.Module, ABC):
    """Shortens keys and values from n tokens to at most k slots, and those of ``exact`` tokens to one each in front."""

    learning_rate_multiplier: float = 1.0  # see longform.parameter_groups
    kinds: ClassVar[tuple[str, ...]] = ()  # names in longform.choices.PROJECTION_KINDS
    # Slots from hidden states at the cost of a mean; layers/streaming.py reads long texts beside a window so alone.
    pools_hidden: ClassVar[bool] = False
    multiplies_by_head: ClassVar[bool] = False  # slots from hidden states take each head's part of W_K and W_V
    has_map: ClassVar[bool] = True  # keys and values of a head are each multiplied by one matrix k x n
    single_tokens: int = 0  # of the longest text whose slots are its tokens themselves

    def __init__(self, options: Projection, shape: ProjectionShape) -> None:
        super().__init__()
        self.sinks = options.sink_tokens

    def tensors(self) -> list[Tensor]:
        """Tensors that it owns, for keys and then for values where these have others: a row a head, or one for all."""
        return []

    def from_hidden(
        self, hidden: Tensor, mask: Tensor | None, key: Side, value: Side, heads: int, exact: Exact | None = None
    ) -> Slots:
        """Slots of ``heads`` heads, (B, h, S, d), from hidden states (B, n, D), padding blanked; mask bool (B, n).

        ``key``, ``value``: the layers that make keys and values of hidden states.
        """
        slots = self.of_hidden(hidden, mask, key, value, heads, exact)
        if exact is None:
            return slots
        single = picked(hidden, exact.positions)
        keys, values = (side(single).unflatten(2, (heads, -1)) for side in (key, value))
        return with_exact(slots, self.keys_of_tokens(keys), values, exact)

    def from_heads(
        self, key: Tensor, value: Tensor, mask: Tensor | None, hidden: Tensor, exact: Exact | None = None
    ) -> Slots:
        """Slots from keys and values of every token (B, n, h, d), and the ``hidden`` states (B, n, D) of these, padding
        blanked in all.
        """
        slots = self.of_heads(key, value, mask, hidden, exact)
        if exact is None:
            return slots
        keys, values = (picked(x, exact.positions) for x in (key, value))
        return with_exact(slots, self.keys_of_tokens(keys), values, exact)

    def keys_of_tokens(self, key: Tensor) -> Tensor:
        """Keys of tokens that are a slot each, from keys (B, s, h, d): of that shape."""
        return key

    def of_hidden(
        self, hidden: Tensor, mask: Tensor | None, key: Side, value: Side, heads: int, exact: Exact | None
    ) -> Slots:
        """``from_hidden`` without the slots of the ``exact`` tokens. Here keys and values of every token are formed."""
        keys = blank_padding(key(hidden), mask).unflatten(2, (heads, -1))
        values = keys if value is key else blank_padding(value(hidden), mask).unflatten(2, (heads, -1))
        return self.of_heads(keys, values, mask, hidden, exact)

    @abstractmethod
    def of_heads(self, key: Tensor, value: Tensor, mask: Tensor | None, hidden: Tensor, exact: Exact | None) -> Slots:
        """``from_heads`` without the slots of the ``exact`` tokens."""

    @abstractmethod
    def reset_parameters(self) -> None:
        """Draw new initial weights."""


class Learned(nn.Module, ABC):
    """One learned or fixed tensor, (g, k, N) or (g, d, C), as ``name``; a call gives it, so that offloading works, and
    PEFT's LoRA on parameters, whose call has an argument.
    """

    def __init__(self, name: str, shape: tuple[int, ...], *, fixed: bool, frozen: bool) -> None:
        super().__init__()
        self.name = name
        if fixed:
            self.register_buffer(name, torch.empty(shape))
        else:
            self.register_parameter(name, nn.Parameter(torch.empty(shape), requires_grad=not frozen))

    def forward(self, _: None = None) -> Tensor:
        """The tensor itself."""
        return getattr(self, self.name)

    @abstractmethod
    def initial(self) -> Tensor:
        """New initial values."""

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the tensor anew."""
        getattr(self, self.name).copy_(self.initial())


def block_mean_matrix(slots: int, length: int, sinks: int = 0) -> Tensor:
    """E (k, N) whose first ``sinks`` rows take one leading position each, and whose others average even runs.

    Row s + j averages positions s + floor(j (N - s) / (k - s)) to s + floor((j + 1) (N - s) / (k - s)) - 1.
    """
    edges = torch.arange(slots - sinks + 1) * (length - sinks) // (slots - sinks) + sinks
    edges = torch.cat([torch.arange(sinks), edges])
    positions = torch.arange(length)
    inside = (positions >= edges[:-1, None]) & (positions < edges[1:, None])
    return inside / inside.sum(dim=1, keepdim=True)


class _Matrix(Learned):
    """E or F, (g, k, N): N(0, 1/k), or with ``block_mean`` block means beside ``sinks`` leading tokens."""

    def __init__(self, shape: tuple[int, int, int], *, block_mean: bool, sinks: int, fixed: bool, frozen: bool) -> None:
        super().__init__("matrix", shape, fixed=fixed, frozen=frozen)
        self.block_mean, self.sinks = block_mean, sinks

    def initial(self) -> Tensor:
        matrix = getattr(self, self.name)
        if self.block_mean:
            return block_mean_matrix(*matrix.shape[1:], self.sinks).to(matrix).expand_as(matrix)
        return torch.empty_like(matrix).normal_(std=matrix.shape[1] ** -0.5)


class _Kernel(Learned):
    """A convolution's taps, (g, d, C): at first the mean."""

    def __init__(self, shape: tuple[int, int, int], *, frozen: bool) -> None:
        super().__init__("kernel", shape, fixed=False, frozen=frozen)

    def initial(self) -> Tensor:
        kernel = getattr(self, self.name)
        return torch.full_like(kernel, 1.0 / kernel.shape[2])


class DenseProjection(SequenceProjection):
    """Learned E and F (paper §4), or fixed random ones N(0, 1/k) that are saved with the model (theorem 1's R)."""

    kinds = ("linear", "random")

    def __init__(self, options: Projection, shape: ProjectionShape) -> None:
        super().__init__(options, shape)
        self.rescale = options.rescale
        size = (shape.heads if options.sharing == "none" else 1, shape.slots, shape.max_length)
        random = options.kind == "random"
        block_mean = options.init == "block_mean" and not random
        law: Any = {"block_mean": block_mean, "sinks": self.sinks, "fixed": random, "frozen": options.frozen}
        self.key_projection = _Matrix(size, **law)
        self.of_all_layers = options.sharing == "layerwise"
        tied = options.sharing == "key_value" or self.of_all_layers
        self.value_projection = None if tied else _Matrix(size, **law)
        self.key_bias, self.value_bias = (
            nn.Parameter(torch.empty(size[:2])) if options.bias else None for _ in range(2)
        )
        if block_mean:  # of an entry, k / N, a step of Adam is 1/32: see docs/concepts/projections.md
            self.learning_rate_multiplier = shape.slots / (32 * shape.max_length)
        self.reset_parameters()

    def tensors(self) -> list[Tensor]:
        """E, and F where it is not E: each (g, k, N)."""
        if self.value_projection is None:
            return [self.key_projection(None)]
        return [self.key_projection(None), self.value_projection(None)]

    def reset_parameters(self) -> None:
        """Draw E and F anew; biases are zero."""
        _reset(self)
        for bias in (self.key_bias, self.value_bias):
            if bias is not None:
                nn.init.zeros_(bias)

    def of_hidden(
        self, hidden: Tensor, mask: Tensor | None, key: Side, value: Side, heads: int, exact: Exact | None
    ) -> Slots:
        """E'(X W_K) and F'(X W_V), in the cheaper order of products; E X is formed once where E = F."""
        if exact is not None:
            mask, hidden = exact.rest, blank_padding(hidden, exact.rest)
        rows, usable = self.rows(mask, hidden.shape[1])
        matrices, slots, length = rows[0].matrix.shape
        last = project_first_is_cheaper(
            n=rows[0].columns if torch.compiler.is_compiling() else length,
            k=slots,
            hidden=hidden.shape[2],
            heads=heads,
            per_head=matrices > 1,
            shared=len(rows) == 1,
        )
        first = dense_project(hidden, rows[0]) if last else None
        keys = shortened_heads(hidden, key.weight, key.bias, rows[0], heads=heads, short=first)
        if last and key is value and len(rows) == 1:
            values = keys
        else:
            second = dense_project(hidden, rows[1]) if last and len(rows) == 2 else first
            values = shortened_heads(hidden, value.weight, value.bias, rows[-1], heads=heads, short=second)
        return Slots(keys, values, usable, None) if self.key_bias is None else self._biased(keys, values, usable)

    def of_heads(self, key: Tensor, value: Tensor, mask: Tensor | None, hidden: Tensor, exact: Exact | None) -> Slots:
        """E' K and F' V."""
        if exact is not None:
            mask, there = exact.rest, exact.rest[..., None, None]
            key, value = torch.where(there, key, 0.0), torch.where(there, value, 0.0)
        rows, usable = self.rows(mask, key.shape[1])
        keys, values = project_heads(key, rows[0]), project_heads(value, rows[-1])
        return Slots(keys, values, usable, None) if self.key_bias is None else self._biased(keys, values, usable)

    def _biased(self, keys: Tensor, values: Tensor, usable: Tensor | None) -> Slots:
        """E's bias, and F's, one number a slot, on keys and values (B, h, k, d)."""
        assert self.key_bias is not None
        assert self.value_bias is not None
        return Slots(keys + self.key_bias[..., None], values + self.value_bias[..., None], usable, None)

    def rows(self, mask: Tensor | None, length: int) -> tuple[list[Rows], Tensor | None]:
        """The parts of E, and of F where it is not E, that are used; bool (B, g, k) or None: slots with valid mass."""
        rows = []
        for matrix in self.tensors():
            if self.of_all_layers and not torch.is_grad_enabled():
                rows.append(cached_in_forward(select_rows, matrix, mask, length=length, rescale=self.rescale))
            else:
                rows.append(select_rows(matrix, mask, length=length, rescale=self.rescale))
        first, last = rows[0].occupied, rows[-1].occupied
        return rows, None if first is None or last is None else first & last


class RunProjection(SequenceProjection):
    """Slots that stand for runs of tokens each, of one of ``sizes``: the base of means, maxima and convolutions.

    The sizes are the divisors of C, or C only where it is ``fixed``. W comes first where nothing else is said: neither
    a maximum nor a convolution of each channel commutes with it.
    """

    def __init__(self, options: Projection, shape: ProjectionShape, *, fixed: bool = False) -> None:
        super().__init__(options, shape)
        base = base_slot_size(max_length=shape.max_length, slots=shape.slots)
        self.slots, self.sizes = shape.slots, (base,) if fixed or shape.fixed_runs else divisors(base)
        self.single_tokens = self.slots if self.sizes[0] == 1 else 0

    @abstractmethod
    def pool(
        self, key: Tensor, value: Tensor, runs: Runs, counted: Tensor | None, hidden: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Keys and values of every token, (B, n, h, d), padding blanked -> (B, S, h, d) each, zeros for empty slots.

        ``counted`` bool (B, n): the tokens that ``runs`` are made of, None for all; ``hidden`` (B, n, D): what keys and
        values are made of. S is that of ``runs.count``. In longform.distributed the tokens are a part of a text.
        """

    def of_heads(self, key: Tensor, value: Tensor, mask: Tensor | None, hidden: Tensor, exact: Exact | None) -> Slots:
        """Keys and values of every token, each run to a slot."""
        counted, runs, usable = self.runs_of(mask, exact, key)
        keys, values = self.pool(key, value, runs, counted, hidden)
        return Slots(keys.transpose(1, 2), values.transpose(1, 2), usable, runs)

    def runs_of(
        self, mask: Tensor | None, exact: Exact | None, x: Tensor, *, length: int | None = None
    ) -> tuple[Tensor | None, Runs, Tensor | None]:
        """The tokens of x (B, n, ...) that are in runs, bool (B, n) or None for all; the runs; and the slots that hold
        text, bool (B, 1, S), or None where each is known to. ``length``: n, where x is of a part of the texts.
        """
        counted = mask if exact is None else exact.rest
        where: Any = {"batch": x.shape[0], "length": length or x.shape[1], "device": x.device}
        runs = cached_in_forward(make_runs, mask, counted, sizes=self.sizes, slots=self.slots, **where)
        if mask is None and runs.uniform is not None and not torch.compiler.is_compiling():
            return counted, runs, None
        return counted, runs, cached_in_forward(_hold_text, runs.count)


def with_exact(slots: Slots, key: Tensor, value: Tensor, exact: Exact) -> Slots:
    """``slots``, and in front of them keys and values (B, s, h, d) of the ``exact`` tokens, of which those that are not
    there may be anything.
    """
    there = exact.there[..., None, None]
    keys, values = (
        torch.cat([torch.where(there, x, 0.0).transpose(1, 2), old], dim=2)
        for x, old in ((key, slots.key), (value, slots.value))
    )
    if slots.runs is None:
        usable = slots.usable
        if usable is None:
            usable = torch.ones(len(keys), 1, slots.key.shape[2], dtype=torch.bool, device=keys.device)
        usable = torch.cat([exact.there[:, None].expand(-1, usable.shape[1], -1), usable], dim=2)
        return Slots(keys, values, usable, None)
    # FlashAttention takes no mask, and needs none where each slot is known to hold a token that is not exact.
    most = min(exact.rest.shape[1], slots.runs.uniform or 0) if slots.usable is None else 0
    runs = cached_in_forward(with_exact_runs, slots.runs, exact)
    usable = None if 0 < exact.leading < most else cached_in_forward(_hold_text, runs.count)
    return Slots(keys, values, usable, runs)


class MeanProjection(RunProjection):
    """Mean over runs of tokens; nothing to learn."""

    kinds = ("mean",)
    pools_hidden = True

    def reset_parameters(self) -> None:
        """Nothing to draw."""

    def of_hidden(
        self, hidden: Tensor, mask: Tensor | None, key: Side, value: Side, heads: int, exact: Exact | None
    ) -> Slots:
        """Means of hidden states, then W: the mean commutes with a linear layer."""
        counted, runs, usable = self.runs_of(mask, exact, hidden)
        [short] = mean_pool(hidden, runs=runs, limit=self.slots, counted=None if exact is None else counted)
        keys, values = key(short).unflatten(2, (heads, -1)), value(short).unflatten(2, (heads, -1))
        return Slots(keys.transpose(1, 2), values.transpose(1, 2), usable, runs)

    def pool(
        self, key: Tensor, value: Tensor, runs: Runs, counted: Tensor | None, hidden: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The mean of each run."""
        heads = key.shape[2:]
        keys, values = mean_pool(key.flatten(2), value.flatten(2), runs=runs, limit=self.slots, counted=counted)
        return keys.unflatten(2, heads), values.unflatten(2, heads)


class _Scores(nn.Linear):
    """A linear layer that begins as N(0, 0.02²)."""

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=SCORE_DEVIATION)


class WeightedMeanProjection(RunProjection):
    """Mean over runs of tokens weighted by content: a linear score of each token for each head's keys and values."""

    kinds = ("weighted_mean",)
    pools_hidden = multiplies_by_head = True

    def __init__(self, options: Projection, shape: ProjectionShape) -> None:
        super().__init__(options, shape)
        self.heads = shape.heads
        # A bias, the same for all tokens of a run, would be nothing to a softmax.
        self.scores = _Scores(shape.hidden_size, 2 * shape.heads, bias=False)
        self.scores.requires_grad_(not options.frozen)

    def tensors(self) -> list[Tensor]:
        """Weights of the scores of keys and of values: (h, 1, D) each."""
        return list(self.scores.weight.unflatten(0, (2, -1, 1)))

    def reset_parameters(self) -> None:
        """Draw the scores anew."""
        self.scores.reset_parameters()

    def of_hidden(
        self, hidden: Tensor, mask: Tensor | None, key: Side, value: Side, heads: int, exact: Exact | None
    ) -> Slots:
        """Weighted means of hidden states, then W of each head; W first where texts have runs of several sizes, and on
        a GPU where h pooled rows a run are more than its tokens.
        """
        counted, runs, usable = self.runs_of(mask, exact, hidden)
        size = runs.uniform
        if size is None or size == 1 or (hidden.is_cuda and size < heads) or torch.compiler.is_compiling():
            return super().of_hidden(hidden, mask, key, value, heads, exact)
        weights = run_weights(self.scores(hidden), runs, counted, limit=self.slots)
        own, other = pool_hidden(hidden, weights, size).split(heads)
        number = -(-hidden.shape[1] // size)
        keys = heads_of_pooled(own, key.weight, key.bias, runs=number)
        values = heads_of_pooled(other, value.weight, value.bias, runs=number)
        return Slots(keys, values, usable, runs)

    def pool(
        self, key: Tensor, value: Tensor, runs: Runs, counted: Tensor | None, hidden: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The weighted mean of each run.

        A run of one token is that token, unless the scores must have a gradient, or a compiled graph counts more runs
        than there are tokens.
        """
        if runs.uniform == 1 and not (in_process_group() or torch.compiler.is_compiling()):
            return key, value
        weights = run_weights(self.scores(hidden), runs, counted, limit=self.slots)
        return pool_heads(key, value, weights, runs, limit=self.slots)


class PlacedMeanProjection(SequenceProjection):
    """Weighted means of runs of C tokens, and beside each a random mixture of all places that is learned:
    K'_j = sum of p_t K_t over run j + a_h (E K)_j.

    E (ceil(N / C), N) begins as N(0, 1/k) and learns at the network's rate, a_h of each head (one for keys, one for
    values) begins at zero: first there is content only.
    """

    multiplies_by_head = True

    def __init__(self, options: Projection, shape: ProjectionShape) -> None:
        super().__init__(options, shape)
        plain = replace(options, places=False)
        self.content = WeightedMeanProjection(plain, shape._replace(fixed_runs=True))
        slots = -(-shape.max_length // self.content.sizes[0])
        self.places = DenseProjection(replace(plain, kind="linear", init="normal"), shape._replace(slots=slots))
        self.place_share = nn.Parameter(torch.zeros(2, shape.heads, 1, 1), requires_grad=not options.frozen)

    def tensors(self) -> list[Tensor]:
        """Tensors of the content and of the places, and the share of the places in keys and in values."""
        return [*self.content.tensors(), *self.places.tensors(), *self.place_share]

    def reset_parameters(self) -> None:
        """Back to content only."""
        self.content.reset_parameters()
        self.places.reset_parameters()
        nn.init.zeros_(self.place_share)

    def of_hidden(
        self, hidden: Tensor, mask: Tensor | None, key: Side, value: Side, heads: int, exact: Exact | None
    ) -> Slots:
        """Sums over runs and over all places of hidden states, then W."""
        given: Any = hidden, mask, key, value, heads, exact
        return self._sum(self.content.of_hidden(*given), self.places.of_hidden(*given))

    def of_heads(self, key: Tensor, value: Tensor, mask: Tensor | None, hidden: Tensor, exact: Exact | None) -> Slots:
        """Sums over runs and over all places of keys and values."""
        given: Any = key, value, mask, hidden, exact
        return self._sum(self.content.of_heads(*given), self.places.of_heads(*given))

    def _sum(self, content: Slots, places: Slots) -> Slots:
        shares = self.place_share.to(content.key.dtype)
        # A shorter text has fewer runs than E has rows, a compiled graph more, which are empty. A slice would tie it to
        # some lengths.
        first = torch.arange(content.key.shape[2], device=content.key.device).clamp(max=places.key.shape[2] - 1)
        key = content.key + shares[0] * places.key.index_select(2, first)
        return content._replace(key=key, value=content.value + shares[1] * places.value.index_select(2, first))


class MaxProjection(RunProjection):
    """Elementwise maximum of keys and of values over runs of tokens; nothing to learn."""

    kinds = ("max",)
    has_map = False

    def reset_parameters(self) -> None:
        """Nothing to draw."""

    def pool(
        self, key: Tensor, value: Tensor, runs: Runs, counted: Tensor | None, hidden: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The maximum of each run."""
        heads = key.shape[2:]
        keys, values = (max_pool(x.flatten(2), runs, counted, limit=self.slots) for x in (key, value))
        return keys.unflatten(2, heads), values.unflatten(2, heads)


class ConvolutionProjection(RunProjection):
    """Trained depthwise convolution, kernel = stride = C = ceil(N / k); starts as the mean."""

    kinds = ("convolution",)
    has_map = False

    def __init__(self, options: Projection, shape: ProjectionShape) -> None:
        super().__init__(options, shape, fixed=True)
        size = (shape.heads if options.sharing == "none" else 1, shape.head_dim, self.sizes[0])
        self.single_tokens = 0  # not even where C is 1, which a tap scales
        self.key_projection = _Kernel(size, frozen=options.frozen)
        tied = options.sharing in ("key_value", "layerwise")
        self.value_projection = None if tied else _Kernel(size, frozen=options.frozen)
        self.reset_parameters()

    def tensors(self) -> list[Tensor]:
        """The kernel of keys, and that of values where it is another: each (g, d, C)."""
        owners = (self.key_projection, self.value_projection)
        return [owner(None) for owner in owners if owner is not None]

    def reset_parameters(self) -> None:
        """Back to the mean."""
        _reset(self)

    def pool(
        self, key: Tensor, value: Tensor, runs: Runs, counted: Tensor | None, hidden: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Each run's taps."""
        kernels = self.tensors()
        blank = [x if counted is None else torch.where(counted[..., None, None], x, 0.0) for x in (key, value)]
        return convolve(blank[0], kernels[0], counted), convolve(blank[1], kernels[-1], counted)


class _Latents(Learned):
    """A tensor of each head, N(0, deviation²), about ``mean``."""

    def __init__(self, shape: tuple[int, int, int], *, deviation: float, mean: float = 0.0, frozen: bool) -> None:
        super().__init__("latents", shape, fixed=False, frozen=frozen)
        self.deviation, self.mean = deviation, mean

    def initial(self) -> Tensor:
        latents = getattr(self, self.name)
        return torch.empty_like(latents).normal_(std=self.deviation).add_(self.mean)


class LatentProjection(SequenceProjection):
    """k latents of each head attend to all tokens but exact ones, see functional/latent.py; an order of the tokens
    plays no part.
    """

    kinds = ("latent",)
    has_map = False

    def __init__(self, options: Projection, shape: ProjectionShape) -> None:
        super().__init__(options, shape)
        size, frozen = (shape.heads, shape.slots, shape.head_dim), options.frozen
        self.latents, self.seekers = (_Latents(size, deviation=LATENT_DEVIATION, frozen=frozen) for _ in range(2))
        self.gate = _Latents((shape.heads, 1, 1), deviation=0.0, frozen=frozen)
        self.norm = _Latents((shape.heads, 1, shape.head_dim), deviation=0.0, mean=1.0, frozen=frozen)
        self.reset_parameters()

    def tensors(self) -> list[Tensor]:
        """A row for each head: latents, seekers, gates and the norm's weights, as ``latent_slots`` takes them."""
        return [part(None) for part in (self.latents, self.seekers, self.gate, self.norm)]

    def reset_parameters(self) -> None:
        """Draw the latents anew, which find nothing in the text yet."""
        _reset(self)

    def of_heads(self, key: Tensor, value: Tensor, mask: Tensor | None, hidden: Tensor, exact: Exact | None) -> Slots:
        """Slots of what each latent finds among keys and values of all tokens but exact ones."""
        seen = mask if exact is None else exact.rest
        keys, values = latent_slots(*(x.transpose(1, 2) for x in (key, value)), *self.tensors(), mask=seen)
        if exact is None:
            return Slots(keys, values, None, None)
        return Slots(keys, values, exact.rest.any(dim=1)[:, None, None].expand(-1, 1, keys.shape[2]), None)

    def keys_of_tokens(self, key: Tensor) -> Tensor:
        """Keys of one length, as queries and the keys of latents have."""
        return unit_rms(key) * key.shape[-1] ** 0.5


def _reset(projection: nn.Module) -> None:
    for part in projection.children():
        assert isinstance(part, Learned)
        part.reset_parameters()


def in_process_group() -> bool:
    """Data-parallel training wants a gradient of every parameter, those of slots too, from every batch."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _hold_text(count: Tensor) -> Tensor:
    return (count > 0)[:, None]


CLASSES = (
    DenseProjection, WeightedMeanProjection, MeanProjection, MaxProjection, ConvolutionProjection, LatentProjection,
)  # fmt: skip


def make_projection(options: Projection | str, **shape: Any) -> SequenceProjection:
    """The module for ``options``, or for a kind of Projection, and sizes as in ProjectionShape."""
    chosen = Projection.of(options)
    made = PlacedMeanProjection if chosen.places else next(each for each in CLASSES if chosen.kind in each.kinds)
    return made(chosen, ProjectionShape(**shape))
