"""Slow, obvious twins of the fast functions, for tests: written from the equations, one Python loop an axis.

B batch, n tokens, N the most tokens, D hidden, h heads, d head dim, k slots, C tokens a slot at full length, w window.
Loops run over batch, head, query, slot and token; only the channels of one token are a tensor. Everything is computed
in float64 and is differentiable. Equation numbers are those of the Linformer paper, arXiv 2006.04768 v3. Nothing here
is imported by the fast functions, and nothing of theirs is imported here.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class ReferenceSlots(NamedTuple):
    """The k slots of one text and one head.

    vectors: k entries (d,), None for a slot without a valid token; count: valid tokens a slot stands for;
    start, stop: the positions it covers are start <= t < stop.
    """

    vectors: list[Tensor | None]
    count: list[int]
    start: list[int]
    stop: list[int]


class ReferenceLatents(NamedTuple):
    """Latents and seekers of one head, (k, d) each, its gate () and the weight (d,) of their norm."""

    latents: Tensor
    seekers: Tensor
    gate: Tensor
    weight: Tensor


class ReferenceMemory(NamedTuple):
    """How one head shortens the sequence.

    kind: "dense" (linear and random), "weighted_mean", "mean", "max", "convolution" or "latent"; slots: k;
    max_length: N; key, value: E and F (k, N) for "dense", kernels (d, C) for "convolution", what a hidden state (D,) is
    multiplied with for its score in "weighted_mean", None otherwise; found: of "latent".
    """

    kind: str
    slots: int
    max_length: int
    key: Tensor | None = None
    value: Tensor | None = None
    found: ReferenceLatents | None = None


class ReferenceLinear(NamedTuple):
    """y = weight x + bias; weight (out, in), bias (out,) or None."""

    weight: Tensor
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        y = torch.stack([(row * x).sum() for row in self.weight.double()])
        return y if self.bias is None else y + self.bias.double()


def reference_valid(mask: Tensor | None, batch: int, length: int) -> list[list[bool]]:
    """Mask (B, n) of 0/1, or None for all ones, as nested lists of booleans."""
    if mask is None:
        return [[True] * length for _ in range(batch)]
    return [[bool(mask[b, t]) for t in range(length)] for b in range(batch)]


def reference_length(valid: Sequence[bool]) -> int:
    """The document's length L: its last valid position + 1; 0 for a row of padding."""
    length = 0
    for t, is_valid in enumerate(valid):
        if is_valid:
            length = t + 1
    return length


def reference_softmax(logits: Sequence[Tensor]) -> list[Tensor]:
    """Softmax over a list of tensors, each a scalar: exp(a_j) / sum_i exp(a_i)."""
    largest = max(float(logit.detach()) for logit in logits)
    exponentials = [torch.exp(logit - largest) for logit in logits]
    total = sum(exponentials[1:], exponentials[0])
    return [exponential / total for exponential in exponentials]


def _mix(weights: Sequence[Tensor], values: Sequence[Tensor]) -> Tensor:
    total = torch.zeros_like(values[0])
    for weight, value in zip(weights, values, strict=True):
        total = total + weight * value
    return total


def reference_slot_size(length: int, *, base_size: int, slots: int) -> int:
    """Tokens a pooled slot covers: the smallest divisor c of C with ceil(L / c) <= k."""
    for size in range(1, base_size + 1):
        if base_size % size == 0 and math.ceil(length / size) <= slots:
            return size
    raise ValueError(f"{length} tokens do not fit {slots} slots of {base_size}")


def _norm(row: Tensor) -> float:
    return math.sqrt(sum(float(value) ** 2 for value in row))


