"""Attention masks: checking them, texts moved to the front, zeros on padding, means and lengths of what is left.

Axes: B batch, n tokens, D features.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from longform.errors import InputError
from longform.functional.execution import has_values

_lengths: ContextVar[range | None] = ContextVar("lengths", default=None)


@contextmanager
def unseen(lengths: range) -> Generator[None]:
    """Inside, values of masks are not looked at, since a CUDA graph is captured: texts stand at the front of their
    rows and have as many tokens as one of ``lengths``.
    """
    token = _lengths.set(lengths)
    try:
        yield
    finally:
        _lengths.reset(token)


def unseen_lengths() -> range | None:
    """The lengths of ``unseen``; None outside of it."""
    return None if torch.compiler.is_compiling() else _lengths.get()


def checked_mask(attention_mask: Tensor | None, *, batch: int, length: int) -> Tensor | None:
    """The mask as bool (B, n), or None when nothing is padded.

    ``attention_mask``: (B, n) of bool, integer or float 0/1; 1 marks text. Raises InputError on another shape or, in
    eager mode, other values. A compiled graph raises RuntimeError on those when it runs, and keeps every mask; one that
    is exported or captured, or transformed by torch.func, does not look at values.
    """
    if attention_mask is None:
        return None
    valid = _as_bool(attention_mask, (batch, length), "attention_mask", "1 for text and 0 for padding")
    if not has_values(attention_mask) or unseen_lengths() is not None:  # no values to look at
        return valid
    return None if bool(valid.all()) else valid


def checked_marks(global_attention_mask: Tensor | None, batch: int, length: int) -> Tensor | None:
    """The mask (B, n) of tokens that every query sees as bool, or None; what is raised is as for ``checked_mask``."""
    if global_attention_mask is None:
        return None
    meaning = "1 for tokens that every query sees and 0 for others"
    return _as_bool(global_attention_mask, (batch, length), "global_attention_mask", meaning)


def _as_bool(mask: Tensor, shape: tuple[int, int], name: str, meaning: str) -> Tensor:
    check_tensors(**{name: mask})
    if mask.shape != shape:
        raise InputError(
            f"{name} has shape {tuple(mask.shape)}, expected (batch, tokens) = {shape}: one 0 or 1 for each token"
        )
    marked = mask.bool()
    if mask.dtype != torch.bool and is_compiled():
        torch._assert_async((marked == mask).all(), f"{name} holds a number that is neither 0 nor 1")
    if mask.dtype == torch.bool or not has_values(mask) or unseen_lengths() is not None:
        return marked
    if not torch.equal(marked.to(mask.dtype), mask):
        odd = mask[marked.to(mask.dtype) != mask].flatten()[0].item()
        raise InputError(f"{name} holds {odd}; it takes {meaning}, and nothing else")
    return marked


def check_tensors(**given: Any) -> None:
    """Raise InputError where one of ``given``, by name, is no tensor of any shape, or a nested one; None may be."""
    for name, x in given.items():
        if x is not None and not (isinstance(x, Tensor) and not x.is_nested):
            kind = "nested tensor" if isinstance(x, Tensor) else type(x).__name__
            raise InputError(f"{name} is a {kind}, and has to be a tensor: {_instead(x)}")


def _instead(x: Any) -> str:
    """The way from ``x``, which is no plain tensor, to what is served."""
    if isinstance(x, PackedSequence):
        return (
            "give x of x, lengths = torch.nn.utils.rnn.pad_packed_sequence(packed, batch_first=True), and as a mask "
            "torch.arange(x.shape[1]) < lengths[:, None]"
        )
    if isinstance(x, Tensor):
        return "pad it, x.to_padded_tensor(0.0), and give a mask (B, n), 1 for text"
    if isinstance(x, Mapping):
        return "give its entries by their names, model(**batch)"
    if isinstance(x, list | tuple):
        return (
            "pad it, torch.nn.utils.rnn.pad_sequence([torch.as_tensor(x) for x in texts], batch_first=True), and give "
            "a mask (B, n), 1 for text"
        )
    return "torch.as_tensor(array) makes one of an array"


def mask_of_text(attention_mask: Tensor | None, key_padding_mask: Tensor | None) -> Tensor | None:
    """One mask (B, n), 1 for text, of two conventions: ``key_padding_mask`` (B, n) is True for padding, as torch's
    modules have it, or a float mask of theirs, 0 for text and -inf for padding. Raises InputError where both are given,
    and in eager mode on other numbers, which torch adds to the logits of a key; graphs: see ``checked_mask``.
    """
    check_tensors(attention_mask=attention_mask, key_padding_mask=key_padding_mask)
    if key_padding_mask is None:
        return attention_mask
    if attention_mask is not None:
        raise InputError("give attention_mask (1 for text) or key_padding_mask (True for padding), not both")
    hides = float("-inf") if key_padding_mask.is_floating_point() else 1
    if key_padding_mask.dtype != torch.bool and has_values(key_padding_mask):
        odd = key_padding_mask[(key_padding_mask != 0) & (key_padding_mask != hides)]
        if len(odd):
            raise InputError(
                f"key_padding_mask holds {odd[0].item()}; it takes 0 for text and {hides} for padding, or False and "
                "True: a number to be added to the logits of one key has no place where a slot stands for several"
            )
    if key_padding_mask.dtype != torch.bool and is_compiled():
        fine = (key_padding_mask == 0) | (key_padding_mask == hides)
        torch._assert_async(fine.all(), f"key_padding_mask holds a number that is neither 0 nor {hides}")
    return key_padding_mask == 0


def check_pair_mask(mask: Tensor | None, tokens: Tensor, *, is_causal: bool | None, causal: bool) -> None:
    """Raise InputError on a ``mask`` of pairs of ``tokens`` (B, n, D), torch's (n, n), that is not honoured: only the
    causal one is, by a module that is ``causal``.
    """
    if mask is None and not is_causal:
        return
    if not causal:
        raise InputError(
            "a mask of pairs (mask, attn_mask, is_causal) hides single keys from single queries, and a slot stands for "
            "several keys: make the module with causal=True and attention_window= for a causal mask, and use "
            "src_key_padding_mask or key_padding_mask for padding; other masks need full attention"
        )
    check_tensors(mask=mask)
    if mask is None or not has_values(mask):
        return
    length = tokens.shape[1]
    later = torch.ones(length, length, dtype=torch.bool, device=mask.device).triu(1)
    hides = True if mask.dtype == torch.bool else float("-inf")
    if not torch.equal(mask, mask.new_zeros(length, length).masked_fill(later, hides)):
        raise InputError(
            f"a mask of shape {tuple(mask.shape)} is not the causal one, (n, n) with True or -inf above the diagonal "
            "and False or 0 elsewhere, which is all that a module with causal=True honours"
        )


def is_compiled() -> bool:
    """Whether a graph is made that may look at values when it runs: one that is exported has no operation for that, nor
    has a transform of torch.func.
    """
    transformed = torch._C._functorch.maybe_current_level() is not None
    return torch.compiler.is_compiling() and not (torch.compiler.is_exporting() or transformed)


class TextFirst(NamedTuple):
    """Rows moved to begin with their text: positions that tokens come from, long (B, n), ``there`` and ``back``.

    What stood before a text comes after it, or ``without_holes`` all padding.
    """

    there: Tensor
    back: Tensor


def text_first(mask: Tensor | None) -> TextFirst | None:
    """The moves of rows by ``mask`` bool (B, n) or None; None where each begins with its text.

    Where values are not looked at all rows are moved, most of them by nothing.
    """
    if mask is None or unseen_lengths() is not None:
        return None
    if has_values(mask) and bool(mask[:, 0].all()):
        return None
    length, before = mask.shape[1], first_token(mask)[:, None]
    positions = torch.arange(length, device=mask.device)
    there, back = positions + before, positions - before
    # Not %: ONNX knows no remainder by the length of a dimension.
    return TextFirst(torch.where(there < length, there, there - length), torch.where(back < 0, back + length, back))


def without_holes(mask: Tensor | None) -> TextFirst | None:
    """The moves of all padding behind the text of its row, by ``mask`` bool (B, n) or None; None where it is there."""
    if mask is None or unseen_lengths() is not None:
        return None
    if has_values(mask) and bool((mask[:, 1:] <= mask[:, :-1]).all()):
        return None
    behind = mask.sum(dim=1, keepdim=True) + (~mask).cumsum(dim=1)
    back = torch.where(mask, mask.cumsum(dim=1), behind) - 1
    positions = torch.arange(mask.shape[1], device=mask.device).expand_as(back)
    return TextFirst(torch.zeros_like(back).scatter(1, back, positions), back)


def first_token(mask: Tensor) -> Tensor:
    """The position of each row's first token of text, long (B,); 0 where there is none. ``mask`` bool (B, n)."""
    return mask.int().argmax(dim=1)


