"""Triton's programs for attention with a window: queries walk their near keys, then all slots, with one softmax.

Near tokens, slots and, with selection, the tokens of selected slots (``kind`` NEAR, SLOTS, OPENED) are rounds of one
loop, which differ in where keys stand and in what is added to their logits. Logits are in units of log 2, as exp2 is
what a GPU computes. A row of a tensor is one token or slot of one head, of ``D`` features in ``WIDE``, the next power
of two. A tile of queries that lies in one block (``ROWS`` 1, else as many as it has queries) needs one number a key for
what is seen, and no table of pairs. With selection each block has tiles of its own, since each has another list of
keys; ``chosen`` is then there, and ``logit`` is (B, h, b, S).

Imported late, by triton_kernel.py: whether ``triton.jit`` compiles or interprets is decided when this file is read.

Axes: B batch, n tokens, S slots, h heads, d head dimension, w block, b blocks, m selected slots.
"""

# Arguments stand in groups.
# fmt: off

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
NEAR, SLOTS, OPENED = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
# Numbers that compile nothing anew.
VARYING = ["length", "slots", "blocks", "singles", "first", "part", "chunk", "picked", "span"]


@triton.jit
def load_rows(x, strides, b, h, at, count, D: tl.constexpr, WIDE: tl.constexpr):
    """Rows ``at`` (m, 1) of x (B, h, count, d): (m, WIDE), zeros past the end."""
    features = tl.arange(0, WIDE)[None, :]
    start = x + b.to(tl.int64) * strides[0] + h.to(tl.int64) * strides[1]
    inside = (at < count) & (features < D)
    return tl.load(start + at.to(tl.int64) * strides[2] + features, mask=inside, other=0.0)


@triton.jit
def store_rows(x, strides, b, h, at, count, rows, D: tl.constexpr, WIDE: tl.constexpr):
    """Write ``rows`` (m, WIDE) where ``load_rows`` reads."""
    features = tl.arange(0, WIDE)[None, :]
    start = x + b.to(tl.int64) * strides[0] + h.to(tl.int64) * strides[1]
    inside = (at < count) & (features < D)
    tl.store(start + at.to(tl.int64) * strides[2] + features, rows.to(x.dtype.element_ty), mask=inside)


@triton.jit
def text_end(ends, b, which: tl.constexpr, count):
    """One past the last token (``which`` 0) or slot (1) of text ``b`` that holds any."""
    return count if ends is None else tl.load(ends + 2 * b + which)


