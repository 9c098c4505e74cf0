"""Near tokens and far slots in one softmax by the compiled kernels of csrc/attention.c and attention_gradient.c, with
AMX or AVX512-bf16.

Slots that a block does not see cost nothing. In training the backward pass forms the weights of a block again from its
logits and each query's total, and the gradients of keys gather in the cache while their block is in reach; a head of a
document is one thread's. (torch's fused attention, which serves elsewhere, is called for each part, in float32
backwards.)

Axes: B batch, n tokens, c queries of a part, S slots, h heads, d head dimension, w block, b blocks.
"""

from typing import Any

import torch
from torch import Tensor

from longform.functional.attention.compiled import MOST_TRAINED_KEYS, add_bias, give_heads, like_queries, new_job
from longform.functional.attention.formula import AttentionCall
from longform.functional.conditions import is_plain, lacks_compiled
from longform.functional.native.jobs import AttentionGradientJob, AttentionJob, contiguous_rows, pointer
from longform.functional.native.library import run
from longform.functional.second_gradient import Gradients, differentiable_by
from longform.functional.window import formula
from longform.functional.window.call import WindowCall
from longform.functional.window.document import DocumentAttention, DocumentPart, blank_padding, together


def lacks(call: AttentionCall, forced: bool) -> str | None:
    """The first thing that the ``call`` of a document lacks for ``CompiledDocument``, or None; see dispatch.Kernel.

    Of any length: a thread packs the keys that its blocks see.
    """
    return lacks_compiled(call, forced, trains=False)


def lacks_in_training(call: WindowCall, forced: bool) -> str | None:
    """The first thing that ``call`` lacks for ``train``, or None; see dispatch.Kernel."""
    if call.neighbours is not None or call.first_block is not None:
        return "the whole of a text that is read both ways, no grid"
    if call.selected:
        return "no selected slots"
    if missing := lacks_compiled(call, forced, trains=True):
        return missing
    if call.lengths is None:
        return "all padding on the right"
    if not all(is_plain(x, call.query.dtype) for x in call.slots[:2]):
        return "slots that are plain tensors of the heads' dtype"
    seen = 3 * call.window + call.slots.key.shape[2]
    return None if seen <= MOST_TRAINED_KEYS else f"at most {MOST_TRAINED_KEYS} keys for each query in training"


class CompiledDocument(DocumentAttention):
    """A document by the kernel."""

    def __call__(self, part: DocumentPart, out: Tensor) -> None:
        """Write the context of the part's queries into ``out`` (c, h, d)."""
        far, blocks = self.far, part.blocks()
        selected = self.select(part) if far.selected else None
        if selected is None:
            logits = self.logits(part, blocks.start, blocks.stop).float()[None].expand(part.query.shape[0], -1, -1)
        else:
            logits = selected.far[0].float()
        query, key, value, far_key, far_value = (
            contiguous_rows(x)[None] for x in (part.query, part.key, part.value, far.key, far.value)
        )
        job = new_job(query, out.transpose(0, 1)[None], key=key, value=value, slot_key=far_key, slot_value=far_value)
        job.window, job.start, job.key_start = part.window, part.start, part.key_start
        add_bias(job, logits[None])
        if selected is not None:
            tokens = torch.where(selected.seen, selected.tokens, -1)
            job.tokens, job.tokens_of_block = pointer(tokens, torch.int64, *tokens.shape), tokens.shape[-1]
        head_bias = None if far.bias is None else far.bias.detach().float().contiguous()
        job.head_bias = pointer(head_bias, torch.float32, query.shape[1])
        run(job)


def train(call: WindowCall) -> Tensor:
    """Attention to near tokens and far slots through which gradients pass: (B, h, n, d), zeros on padding."""
    slots = call.slots
    return CompiledWindow.apply(
        call.query,
        call.key,
        call.value,
        slots.key,
        slots.value,
        call.blocks.far,
        call.head_bias,
        call.lengths,
        call.window,
    )