def reference_dense_projection(tokens: Sequence[Tensor], valid: Sequence[bool], matrix: Tensor) -> list[Tensor | None]:
    """E X (equation 7) of one text over its valid tokens: k entries (d,).

    tokens: n entries (d,); matrix (k, N), n <= N. Slot j is s_j sum_t E_jt x_t with
    s_j = ||E_j over all N|| / ||E_j over the valid t||; None where 1 / s_j is 0, or below a fifth of the greatest.
    """
    slots: list[Tensor | None] = []
    used = [t for t in range(len(tokens)) if valid[t]]
    shares = [_norm(row[used]) / (_norm(row) or 1.0) for row in matrix.double().detach()]
    for row, share in zip(matrix.double(), shares, strict=True):
        if share == 0.0 or share < 0.2 * max(shares):
            slots.append(None)
            continue
        scale = row.square().sum().sqrt() / torch.stack([row[t] ** 2 for t in used]).sum().sqrt()
        slots.append(_mix([scale * row[t] for t in used], [tokens[t].double() for t in used]))
    return slots


def reference_pool(
    tokens: Sequence[Tensor], valid: Sequence[bool], *, slots: int, size: int, largest: bool = False
) -> ReferenceSlots:
    """Mean (or elementwise largest) of the valid tokens, shape (d,) each, of each run of `size` positions (§4)."""
    pooled = _empty_slots(slots, size)
    for j in range(slots):
        members = _members(len(tokens), valid, pooled.start[j], pooled.stop[j])
        pooled.count[j] = len(members)
        if not members:
            continue
        total = tokens[members[0]].double()
        for t in members[1:]:
            token = tokens[t].double()
            total = torch.maximum(total, token) if largest else total + token
        pooled.vectors[j] = total if largest else total / len(members)
    return pooled


def reference_weighted_pool(
    tokens: Sequence[Tensor], valid: Sequence[bool], scores: Sequence[Tensor], *, slots: int, size: int
) -> ReferenceSlots:
    """Sum over the valid tokens, shape (d,) each, of each run of `size` positions, weighted by softmax of scores ()."""
    pooled = _empty_slots(slots, size)
    for j in range(slots):
        members = _members(len(tokens), valid, pooled.start[j], pooled.stop[j])
        pooled.count[j] = len(members)
        if members:
            weights = reference_softmax([scores[t] for t in members])
            pooled.vectors[j] = _mix(weights, [tokens[t].double() for t in members])
    return pooled


def reference_short_convolution(tokens: Sequence[Tensor], valid: Sequence[bool], taps: Tensor) -> list[Tensor]:
    """x_t + sum_r taps_r * x_(t + r - floor(c / 2)) over valid tokens of one text, n entries (D,); taps (c, D)."""
    found = []
    for t, token in enumerate(tokens):
        total = token.double()
        for r, tap in enumerate(taps.double()):
            place = t + r - len(taps) // 2
            if 0 <= place < len(tokens) and valid[place]:
                total = total + tap * tokens[place].double()
        found.append(total if valid[t] else torch.zeros_like(total))
    return found


def reference_convolution(
    tokens: Sequence[Tensor], valid: Sequence[bool], kernel: Tensor, *, slots: int
) -> ReferenceSlots:
    """Depthwise convolution, kernel = stride = C (§4), over the valid tokens of each slot.

    kernel (d, C). Channel c of slot j: sum_r w_cr x_(jC+r)c over valid taps, times
    sum |w_c| over all taps / sum |w_c| over the valid ones; 0 where all valid taps are zero.
    """
    size = kernel.shape[1]
    pooled = _empty_slots(slots, size)
    for j in range(slots):
        members = _members(len(tokens), valid, pooled.start[j], pooled.stop[j])
        pooled.count[j] = len(members)
        if not members:
            continue
        channels = []
        for c, taps in enumerate(kernel.double()):
            used = [t - pooled.start[j] for t in members]
            total = sum((taps[r] * tokens[pooled.start[j] + r][c].double() for r in used), torch.zeros(()).double())
            seen = sum((taps[r].abs() for r in used), torch.zeros(()).double())
            full = sum((tap.abs() for tap in taps), torch.zeros(()).double())
            channels.append(total * (full / seen) if float(seen.detach()) > 0.0 else torch.zeros(()).double())
        pooled.vectors[j] = torch.stack(channels)
    return pooled


