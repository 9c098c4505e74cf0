"""Batches without padding: the tokens of all documents, one document after the other.

Norms and feed-forward layers read these tokens as they are. Attention reads documents of similar length side by side,
so that each is read as it would be on its own.

Axes: T tokens of all documents, b documents, g documents side by side, n tokens of the longest of these, D features.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from longform.errors import InputError
from longform.functional.execution import has_values
from longform.functional.masks import check_tensors

SIMILAR = 7 / 8  # of the longest document in a group, the shortest that is read beside it


class Group(NamedTuple):
    """Documents side by side. ``tokens`` long (g, n): the row of each token among all; some other's for padding.

    ``mask`` bool (g, n): False for padding; None where there is none.
    """

    tokens: Tensor
    mask: Tensor | None

    def of(self, x: Tensor) -> Tensor:
        """The tokens of x (1, T, ...), document by document: (g, n, ...)."""
        return x[0].index_select(0, self.tokens.flatten()).unflatten(0, self.tokens.shape)


class Documents(NamedTuple):
    """Documents of a batch without padding, (T, D), in groups.

    ``ends`` long (b + 1): where each begins among all tokens, and where the last ends. ``back`` long (T): where each
    token stands when the groups' tokens (g n) follow one another. ``places`` long (T): the position of each token in
    its document. ``longest``: tokens of the longest document.
    """

    ends: Tensor
    groups: tuple[Group, ...]
    back: Tensor
    places: Tensor
    longest: int

    def each(self, read: Callable[[Tensor, Group], Tensor], hidden: Tensor) -> Tensor:
        """``read`` (hidden states (g, n, D), group) -> (g, n, F), of each group of hidden (1, T, D): (1, T, F)."""
        out = [read(group.of(hidden), group).flatten(0, 1) for group in self.groups]
        return torch.cat(out).index_select(0, self.back)[None]

    def padded(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Documents of hidden (1, T, D) side by side, (b, n, D), and their mask (b, n)."""
        rows, mask = _side_by_side(self.ends, _all(self.ends), self.longest, hidden.shape[1])
        return Group(rows, mask).of(hidden), mask


def documents_of(cu_seqlens: Tensor, row: Tensor, *, max_seqlen: int | None = None) -> Documents:
    """The documents in a row (1, T, ...) whose ends ``cu_seqlens`` counts: whole numbers (b + 1) from 0 to T, as flash
    attention has them.

    Where a graph is made, and on a GPU, where one call is faster than several, they are one group, padded to
    ``max_seqlen`` tokens. Raises InputError on other numbers, and where a graph is made without ``max_seqlen``.
    """
    check_tensors(cu_seqlens=cu_seqlens)
    if cu_seqlens.dim() != 1 or len(cu_seqlens) < 2 or cu_seqlens.is_floating_point() or cu_seqlens.dtype == torch.bool:
        raise InputError(
            f"cu_seqlens is {cu_seqlens.dtype} of shape {tuple(cu_seqlens.shape)}, expected whole numbers of shape "
            "(documents + 1,), from 0 to the number of tokens"
        )
    ends, tokens = cu_seqlens.to(row.device).long(), row.shape[1]
    if has_values(cu_seqlens):
        lengths = _checked_lengths(cu_seqlens.tolist(), tokens, max_seqlen)
        if not row.is_cuda:
            groups = [
                (torch.tensor(group, device=row.device), lengths[group[-1]], lengths[group[0]] < lengths[group[-1]])
                for group in similar(lengths)
            ]
            return _grouped(ends, tokens, groups, max(lengths))
        max_seqlen = max(lengths)
    if max_seqlen is None:
        raise InputError("in a graph, whose numbers are not known, documents need max_seqlen, the most tokens of one")
    return _grouped(ends, tokens, [(_all(ends), max_seqlen, True)], max_seqlen)


def _checked_lengths(ends: list[int], tokens: int, max_seqlen: int | None) -> list[int]:
    """Tokens of each document. Raises InputError where ``ends`` are not those of documents of ``tokens`` tokens."""
    lengths = [end - start for start, end in pairwise(ends)]
    if ends[0] != 0 or ends[-1] != tokens or min(lengths) < 0:
        raise InputError(
            f"cu_seqlens counts from {ends[0]} to {ends[-1]}, expected numbers that grow from 0 to {tokens}, the "
            "tokens of all documents"
        )
    if max_seqlen is not None and max(lengths) > max_seqlen:
        raise InputError(f"a document has {max(lengths)} tokens, and max_seqlen is {max_seqlen}")
    return lengths


