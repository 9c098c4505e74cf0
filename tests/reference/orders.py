"""Twins of attention in other orders, token by token from the words of their docstrings: causal text, and grids.

``layer``: weighted means, with a window, as many heads of keys as of queries. Axes as in the layer; one text at a time.
"""

import torch


def _keys(layer, hidden):
    heads, dim = layer.num_heads, layer.head_dim
    return (part(hidden).unflatten(-1, (heads, dim)) for part in (layer.query, layer.key, layer.value))


def _attend(layer, hidden, near, runs, sees_run, selects=lambda t: [], selected=0, sinks=0):
    """``near(t)``: tokens that t sees one by one; ``runs``: lists of tokens; ``sees_run(t, run)``.

    The tokens of the ``selected`` runs whose keys have the largest products with the mean query of the tokens
    ``selects(t)`` are seen one by one too, in place of the runs; none of the first ``sinks`` tokens is selected.
    """
    query, key, value = _keys(layer, hidden)
    scores = layer.groups[0].scores(hidden)
    heads, out = layer.num_heads, torch.zeros_like(query)

    def key_of(tokens, head):
        return (scores[tokens, head].softmax(0)[:, None] * key[tokens, head]).sum(0)

    def opened(t, head):
        mean = query[selects(t), head].mean(0)
        rivals = [run for run in runs if sees_run(t, run) and run[0] >= sinks]
        return sorted(rivals, key=lambda run: -float(key_of(run, head) @ mean))[:selected]

    for t in range(len(hidden)):
        for head in range(heads):
            logits, values, chosen = [], [], opened(t, head) if selected else []
            exact = [*near(t), *(s for run in chosen for s in run)]
            left = [run for run in runs if sees_run(t, run) and run not in chosen]
            for kind, tokens in [("near", [s]) for s in exact] + [("run", run) for run in left]:
                of_value = scores[tokens, heads + head].softmax(0)[:, None]
                logit = key_of(tokens, head) @ query[t, head] / layer.head_dim**0.5
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


def grid(layer, hidden, extents, tile, block, prefix, mask, selected=0):
    """hidden (n, D) of ``prefix`` tokens and a grid of two ``extents``; bool ``mask`` (n); ``selected`` tiles."""

    def at(t):
        return (t - prefix) // extents[1], (t - prefix) % extents[1]

    def block_of(t):
        size = block[0] * block[1]
        return (t // size,) if t < prefix else tuple(x // extent for x, extent in zip(at(t), block, strict=True))

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
        selects=lambda t: [s for s in own if block_of(s) == block_of(t)],
        selected=selected,
        sinks=prefix,
    )  # fmt: skip