def _unit(x: Tensor) -> Tensor:
    return x.double() / torch.sqrt(x.double().square().sum() / len(x) + 1e-6)


def reference_latents(
    key: Sequence[Tensor],
    value: Sequence[Tensor],
    valid: Sequence[bool],
    own: ReferenceLatents,
    *,
    exact: Sequence[int] = (),
) -> tuple[list[Tensor | None], list[Tensor | None]]:
    """Keys and values of the slots of one text and head, whose tokens have keys and values (d,): s + k entries each.

    With x^ = x / sqrt(mean(x²)) and sums over the valid tokens but ``exact`` ones:
    l_j = l0_j + g sum_t softmax(s_j^ k_t^ / sqrt(d)) k_t^,
    key j is l_j^ times the weight, value j is sum_t softmax(key_j k_t^) v_t. ``exact`` tokens, by their positions, have
    a slot each in front, with k_t^ for a key. Keys come times sqrt(d), by which attention divides.
    """
    seen = [t for t in range(len(key)) if valid[t] and t not in exact]
    root = math.sqrt(len(key[0]))
    keys: list[Tensor | None] = [_unit(key[t]) * root if valid[t] else None for t in exact]
    values: list[Tensor | None] = [value[t].double() if valid[t] else None for t in exact]
    unit = [_unit(key[t]) for t in seen]
    for latent, seeker in zip(own.latents, own.seekers, strict=True):
        if not seen:
            keys, values = [*keys, None], [*values, None]
            continue
        looks = reference_softmax([(_unit(seeker) * k).sum() / math.sqrt(len(k)) for k in unit])
        query = _unit(latent.double() + own.gate.double() * _mix(looks, unit)) * own.weight.double()
        shares = reference_softmax([(query * k).sum() for k in unit])
        keys.append(query * root)
        values.append(_mix(shares, [value[t].double() for t in seen]))
    return keys, values


def _empty_slots(slots: int, size: int) -> ReferenceSlots:
    starts = [j * size for j in range(slots)]
    return ReferenceSlots([None] * slots, [0] * slots, starts, [start + size for start in starts])


def _members(length: int, valid: Sequence[bool], start: int, stop: int) -> list[int]:
    return [t for t in range(start, min(stop, length)) if valid[t]]


def reference_attention(
    query: Sequence[Tensor], key: Sequence[Tensor | None], value: Sequence[Tensor | None]
) -> tuple[list[Tensor], Tensor]:
    """softmax(Q (E K)^T / sqrt(d)) (F V), equation 7, of one text and head, over the slots that are not None.

    query: n entries (d,); key, value: k entries (d,) or None. Returns n outputs (d,) and the weights (n, k); when every
    slot is None the outputs and weights are NaN: nothing is defined but that the fast function is finite there.
    """
    used = [j for j in range(len(key)) if key[j] is not None and value[j] is not None]
    outputs, weights = [], []
    for q in query:
        row = [torch.zeros((), dtype=torch.float64)] * len(key)
        if not used:
            outputs.append(torch.full_like(q, math.nan, dtype=torch.float64))
            weights.append(torch.full((len(key),), math.nan, dtype=torch.float64))
            continue
        logits = [(q.double() * key[j].double()).sum() / math.sqrt(len(q)) for j in used]  # ty: ignore
        shares = reference_softmax(logits)
        outputs.append(_mix(shares, [value[j].double() for j in used]))  # ty: ignore
        for j, share in zip(used, shares, strict=True):
            row[j] = share
        weights.append(torch.stack(row))
    return outputs, torch.stack(weights)