def moved(x: Tensor, positions: Tensor) -> Tensor:
    """The tokens of ``x`` (n), (1, n, ...) or (B, n, ...) that stand at ``positions`` long (B, n): (B, n, ...)."""
    shape = (*positions.shape, *x.shape[2:])
    index = positions.view(*positions.shape, *(1,) * (len(shape) - 2))
    return x.expand(shape).gather(1, index.expand(shape))


def begins_anew(position_ids: Tensor, mask: Tensor | None) -> Tensor | None:
    """Where ``position_ids`` (n), (1, n) or (B, n) begin anew within the text of ``mask`` bool (B, n), bool (B, n - 1):
    in rows that hold several texts without padding, as transformers takes it. None where no row does, and where values
    are not looked at.
    """
    if not has_values(position_ids, mask):
        return None
    positions = position_ids.view(-1, position_ids.shape[-1])
    text = torch.ones_like(positions[:, 1:], dtype=torch.bool) if mask is None else mask[:, 1:]
    begins = (positions.diff(dim=1) != 1) & text
    anew = (positions[:, 1:] == positions[:, :1]) | ~begins
    several = begins.any(dim=1) & anew.all(dim=1) & (text & ~begins).any(dim=1)
    return begins if bool(several.any()) else None


def check_one_text(position_ids: Tensor, mask: Tensor | None) -> None:
    """Raise InputError where ``position_ids`` (n), (1, n) or (B, n) begin anew within a text; see ``begins_anew``."""
    if begins_anew(position_ids, mask) is not None:
        raise InputError(
            "position_ids begin anew within a row, as for several texts in one row without padding: these are read "
            "where they are the only row, without attention_mask and cache, by a head of tokens; else give each a row "
            "of its own"
        )