def similar(lengths: Sequence[int]) -> list[list[int]]:
    """The documents of ``lengths`` in groups of similar ones, by their numbers, shorter before longer ones; empty ones
    are in none, but where all are.
    """
    groups: list[list[int]] = []
    for document in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        if groups and lengths[document] >= SIMILAR * lengths[groups[-1][0]]:
            groups[-1].append(document)
        elif lengths[document] or not groups:
            groups.append([document])
    return [group[::-1] for group in groups]


def _all(ends: Tensor) -> Tensor:
    return torch.arange(len(ends) - 1, device=ends.device)


def _side_by_side(ends: Tensor, chosen: Tensor, size: int, tokens: int) -> tuple[Tensor, Tensor]:
    """Rows (g, n) of the tokens of ``chosen`` documents, padded to n = ``size``, and their mask."""
    within = torch.arange(size, device=ends.device)
    rows = (ends[chosen, None] + within).clamp(max=max(tokens - 1, 0))
    return rows, within < ends.diff()[chosen, None]


def _grouped(ends: Tensor, tokens: int, groups: list[tuple[Tensor, int, bool]], longest: int) -> Documents:
    """Documents between ``ends`` in ``groups``: numbers, tokens of the longest, and whether others are shorter."""
    made, before, first = [], 0, torch.zeros_like(ends[1:])  # of each document, its first row in the groups' tokens
    for chosen, size, differ in groups:
        rows, mask = _side_by_side(ends, chosen, size, tokens)
        made.append(Group(rows, mask if differ else None))
        first[chosen] = before + size * torch.arange(len(chosen), device=ends.device)
        before += size * len(chosen)
    each = torch.arange(tokens, device=ends.device)
    document = torch.searchsorted(ends[1:], each, right=True)
    places = each - ends[document]
    return Documents(ends, tuple(made), first[document] + places, places, longest)


class Form(NamedTuple):
    """How a batch without padding was given: ``ends`` of its documents (b + 1); ``longest``: tokens of one, if known.

    ``is_nested``: as a nested tensor; else as (T, D).
    """

    ends: Tensor
    longest: int | None
    is_nested: bool

    def values_of(self, x: Tensor) -> Tensor:
        """Tokens of x (b, n of each, ...), or (T, ...), given as the documents were: (T, ...)."""
        return x.values() if is_jagged(x) else x

    def packed(self, values: Tensor) -> Tensor:
        """(T, ...) as the documents were given."""
        if not self.is_nested:
            return values
        return torch.nested.nested_tensor_from_jagged(values, self.ends, max_seqlen=self.longest)


def is_jagged(x: object) -> bool:
    """Whether x is a nested tensor of the layout "jagged"."""
    return isinstance(x, Tensor) and x.is_nested and x.layout == torch.jagged


def is_packed(hidden_states: object, cu_seqlens: Tensor | None) -> bool:
    """Whether hidden_states are of a batch without padding: nested, or with the ends of its documents."""
    return cu_seqlens is not None or is_jagged(hidden_states)


def check_alone(*others: object, weights: bool) -> None:
    """Raise InputError where ``others`` are given, which need a batch with padding, or ``weights`` are asked for."""
    if weights or any(x is not None for x in others):
        raise InputError(
            "texts without padding take no mask, context, grid or cache, and give no attention weights: leave them "
            "out, or pad the texts"
        )


def unpacked(packed: Any, cu_seqlens: Tensor | None) -> tuple[Tensor, Form]:
    """The tokens (T, D) of a nested tensor (b, n of each, D), or of (T, D) itself, and their form. Raises InputError
    on another form.
    """
    if cu_seqlens is None:
        if torch.compiler.is_compiling():  # torch ties its graph to the lengths of a nested tensor, or fails
            raise InputError(
                "in a graph, give the tokens of a nested tensor with their ends: x.values(), cu_seqlens=x.offsets(), "
                "max_seqlen=the most tokens of a text"
            )
        return packed.values(), Form(packed.offsets(), packed._maybe_max_seqlen, is_nested=True)
    check_tensors(hidden_states=packed)
    if packed.dim() != 2:
        raise InputError(
            f"hidden_states has shape {tuple(packed.shape)}, expected with cu_seqlens (tokens of all texts, "
            "hidden_size) = (T, D)"
        )
    return packed, Form(cu_seqlens, None, is_nested=False)