def reference_far_slots(slots: ReferenceSlots, *, block: int, window: int) -> list[int]:
    """Slots that a query of block i sees: with a valid token, and no position in blocks i-1, i, i+1."""
    near = range((block - 1) * window, (block + 2) * window)
    return [
        j
        for j in range(len(slots.count))
        if slots.count[j] > 0 and not any(t in near for t in range(slots.start[j], slots.stop[j]))
    ]


def reference_ranked_slots(
    query: Sequence[Tensor],
    valid: Sequence[bool],
    memory_key: ReferenceSlots,
    *,
    block: int,
    window: int,
    exact: Sequence[int] = (),
) -> list[tuple[float, int]]:
    """Far slots of block i, but for ``exact`` tokens, by their product with the mean query over the text of the block.

    Pairs of the product q k_j / sqrt(d) and j, the largest first, of equal ones the earlier slot; empty for a block
    without text. A number, not a tensor: no gradient flows through an order.
    """
    reach = range(block * window, min(len(query), (block + 1) * window))
    own = [query[t].detach().double() for t in reach if valid[t]]
    if not own:
        return []
    mean, ranked = sum(own[1:], own[0]) / len(own), []
    for j in reference_far_slots(memory_key, block=block, window=window):
        slot = memory_key.vectors[j]
        assert slot is not None
        if j >= len(exact):
            ranked.append((float((mean * slot.detach().double()).sum()) / math.sqrt(len(mean)), j))
    return sorted(ranked, key=lambda pair: (-pair[0], pair[1]))


def reference_windowed_attention(
    query: Sequence[Tensor],
    key: Sequence[Tensor],
    value: Sequence[Tensor],
    valid: Sequence[bool],
    memory_key: ReferenceSlots,
    memory_value: ReferenceSlots,
    *,
    window: int,
    memory_bias: Tensor | float = 0.0,
    memory_budget: float | None = None,
    exact: Sequence[int] = (),
    distance_bias: Tensor | None = None,
    selected: int = 0,
) -> list[Tensor]:
    """Exact near, compressed far, of one text and head: n outputs (d,).

    query, key, value: n entries (d,). The query at t of block i = t // w sees the valid tokens of blocks i-1, i, i+1
    with logit q k / sqrt(d), and far slots with q k_j / sqrt(d) + log(count_j) + bias + min(0, log(budget / F_i)),
    F_i the valid tokens of all the slots that block i sees. The first slots are an ``exact`` token each, outside the
    budget: they add nothing to F_i and lose nothing. NaN where nothing is visible. ``distance_bias``: see
    reference_distance_bias; that of a slot is that of every position in it, which must be one.

    The first ``selected`` of reference_ranked_slots are no slots to block i: it sees their valid tokens, but for exact
    ones, as it does near ones, and F_i is of the rest.
    """
    outputs, opened = [], []
    for t, q in enumerate(query):
        block, logits, seen = t // window, [], []
        if selected and t % window == 0:
            ranked = reference_ranked_slots(query, valid, memory_key, block=block, window=window, exact=exact)
            opened = [j for _, j in ranked[:selected]]
        near = list(range((block - 1) * window, (block + 2) * window))
        near += [s for j in opened for s in range(memory_key.start[j], memory_key.stop[j]) if s not in exact]
        for s in near:
            if 0 <= s < len(key) and valid[s]:
                distance = reference_distance_bias(distance_bias, t, s)
                logits.append((q.double() * key[s].double()).sum() / math.sqrt(len(q)) + distance)
                seen.append(value[s].double())
        far = [j for j in reference_far_slots(memory_key, block=block, window=window) if j not in opened]
        total = sum(memory_key.count[j] for j in far if j >= len(exact))
        damping = 0.0 if memory_budget is None or total == 0 else min(0.0, math.log(memory_budget / total))
        for j in far:
            slot, slot_value = memory_key.vectors[j], memory_value.vectors[j]
            assert slot is not None
            assert slot_value is not None
            similarity = (q.double() * slot).sum() / math.sqrt(len(q))
            weight = 0.0 if j < len(exact) else math.log(memory_key.count[j]) + damping
            distances = [
                reference_distance_bias(distance_bias, t, s) for s in range(memory_key.start[j], memory_key.stop[j])
            ]
            assert all(torch.equal(other, distances[0]) for other in distances), "a slot with several biases"
            logits.append(similarity + weight + memory_bias + distances[0])
            seen.append(slot_value.double())
        outputs.append(_mix(reference_softmax(logits), seen) if seen else torch.full_like(q, math.nan).double())
    return outputs