def _formula(query: Tensor, *given: Any) -> Tensor:
    *others, far, bias, lengths, window = given
    text = torch.arange(query.shape[2]) < torch.tensor(lengths)[:, None]
    around = formula.neighbour_positions(query.shape[2], window, query.device)
    near = formula.near_bias(around, text, length=query.shape[2], dtype=query.dtype)
    attended = formula.attention(query, *others, near[:, None], far, bias, None, window)
    return torch.where(text[:, None, :, None], attended, 0.0)


class CompiledWindow(torch.autograd.Function):
    """query, key, value (B, h, n, d), those of slots (B, h, S, d), ``far`` float32 (B, 1, b, S), ``bias`` float32 (h).

    ``lengths``: tokens of each document, the others being padding on its right.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        slot_key: Tensor,
        slot_value: Tensor,
        far: Tensor,
        bias: Tensor,
        lengths: list[int],
        window: int,
    ) -> Tensor:
        """Returns out (B, h, n, d), zeros on padding."""
        inputs, weights = (query, key, value, slot_key, slot_value), bias.contiguous()  # jobs hold addresses
        given, out = [contiguous_rows(x) for x in inputs], like_queries(query)
        blank_padding(out, lengths)
        totals = []
        for documents, length in together(lengths, query.shape[2]):
            heads = _of_documents(documents, length, given, out=out)
            job = new_job(**heads)
            totals.append(far.new_empty(heads["query"].shape[:3]))
            job.log_total = pointer(totals[-1], torch.float32, *totals[-1].shape)
            _weigh(job, far[documents], weights, window)
            run(job)
        ctx.save_for_backward(*inputs, far, bias, out, *totals)
        ctx.options = lengths, window
        return out

    @staticmethod
    @differentiable_by(_formula)
    def backward(ctx: Any, saved: Any, gradient: Tensor) -> Gradients:
        """Gradients of query, key, value, slot_key, slot_value and bias."""
        (lengths, window), (far, bias, out, *totals) = ctx.options, saved[5:]
        *given, out, gradient = (contiguous_rows(x) for x in (*saved[:5], out, gradient))
        query, slot_key, weights = given[0], given[3], bias.contiguous()
        near = {name: like_queries(query) for name in ("d_query", "d_key", "d_value")}
        for x in near.values():
            blank_padding(x, lengths)
        d_slots = [far.new_zeros(slot_key.shape) for _ in range(2)]
        d_bias = far.new_zeros(slot_key.shape[:2])
        parts = together(lengths, query.shape[2])
        for (documents, length), total in zip(parts, totals, strict=True):
            job = AttentionGradientJob(parts=1)
            give_heads(job, **_of_documents(documents, length, given, out=out, d_out=gradient, **near))
            job.log_total = pointer(total, torch.float32, *total.shape)
            job.d_slot_key, job.d_slot_value, job.d_head_bias = (
                pointer(x[documents], torch.float32, *x[documents].shape) for x in (*d_slots, d_bias)
            )
            _weigh(job, far[documents], weights, window)
            run(job)
        d_of_slots = (x.to(slot_key.dtype) for x in d_slots)
        return *near.values(), *d_of_slots, None, d_bias.sum(dim=0).to(bias.dtype), None, None


def _of_documents(documents: slice, length: int, given: list[Tensor], **others: Tensor) -> dict[str, Tensor]:
    """Tensors of some documents by the kernel's names: of query, key, value and ``others`` their first tokens."""
    query, key, value, slot_key, slot_value = given
    near = {"query": query, "key": key, "value": value, **others}
    own = {name: x[documents, :, :length] for name, x in near.items()}
    return own | {"slot_key": slot_key[documents], "slot_value": slot_value[documents]}


def _weigh(job: AttentionJob | AttentionGradientJob, far: Tensor, bias: Tensor, window: int) -> None:
    """The window, and what is added to the logits of slots: ``far`` (B, 1, b or more, S) and ``bias`` (h), float32."""
    heads, blocks = job.heads, -(-job.queries // window)
    job.window, job.head_bias = window, pointer(bias, torch.float32, heads)
    add_bias(job, far[:, :, :blocks].expand(-1, heads, -1, -1))
