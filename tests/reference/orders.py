"""Twins of attention in other orders, token by token from the words of their docstrings: causal text, and grids.

``layer``: weighted means, with a window, as many heads of keys as of queries. Axes as in the layer; one text at a time.
"""

import torch


def _keys(layer, hidden):
    heads, dim = layer.num_heads, layer.head_dim
    return (part(hidden).unflatten(-1, (heads, dim)) for part in (layer.query, layer.key, layer.value))


def _attend(layer, hidden, near, runs, sees_run):
    """``near(t)``: tokens that t sees one by one; ``runs``: lists of tokens; ``sees_run(t, run)``."""
    query, key, value = _keys(layer, hidden)
    scores = layer.groups[0].scores(hidden)
    heads, out = layer.num_heads, torch.zeros_like(query)
    for t in range(len(hidden)):
        for head in range(heads):
            logits, values = [], []
            for kind, tokens in [("near", [s]) for s in near(t)] + [("run", run) for run in runs if sees_run(t, run)]:
                of_key, of_value = (scores[tokens, column].softmax(0)[:, None] for column in (head, heads + head))
                logit = (of_key * key[tokens, head]).sum(0) @ query[t, head] / layer.head_dim**0.5
                bias = layer.memory_bias[head] + torch.tensor(float(len(tokens)), dtype=logit.dtype).log()
                logits.append(logit if kind == "near" else logit + bias)
                values.append((of_value * value[tokens, head]).sum(0))
            out[t, head] = torch.stack(logits).softmax(0) @ torch.stack(values)
    return layer.output(out.flatten(1))


def causal(layer, hidden, run):
    """hidden (n, D), after any convolution; runs of ``run`` tokens."""
    window, length = layer.window, len(hidden)
    runs = [list(range(start, start + run)) for start in range(0, length - run + 1, run)]
    return _attend(
        layer, hidden,
        near=lambda t: range(max(0, (t // window - 1) * window), t + 1),
        runs=runs,
        sees_run=lambda t, tokens: tokens[0] // window < t // window - 1,
    )  # fmt: skip


def grid(layer, hidden, extents, tile, block, prefix, mask):
    """hidden (n, D) of ``prefix`` tokens and a grid of two ``extents``; bool ``mask`` (n)."""

    def at(t):
        return (t - prefix) // extents[1], (t - prefix) % extents[1]

    def neighbours(one, other):
        return all(abs(x // size - y // size) <= 1 for x, y, size in zip(at(one), at(other), block, strict=True))

    tiles = {}
    for t in range(prefix, len(hidden)):
        if mask[t]:
            tiles.setdefault(tuple(x // size for x, size in zip(at(t), tile, strict=True)), []).append(t)
    leading = [[t] for t in range(prefix) if mask[t]]
    own = [t for t in range(len(hidden)) if mask[t]]
    return _attend(
        layer, hidden,
        near=lambda t: [s for s in own if (s < prefix if t < prefix else s >= prefix and neighbours(t, s))],
        runs=[*leading, *tiles.values()],
        sees_run=lambda t, run: run[0] >= prefix if t < prefix else run[0] < prefix or not neighbours(t, run[0]),
    )  # fmt: skip