def reference_distance_bias(table: Tensor | None, query: int, key: int) -> Tensor:
    """What the ``table`` (2 r + 1,), by the distances -r to r, has for two positions; the ends beyond them."""
    if table is None:
        return torch.zeros((), dtype=torch.float64)
    reach = len(table) // 2
    return table[reach + max(-reach, min(reach, key - query))].double()


def reference_memory(
    tokens: Sequence[Tensor],
    valid: Sequence[bool],
    memory: ReferenceMemory,
    which: str,
    *,
    exact: Sequence[int] = (),
    hidden: Sequence[Tensor] = (),
) -> ReferenceSlots:
    """The slots of one text and head from its n tokens, shape (d,) each; which is "key" or "value", i.e. E or F.

    hidden: the hidden states (D,) of the tokens, for scores; exact: positions of tokens that get a slot each, in
    front, and are left out of the others.
    """
    matrix = memory.key if which == "key" else memory.value
    rest = [is_valid and t not in exact for t, is_valid in enumerate(valid)]
    if memory.kind == "dense":
        assert matrix is not None
        vectors = reference_dense_projection(tokens, rest, matrix)
        places = [0] * len(vectors)
        pooled = ReferenceSlots(vectors, [0 if v is None else 1 for v in vectors], places, places)
    elif memory.kind == "convolution":
        assert matrix is not None
        pooled = reference_convolution(tokens, rest, matrix, slots=memory.slots)
    else:
        assert memory.kind in ("weighted_mean", "mean", "max"), f"no twin of {memory.kind}"
        base = math.ceil(memory.max_length / memory.slots)
        size = reference_slot_size(reference_length(valid), base_size=base, slots=memory.slots)
        if memory.kind == "weighted_mean":
            assert matrix is not None
            scores = [(matrix.double() * state.double()).sum() for state in hidden]
            pooled = reference_weighted_pool(tokens, rest, scores, slots=memory.slots, size=size)
        else:
            pooled = reference_pool(tokens, rest, slots=memory.slots, size=size, largest=memory.kind == "max")
    return ReferenceSlots(
        [tokens[t].double() if valid[t] else None for t in exact] + pooled.vectors,
        [int(valid[t]) for t in exact] + pooled.count,
        [*exact, *pooled.start],
        [*(t + 1 for t in exact), *pooled.stop],
    )


