"""Hypothesis strategies: small texts with every kind of mask, and random tensors that are well conditioned."""

from typing import NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor

MASK_KINDS = ("full", "right", "holes", "empty")


class Text(NamedTuple):
    """A batch of ``batch`` rows of ``length`` positions; ``mask`` long (B, n) of 0/1, or None for no padding."""

    batch: int
    length: int
    mask: Tensor | None

    @property
    def valid(self) -> Tensor:
        """The mask as bool (B, n)."""
        return torch.ones(self.batch, self.length).bool() if self.mask is None else self.mask.bool()

    @property
    def checked(self) -> Tensor | None:
        """The mask as the numeric functions take it: bool, or None where nothing is padded."""
        return None if self.mask is None or bool(self.valid.all()) else self.valid


@st.composite
def mask_rows(draw: st.DrawFn, length: int, kinds: tuple[str, ...] = MASK_KINDS) -> list[int]:
    """One row of a mask: no padding, padding on the right, holes anywhere, or padding alone."""
    kind = draw(st.sampled_from(kinds))
    if kind == "right":
        valid = draw(st.integers(1, length))
        return [1] * valid + [0] * (length - valid)
    if kind == "holes":
        row = draw(st.lists(st.integers(0, 1), min_size=length, max_size=length))
        row[draw(st.integers(0, length - 1))] = 1
        return row
    return [int(kind == "full")] * length


@st.composite
def texts(
    draw: st.DrawFn, *, lengths: st.SearchStrategy[int], batch: int = 3, kinds: tuple[str, ...] = MASK_KINDS
) -> Text:
    """Up to ``batch`` rows of one drawn length, each row with a mask of its own kind, or no mask at all."""
    rows, length = draw(st.integers(1, batch)), draw(lengths)
    if "full" in kinds and draw(st.integers(0, 3)) == 0:
        return Text(rows, length, None)
    return Text(rows, length, torch.tensor([draw(mask_rows(length, kinds)) for _ in range(rows)]))


@st.composite
def turns(draw: st.DrawFn, *, longest: int = 12, most: int = 4, batch: int = 3) -> list[Tensor]:
    """Masks (B, n) of turns one after the other: each row of each padded behind, in front, in holes, whole, or not."""
    rows, masks = draw(st.integers(1, batch)), []
    for length in draw(st.lists(st.integers(1, longest), min_size=1, max_size=most)):
        row = st.one_of(mask_rows(length), mask_rows(length, ("right",)).map(lambda drawn: drawn[::-1]))
        masks.append(torch.tensor([draw(row) for _ in range(rows)]))
    return masks


seeds = st.integers(0, 2**31 - 1)


def generator(seed: int) -> torch.Generator:
    """A source of random numbers of its own."""
    return torch.Generator().manual_seed(seed)


def normal(source: torch.Generator, *shape: int, dtype: torch.dtype = torch.float64, grad: bool = False) -> Tensor:
    """N(0, 1) in ``dtype``, a leaf that takes gradients where ``grad``."""
    return torch.randn(*shape, generator=source, dtype=torch.float64).to(dtype).requires_grad_(grad)


def away_from_zero(
    source: torch.Generator, *shape: int, dtype: torch.dtype = torch.float64, grad: bool = False
) -> Tensor:
    """Sizes in [0.5, 1.5], any sign: what is divided by a sum of some of them stays well conditioned."""
    sizes = torch.rand(*shape, generator=source, dtype=torch.float64) + 0.5
    signs = torch.randint(0, 2, shape, generator=source) * 2 - 1
    return (sizes * signs).to(dtype).requires_grad_(grad)


def gradients(out: Tensor, cotangent: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    """Gradients of sum(out * cotangent); zeros for an input that it does not depend on."""
    if not out.requires_grad:
        return [torch.zeros_like(x) for x in inputs]
    total = (out * cotangent.to(out.dtype)).sum()
    found = torch.autograd.grad(total, inputs, allow_unused=True, retain_graph=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)]


def randomised(module, seed=0):
    """``module`` with its parameters moved by noise, so that none is a zero or a mean; in eval mode."""
    source = generator(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.2 * normal(source, *parameter.shape).to(parameter))
    return module.eval()


def padded(width: int) -> Tensor:
    """Masks of a text, with padding in front, behind, in holes on either side of column 12, and up to column 15."""
    mask = torch.ones(6, width)
    mask[1, :7], mask[2, 5:9], mask[3, 9:19], mask[4, :15], mask[5, -4:] = 0, 0, 0, 0, 0
    mask[5, 16:18] = 0
    return mask