def reading_mask(mask: Tensor | None, unread: Tensor | None) -> Tensor | None:
    """The tokens that read others, bool (B, n): those of ``mask``, which are read too, and ``unread`` (B, n).

    None where these are only those of ``mask``. Raises InputError on another shape.
    """
    check_tensors(query_expansion_positions=unread)
    if mask is None or unread is None:
        return None
    if unread.shape != mask.shape:
        raise InputError(
            f"query_expansion_positions has shape {tuple(unread.shape)}, expected that of attention_mask, "
            f"{tuple(mask.shape)}"
        )
    return mask | unread.bool()


def blank_padding(hidden: Tensor, mask: Tensor | None) -> Tensor:
    """``hidden`` (B, n, D) with zeros where ``mask`` (B, n) is False; NaN there does not survive, nor in gradients."""
    return hidden if mask is None else torch.where(mask[..., None], hidden, 0.0)


def masked_mean(hidden: Tensor, mask: Tensor | None) -> Tensor:
    """Mean of ``hidden`` (B, n, D) over valid tokens -> (B, D); a row of only padding gives zeros."""
    if mask is None:
        return hidden.mean(dim=1)
    wide = torch.float64 if hidden.dtype == torch.float64 else torch.float32
    total = blank_padding(hidden, mask).sum(dim=1, dtype=wide)
    return (total / mask.sum(dim=1, keepdim=True).clamp(min=1)).to(hidden.dtype)


def document_lengths(mask: Tensor | None, *, batch: int, length: int, device: torch.device) -> Tensor:
    """Position after the last valid token of each row, long (B,); the padded width never counts."""
    if mask is None:
        return torch.full((batch,), length, dtype=torch.long, device=device)
    positions = torch.arange(1, length + 1, device=device)
    return (positions * mask).amax(dim=1)


def text_lengths(mask: Tensor | None, *, batch: int, length: int) -> list[int] | None:
    """Tokens of each row where all padding is known to be on the right, else None; ``mask`` bool (B, n)."""
    if mask is None:
        return [length] * batch
    if not has_values(mask):
        return None
    lengths = mask.sum(dim=1)
    if not torch.equal(mask, torch.arange(length, device=mask.device) < lengths[:, None]):
        return None
    return lengths.tolist()