def reference_layer(
    hidden: Tensor,
    mask: Tensor | None,
    *,
    query: ReferenceLinear,
    key: ReferenceLinear,
    value: ReferenceLinear,
    output: ReferenceLinear,
    memories: Sequence[ReferenceMemory],
    window: int | None = None,
    memory_bias: Tensor | None = None,
    memory_budget: float | None = None,
    sinks: int = 0,
    marked: Tensor | None = None,
    short_convolution: Tensor | None = None,
    selected: int = 0,
) -> Tensor:
    """Multi-head attention with a shortened sequence (equations 7 and 2), (B, n, D) -> (B, n, D) in float64.

    hidden (B, n, D); mask (B, n) of 0/1 or None; memories: one a head, as sharing hands them out; memory_bias (h,);
    sinks: leading tokens with a slot each; marked (B, n) of 0/1 or None: further ones; short_convolution: taps (c, D)
    over what comes in, or None; selected: far slots that each block sees token by token.
    Only rows of valid tokens are defined; rows of padding may hold anything.
    """
    batch, length, width = hidden.shape
    heads, features = len(memories), len(query.weight)
    valid = reference_valid(mask, batch, length)
    rows = []
    for b in range(batch):
        tokens = [hidden[b, t].double() if valid[b][t] else torch.zeros(width).double() for t in range(length)]
        if short_convolution is not None:
            tokens = reference_short_convolution(tokens, valid[b], short_convolution)
        exact = [t for t in range(length) if t < sinks or (marked is not None and bool(marked[b, t]) and valid[b][t])]
        by_head: list[list[Tensor]] = []
        for i in range(heads):
            part = slice(i * features // heads, (i + 1) * features // heads)
            q, k, v = ([linear(token)[part] for token in tokens] for linear in (query, key, value))
            if (own := memories[i].found) is not None:
                slot_keys, slot_values = reference_latents(k, v, valid[b], own, exact=exact)
                by_head.append(reference_attention([_unit(x) for x in q], slot_keys, slot_values)[0])
                continue
            slot_keys = reference_memory(k, valid[b], memories[i], "key", exact=exact, hidden=tokens)
            slot_values = reference_memory(v, valid[b], memories[i], "value", exact=exact, hidden=tokens)
            if window is None:
                by_head.append(reference_attention(q, slot_keys.vectors, slot_values.vectors)[0])
                continue
            bias = 0.0 if memory_bias is None else memory_bias[i].double()
            options = {
                "window": window,
                "memory_bias": bias,
                "memory_budget": memory_budget,
                "exact": exact,
                "selected": selected,
            }
            by_head.append(reference_windowed_attention(q, k, v, valid[b], slot_keys, slot_values, **options))
        rows.append(torch.stack([output(torch.cat([head[t] for head in by_head])) for t in range(length)]))
    return torch.stack(rows)


def reference_full_attention(
    query: Sequence[Tensor], key: Sequence[Tensor], value: Sequence[Tensor], valid: Sequence[bool]
) -> list[Tensor]:
    """softmax(Q K^T / sqrt(d)) V over the valid tokens (equation 2), of one text and head: n outputs (d,)."""
    seen = [t for t in range(len(key)) if valid[t]]
    return reference_attention(query, [key[t] for t in seen], [value[t] for t in seen])[0]


def reference_effective_map(weights: Tensor, matrix: Tensor, valid: Sequence[bool]) -> Tensor:
    """weights (n, k) times F' (k, n): the n x n map that a dense projection implies, (n, n) float64.

    F' is F scaled as in reference_dense_projection, so the map times the values is the layer's output (Theorem 1's P~).
    """
    length = weights.shape[0]
    identity = list(torch.eye(length, dtype=torch.float64))
    return _map(weights, reference_dense_projection(identity, valid, matrix))


def reference_effective_map_of_means(weights: Tensor, valid: Sequence[bool], *, size: int) -> Tensor:
    """weights (n, k) times the averaging matrix (k, n) of mean pooling: the n x n map, (n, n) float64."""
    length, slots = weights.shape
    identity = list(torch.eye(length, dtype=torch.float64))
    return _map(weights, reference_pool(identity, valid, slots=slots, size=size).vectors)


def _map(weights: Tensor, slots: Sequence[Tensor | None]) -> Tensor:
    rows = []
    for row in weights.double():
        total = torch.zeros(weights.shape[0], dtype=torch.float64)
        for j, slot in enumerate(slots):
            if slot is not None:
                total = total + row[j] * slot
        rows.append(total)
    return torch.stack(rows)


def reference_over_batch(function: Callable[[int, int], list[Tensor]], batch: int, heads: int) -> Tensor:
    """Stack function(b, head) -> n entries (d,) into (B, h, n, d)."""
    return torch.stack([torch.stack([torch.stack(function(b, i)) for i in range(heads)]) for b in range(batch)])
