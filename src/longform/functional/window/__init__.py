"""Exact near, compressed far: a window of exact tokens beside the slots of the whole text, in time and memory O(n).

What near and far mean is written in formula.py; the other files compute the same. There are two tables of kernels:
WINDOW for a batch, and DOCUMENT for one text. The kernel "documents" of the first attends each text of a batch by one
of the second, on a CPU without gradients; layers/streaming.py gives these a long text part after part.

Axes: B batch, n tokens, S slots, h heads, d head dimension, w block.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from longform.functional import dispatch
from longform.functional.attention import Weighted
from longform.functional.attention.formula import AttentionCall
from longform.functional.dispatch import Kernel
from longform.functional.slots import Slots
from longform.functional.window import compiled, formula, sdpa_training, single_tokens, triton_kernel
from longform.functional.window.call import WindowCall
from longform.functional.window.document import DocumentAttention, DocumentPart, far_slots, lacks_whole_texts
from longform.functional.window.sdpa_inference import SdpaDocument
from longform.functional.window.selection import by_slot, by_token


def _by_documents(call: WindowCall) -> Tensor:
    """Each document by itself, as long as its text: (B, h, n, d), zeros on padding."""
    assert call.lengths is not None
    batch, heads, length, dim = call.query.shape
    out = call.query.new_empty(batch, length, heads, dim)
    query, key, value = call.query, call.key, call.value
    kernel = document_attention(query, key, value, call.distance_bias)
    options: Any = {"bias": call.memory_bias, "budget": call.memory_budget}
    options |= {"distance_bias": call.distance_bias, "selected": call.selected}
    for b, n in enumerate(call.lengths):
        out[b, n:] = 0.0
        if n:
            part = DocumentPart(query[b, :, :n], key[b, :, :n], value[b, :, :n], length=n, window=call.window)
            kernel(far_slots(call.slots, b, n, **options))(part, out[b, :n])
    return out.transpose(1, 2)


def _formula(call: WindowCall) -> Tensor:
    return _attended(call, _block_weights(call))


def _block_weights(call: WindowCall) -> tuple[Tensor, Tensor]:
    return formula.block_weights(call.query, call.key, call.slots.key, call.blocks, call.memory_bias, call.distances)


def _attended(call: WindowCall, of_blocks: tuple[Tensor, Tensor]) -> Tensor:
    context = formula.attended(of_blocks, call.value, call.slots.value, call.blocks, call.dropout)
    return call.blanked(context)


WINDOW = dispatch.operation(
    "window",
    Kernel("single_tokens", single_tokens.attend, single_tokens.lacks),
    Kernel("documents", _by_documents, lacks_whole_texts),
    Kernel("triton", triton_kernel.attend, triton_kernel.lacks),
    Kernel("compiled_training", compiled.train, compiled.lacks_in_training, torch.bfloat16),
    Kernel("sdpa_training", sdpa_training.attend, sdpa_training.lacks),
    Kernel("formula", _formula),
)
DOCUMENT = dispatch.operation(
    "document",
    Kernel("compiled", compiled.CompiledDocument, compiled.lacks, torch.bfloat16),
    Kernel("sdpa", SdpaDocument),
)


def document_attention(
    query: Tensor, key: Tensor, value: Tensor, distance_bias: Tensor | None
) -> type[DocumentAttention]:
    """Kernel for documents with such query, key and value (..., ., d), without gradients, on a CPU."""
    call = AttentionCall(query, key, value, distance_bias=distance_bias)
    return dispatch.choose(DOCUMENT, call).run  # ty: ignore[invalid-explicit-return]  made with a text's slots


def windowed_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    form_slots: Callable[[], Slots],
    *,
    output_attentions: bool = False,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attention to near tokens exactly and to far ones through slots.

    query, key, value (B, h, n, d) with padding blanked; ``form_slots`` gives the slots' keys and values (B, h, S, d),
    and is not called where each slot is a token anyway. ``options``: ``window`` and more, see WindowCall.
    Returns out (B, h, n, d), zeros on padding, and with ``output_attentions`` the weights (B, h, n, S + 3 w):
    slots first (a selected one has what its tokens have), then the block's neighbours, which are two in a causal text
    and ``neighbours`` in a grid.
    """
    call = WindowCall(query, key, value, form_slots, **options)
    if output_attentions:
        weights, attended = _weighted(call)
        return attended(weights), weights
    return dispatch.run(WINDOW, call), None


def weighted_window(
    query: Tensor, key: Tensor, value: Tensor, form_slots: Callable[[], Slots], **options: Any
) -> Weighted:
    """The weights (B, h, n, S + 3 w) of ``windowed_attention``, and what makes its out (B, h, n, d) of them."""
    return _weighted(WindowCall(query, key, value, form_slots, **options))


def _weighted(call: WindowCall) -> Weighted:
    of_blocks, length = _block_weights(call), call.query.shape[2]
    seen = 3 if call.neighbours is None else call.neighbours.shape[1]
    if not call.selected:
        weights = formula.weights_of_queries(of_blocks, length)
        return weights, lambda rows: _attended(call, formula.weights_of_blocks(rows, call.window, seen))
    choice = call.selection, call.slots.runs

    def attended(rows: Tensor) -> Tensor:
        return _attended(call, by_token(formula.weights_of_blocks(rows, call.window, seen), of_blocks, *choice))

    return formula.weights_of_queries(by_slot(of_blocks, *choice), length), attended