@triton.jit
def tile_of(block, number, length, QUERIES: tl.constexpr, WINDOW: tl.constexpr):
    """The first query of a tile of a ``block``, and one past the block's last; ``number``: with the blocks before."""
    begin = block * WINDOW + number % ((WINDOW + QUERIES - 1) // QUERIES) * QUERIES
    return begin, tl.minimum(length, (block + 1) * WINDOW)


@triton.jit
def own_tile(chosen, length, QUERIES: tl.constexpr, WINDOW: tl.constexpr):
    """The first query of this program's tile, and one past the last that it may have."""
    number = tl.program_id(1)
    if chosen is None:
        return number * QUERIES, length
    else:
        return tile_of(number // ((WINDOW + QUERIES - 1) // QUERIES), number, length, QUERIES, WINDOW)


@triton.jit
def tokens_of(slot, place, sizes, b, singles, length):
    """The tokens at ``place`` (m) in a slot, as selection.tokens_of has them; ``length`` for none."""
    size = tl.load(sizes + b).to(tl.int32)
    at = (slot - singles) * size + place
    return tl.where((place < size) & (at >= 0), at, length)


@triton.jit
def opened_at(chosen, sizes, b, block, place, blocks, picked, span, singles, length):
    """The tokens at ``place`` (m) among those of all slots that a ``block`` selected; ``length`` for none."""
    row = (tl.program_id(0).to(tl.int64) * blocks + block) * picked
    slot = tl.load(chosen + row + place // span, mask=place // span < picked, other=-1)
    return tokens_of(slot, place % span, sizes, b, singles, length)


@triton.jit
def near_seen(valid, counted, b, query_block, key_at, length, WINDOW: tl.constexpr, kind: tl.constexpr):
    """Whether queries see tokens exactly: bool, as ``query_block`` and ``key_at`` broadcast."""
    seen = key_at < length
    if kind == NEAR:
        seen = seen & (tl.abs(query_block - key_at // WINDOW) <= 1)
        if valid is not None:
            seen = seen & (tl.load(valid + b * length + key_at, mask=key_at < length, other=0) != 0)
    elif counted is not None:
        seen = seen & (tl.load(counted + b * length + key_at, mask=key_at < length, other=0) != 0)
    return seen


@triton.jit
def near_added(
    valid, counted, distance, b, h, query_at, query_block, key_at, length, WINDOW: tl.constexpr, REACH: tl.constexpr,
    CAUSAL: tl.constexpr, kind: tl.constexpr,
):
    """Bias of the logits of tokens; see formula.near_bias and formula.near_distances."""
    seen = near_seen(valid, counted, b, query_block, key_at, length, WINDOW, kind)
    added = tl.where(seen & (key_at <= query_at) if CAUSAL else seen, 0.0, float("-inf"))
    if distance is not None:
        apart = tl.minimum(tl.maximum(key_at - query_at, -REACH), REACH) + REACH
        added = added + tl.load(distance + h * (2 * REACH + 1) + apart)
    return added


@triton.jit
def far_added(
    chosen, home, logit, less, head_bias, distance, b, h, query_block, key_at, slots, blocks, singles, first,
    REACH: tl.constexpr, CAUSAL: tl.constexpr,
):
    """Bias of the logits of slots; see formula.far_bias and formula.far_distances."""
    own = tl.load(home + b * slots + key_at, mask=key_at < slots, other=0)
    if chosen is None:
        added = tl.load(logit + b * slots + key_at, mask=key_at < slots, other=float("-inf"))
    else:
        row = (tl.program_id(0).to(tl.int64) * blocks + query_block) * slots
        inside = (key_at < slots) & (query_block < blocks)
        added = tl.load(logit + row + key_at, mask=inside, other=float("-inf"))
    if head_bias is not None:
        added = added + tl.load(head_bias + h)
    if less is not None:
        beyond = tl.load(less + b * blocks + query_block, mask=query_block < blocks, other=0.0)
        added = added + tl.where(key_at >= singles, beyond, 0.0)
    if distance is not None:
        ends = distance + h * (2 * REACH + 1)
        added = added + tl.where(own < query_block + first, tl.load(ends), tl.load(ends + 2 * REACH))
    if chosen is None:
        apart = query_block + first - own
        added = tl.where((apart if CAUSAL else tl.abs(apart)) > 1, added, float("-inf"))
    return added


@triton.jit
def near_span(start, end, SIZE: tl.constexpr, WINDOW: tl.constexpr):
    """The first token of the blocks around ``SIZE`` tokens from ``start`` on, and one past the last before ``end``."""
    low, high = tl.maximum(start // WINDOW - 1, 0) * WINDOW, ((start + SIZE - 1) // WINDOW + 2) * WINDOW
    return low, tl.minimum(high, end)


@triton.jit
def walked(
    kind: tl.constexpr, ends, b, start, length, slots, picked, span, SIZE: tl.constexpr, FAR: tl.constexpr,
    WINDOW: tl.constexpr, CAUSAL: tl.constexpr,
):
    """The first key that a tile of queries meets in this round, and one past the last: none where it has no text."""
    end = text_end(ends, b, 0, length)
    if kind == SLOTS:
        low, high = 0, (text_end(ends, b, 1, slots) if FAR else 0)
    elif kind == OPENED:
        low, high = 0, (picked * span if FAR else 0)
    else:
        low, high = near_span(start, end, SIZE, WINDOW)
        if CAUSAL:
            high = tl.minimum(high, start + SIZE)
    return low, tl.where(start < end, high, low)


@triton.jit
def met(
    kind: tl.constexpr, key, value, slot_key, slot_value, k_strides, v_strides, sk_strides, sv_strides,
    chosen, valid, counted, home, logit, less, head_bias, distance, b, h, query_at, query_block, key_at,
    length, slots, blocks, singles, first,
    WINDOW: tl.constexpr, REACH: tl.constexpr, CAUSAL: tl.constexpr, D: tl.constexpr, WIDE: tl.constexpr,
):
    """The keys at ``key_at`` (m), their values, and what is added to their logits."""
    rows, columns = key_at[:, None], key_at[None, :]
    if kind == SLOTS:
        k = load_rows(slot_key, sk_strides, b, h, rows, slots, D, WIDE)
        v = load_rows(slot_value, sv_strides, b, h, rows, slots, D, WIDE)
        added = far_added(
            chosen,
            home,
            logit,
            less,
            head_bias,
            distance,
            b,
            h,
            query_block,
            columns,
            slots,
            blocks,
            singles,
            first,
            REACH,
            CAUSAL,
        )
    else:
        k = load_rows(key, k_strides, b, h, rows, length, D, WIDE)
        v = load_rows(value, v_strides, b, h, rows, length, D, WIDE)
        added = near_added(
            valid, counted, distance, b, h, query_at, query_block, columns, length, WINDOW, REACH, CAUSAL, kind
        )
    return k, v, added


@triton.jit
def add_by_distance(
    kind: tl.constexpr, d_logits, d_distance, home, b, pair, query_at, query_block, key_at, slots, first,
    REACH: tl.constexpr,
):
    """Add the gradients of logits to those of the bias by distance; each side's ends are summed before."""
    ends = d_distance + pair * (2 * REACH + 1)
    columns = key_at[None, :]
    if kind == SLOTS:
        own = tl.load(home + b * slots + columns, mask=columns < slots, other=0)
        left = own < query_block + first
        right = own >= query_block + first
    else:
        apart = columns - query_at
        left, right = apart < -REACH, apart > REACH
        inside = (tl.abs(apart) <= REACH) & (d_logits != 0.0)
        tl.atomic_add(ends + REACH + apart, d_logits, mask=inside, sem="relaxed")
    tl.atomic_add(ends, tl.sum(tl.where(left, d_logits, 0.0)), sem="relaxed")
    tl.atomic_add(ends + 2 * REACH, tl.sum(tl.where(right, d_logits, 0.0)), sem="relaxed")


@triton.jit(do_not_specialize=VARYING)
def forward(
    query, key, value, slot_key, slot_value, valid, ends, home, logit, less, head_bias, distance,
    out, lse, q_strides, k_strides, v_strides, sk_strides, sv_strides, out_strides,
    chosen, sizes, counted, scale, heads, length, slots, blocks, singles, first, picked, span,
    FAR: tl.constexpr, WINDOW: tl.constexpr, REACH: tl.constexpr, CAUSAL: tl.constexpr, D: tl.constexpr,
    WIDE: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr,
):
    """A tile of queries: ``out`` (B, h, n, d), zeros on padding, and ``lse`` (B, h, n), infinite there."""
    start, stop = own_tile(chosen, length, QUERIES, WINDOW)
    b, h = tl.program_id(0) // heads, tl.program_id(0) % heads
    query_at = start + tl.arange(0, QUERIES)[:, None]
    query_block = (start + tl.arange(0, ROWS)[:, None]) // WINDOW
    q = load_rows(query, q_strides, b, h, query_at, length, D, WIDE)
    peak = tl.full([QUERIES], float("-inf"), tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    acc = tl.zeros([QUERIES, WIDE], tl.float32)
    for kind in tl.static_range(2 if chosen is None else 3):
        low, high = walked(kind, ends, b, start, length, slots, picked, span, QUERIES, FAR, WINDOW, CAUSAL)
        for begin in range(low, high, KEYS):
            key_at = begin + tl.arange(0, KEYS)
            if kind == OPENED:
                key_at = opened_at(chosen, sizes, b, start // WINDOW, key_at, blocks, picked, span, singles, length)
            k, v, added = met(
                kind, key, value, slot_key, slot_value, k_strides, v_strides, sk_strides, sv_strides,
                chosen, valid, counted, home, logit, less, head_bias, distance, b, h, query_at, query_block, key_at,
                length, slots, blocks, singles, first, WINDOW, REACH, CAUSAL, D, WIDE,
            )
            logits = tl.dot(q, tl.trans(k), input_precision=PRECISION) * (scale * LOG2E) + added * LOG2E
            higher = tl.maximum(peak, tl.max(logits, 1))
            level = tl.where(higher == float("-inf"), 0.0, higher)
            weights = tl.exp2(logits - level[:, None])
            kept = tl.exp2(peak - level)
            total = total * kept + tl.sum(weights, 1)
            acc = tl.dot(weights.to(v.dtype), v, acc * kept[:, None], input_precision=PRECISION)
            peak = higher
    rows = start + tl.arange(0, QUERIES)
    seen = total > 0
    if valid is not None:
        seen = seen & (tl.load(valid + b * length + rows, mask=rows < length, other=0) != 0)
    acc = acc * tl.where(seen, 1.0 / tl.where(seen, total, 1.0), 0.0)[:, None]
    level = tl.where(seen, peak + tl.log2(tl.where(seen, total, 1.0)), float("inf"))
    store_rows(out, out_strides, b, h, query_at, stop, acc, D, WIDE)
    tl.store(lse + tl.program_id(0).to(tl.int64) * length + rows, level, mask=rows < stop)


@triton.jit(do_not_specialize=VARYING)
def backward_queries(
    query, key, value, slot_key, slot_value, valid, ends, home, logit, less, head_bias, distance,
    out, lse, q_strides, k_strides, v_strides, sk_strides, sv_strides, out_strides,
    d_out, d_out_strides, d_query, d_query_strides, delta, d_bias, d_distance,
    chosen, sizes, counted, scale, heads, length, slots, blocks, singles, first, picked, span,
    FAR: tl.constexpr, WINDOW: tl.constexpr, REACH: tl.constexpr, CAUSAL: tl.constexpr, D: tl.constexpr,
    WIDE: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr,
):
    """A tile of queries: ``d_query``, ``delta`` (B, h, n) = <d_out, out> for backward_keys, parts of other gradients.

    ``d_bias`` (B h, tiles): of the head's bias by the tile; ``d_distance`` (B h, 2 r + 1) is added to.
    """
    start, stop = own_tile(chosen, length, QUERIES, WINDOW)
    b, h = tl.program_id(0) // heads, tl.program_id(0) % heads
    query_at = start + tl.arange(0, QUERIES)[:, None]
    query_block = (start + tl.arange(0, ROWS)[:, None]) // WINDOW
    rows, of_head = start + tl.arange(0, QUERIES), tl.program_id(0).to(tl.int64)
    level = tl.load(lse + of_head * length + rows, mask=rows < stop, other=float("inf"))
    text = tl.where(level < float("inf"), rows, length)[:, None]  # what is not text has no gradient, whatever it is
    q = load_rows(query, q_strides, b, h, query_at, length, D, WIDE)
    d_o = load_rows(d_out, d_out_strides, b, h, text, length, D, WIDE)
    o = load_rows(out, out_strides, b, h, text, length, D, WIDE)
    slope = tl.sum(d_o.to(tl.float32) * o.to(tl.float32), 1)
    tl.store(delta + of_head * length + rows, slope, mask=rows < stop)
    acc = tl.zeros([QUERIES, WIDE], tl.float32)
    of_bias = tl.zeros([QUERIES], tl.float32)
    for kind in tl.static_range(2 if chosen is None else 3):
        low, high = walked(kind, ends, b, start, length, slots, picked, span, QUERIES, FAR, WINDOW, CAUSAL)
        for begin in range(low, high, KEYS):
            key_at = begin + tl.arange(0, KEYS)
            if kind == OPENED:
                key_at = opened_at(chosen, sizes, b, start // WINDOW, key_at, blocks, picked, span, singles, length)
            k, v, added = met(
                kind, key, value, slot_key, slot_value, k_strides, v_strides, sk_strides, sv_strides,
                chosen, valid, counted, home, logit, less, head_bias, distance, b, h, query_at, query_block, key_at,
                length, slots, blocks, singles, first, WINDOW, REACH, CAUSAL, D, WIDE,
            )
            logits = tl.dot(q, tl.trans(k), input_precision=PRECISION) * (scale * LOG2E) + added * LOG2E
            weights = tl.exp2(logits - level[:, None])
            d_logits = weights * (tl.dot(d_o, tl.trans(v), input_precision=PRECISION) - slope[:, None])
            acc = tl.dot(d_logits.to(k.dtype), k, acc, input_precision=PRECISION)
            if kind == SLOTS:
                of_bias += tl.sum(d_logits, 1)
            if distance is not None:
                add_by_distance(
                    kind, d_logits, d_distance, home, b, of_head, query_at, query_block, key_at, slots, first, REACH
                )
    store_rows(d_query, d_query_strides, b, h, query_at, stop, acc * scale, D, WIDE)
    if head_bias is not None:
        tl.store(d_bias + of_head * tl.num_programs(1) + tl.program_id(1), tl.sum(of_bias, 0))


@triton.jit(do_not_specialize=VARYING)
def backward_keys(
    query, key, value, valid, ends, home, logit, less, head_bias, distance,
    lse, delta, q_strides, k_strides, v_strides, d_out, d_out_strides,
    d_key, d_key_strides, d_value, d_value_strides, part, chunk, order, starts,
    chosen, sizes, counted, scale, heads, length, slots, blocks, singles, first, picked, span,
    FAR: tl.constexpr, WINDOW: tl.constexpr, REACH: tl.constexpr, CAUSAL: tl.constexpr, D: tl.constexpr,
    WIDE: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr,
):
    """A tile of tokens, or with ``FAR`` of slots and the queries of one ``chunk``: ``d_key`` and ``d_value``.

    ``part``: the distance from one chunk's gradients to the next one's. ``order`` and ``starts``, see blocks_by_slot:
    a tile of one slot's tokens, and the queries of the blocks that selected it, whose share is added.
    """
    start, b, h = tl.program_id(1) * KEYS, tl.program_id(0) // heads, tl.program_id(0) % heads
    key_at = start + tl.arange(0, KEYS)[:, None]
    count = slots if FAR else length
    of_head = tl.program_id(0).to(tl.int64)
    TILES: tl.constexpr = (WINDOW + QUERIES - 1) // QUERIES  # of a block
    if order is not None:
        tiles = tl.cdiv(span, KEYS)
        slot, place = tl.program_id(1) // tiles, tl.program_id(1) % tiles * KEYS + tl.arange(0, KEYS)[:, None]
        own = starts + of_head * (slots + 1) + slot
        low, high = tl.load(own) * (TILES * QUERIES), tl.load(own + 1) * (TILES * QUERIES)
        key_at = tl.where(low < high, tokens_of(slot, place, sizes, b, singles, length), length)
    k = load_rows(key, k_strides, b, h, key_at, count, D, WIDE)
    v = load_rows(value, v_strides, b, h, key_at, count, D, WIDE)
    d_k = tl.zeros([KEYS, WIDE], tl.float32)
    d_v = tl.zeros([KEYS, WIDE], tl.float32)
    end = text_end(ends, b, 0, length)
    if order is None:
        if FAR:
            low = tl.program_id(2) * chunk
            high = low + chunk
        else:
            low, high = near_span(start, end, KEYS, WINDOW)
            if CAUSAL:
                low = start // QUERIES * QUERIES
        high = tl.where(start < text_end(ends, b, 1 if FAR else 0, count), tl.minimum(high, end), low)
    for at in range(low, high, QUERIES):
        begin, stop = at, length
        if order is not None:
            number = at // QUERIES
            block = tl.load(order + of_head * blocks * picked + number // TILES)
            begin, stop = tile_of(block, number, length, QUERIES, WINDOW)
        rows = begin + tl.arange(0, QUERIES)
        query_block = (begin + tl.arange(0, ROWS)[None, :]) // WINDOW
        level = tl.load(lse + of_head * length + rows, mask=rows < stop, other=float("inf"))
        slope = tl.load(delta + of_head * length + rows, mask=rows < length, other=0.0)
        text = tl.where(level < float("inf"), rows, length)[:, None]
        q = load_rows(query, q_strides, b, h, rows[:, None], length, D, WIDE)
        d_o = load_rows(d_out, d_out_strides, b, h, text, length, D, WIDE)
        if FAR:
            added = far_added(
                chosen, home, logit, less, head_bias, distance, b, h, query_block, key_at, slots, blocks, singles,
                first, REACH, CAUSAL,
            )
        else:
            added = near_added(
                valid, counted, distance, b, h, rows[None, :], query_block, key_at, length, WINDOW, REACH, CAUSAL,
                NEAR if order is None else OPENED,
            )
        logits = tl.dot(k, tl.trans(q), input_precision=PRECISION) * (scale * LOG2E) + added * LOG2E
        weights = tl.exp2(logits - level[None, :])
        d_v = tl.dot(weights.to(d_o.dtype), d_o, d_v, input_precision=PRECISION)
        d_logits = weights * (tl.dot(v, tl.trans(d_o), input_precision=PRECISION) - slope[None, :])
        d_k = tl.dot(d_logits.to(q.dtype), q, d_k, input_precision=PRECISION)
    offset = tl.program_id(2).to(tl.int64) * part
    d_k = d_k * scale
    if order is not None:
        d_k += load_rows(d_key, d_key_strides, b, h, key_at, count, D, WIDE)
        d_v += load_rows(d_value, d_value_strides, b, h, key_at, count, D, WIDE)
    store_rows(d_key + offset, d_key_strides, b, h, key_at, count, d_k, D, WIDE)
    store_rows(d_value + offset, d_value_strides, b, h, key_at, count, d_v, D, WIDE)
