"""Parts of texts: which tokens each process of a group holds.

A text is cut between blocks: runs of tokens that no slot and no window's block crosses. So each slot is formed by one
process, and a window needs its neighbours' nearest block only.

Axes: B batch, n tokens of the whole texts, m tokens of a part, P processes.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from longform.errors import ConfigurationError
from longform.functional.masks import TextFirst

SEQUENCE_GROUP = "sequence_group"  # the attribute of a model that holds them


class Part(NamedTuple):
    """The tokens of one process: ``start`` to ``stop`` of texts of ``length`` n tokens.

    ``bounds``: where the parts of all P processes begin, and n. ``mask`` bool (B, n) or None: of the whole texts, which
    begin at their first token; ``order``: how they were moved there, or None.
    """

    start: int
    stop: int
    length: int
    bounds: tuple[int, ...]
    mask: Tensor | None
    order: TextFirst | None

    def own(self, x: Tensor) -> Tensor:
        """The part of x (B, n, ...): (B, m, ...)."""
        return x[:, self.start : self.stop]

    @property
    def own_mask(self) -> Tensor | None:
        """Bool (B, m) or None."""
        return None if self.mask is None else self.own(self.mask)

    def before(self, window: int) -> int:
        """Tokens of the block before this part: ``window``, or 0 at the start of the text."""
        return min(window, self.start)

    def after(self, window: int) -> int:
        """Tokens of the block after this part: up to ``window``."""
        return min(window, self.length - self.stop)


def cut(length: int, *, block: int, processes: int) -> tuple[int, ...] | None:
    """Where parts begin, and ``length``: whole blocks, as evenly as they go; None where there are too few of them."""
    blocks = -(-length // block)
    if blocks < processes:
        return None
    starts = [block * (blocks * rank // processes) for rank in range(processes)]
    return (*starts, length)


@dataclass(eq=False)
class SequenceGroup:
    """The processes that share texts out, and the part of the present texts that is here.

    ``block``: tokens between which a text may be cut; ``whole_up_to``: tokens of texts that every process reads as a
    whole, since each of their tokens sees all others exactly. ``part``: None while texts are read so.
    """

    group: ProcessGroup
    block: int
    whole_up_to: int
    part: Part | None = None

    @property
    def rank(self) -> int:
        """Rank of this process in the group."""
        return torch.distributed.get_rank(self.group)

    @property
    def size(self) -> int:
        """P."""
        return torch.distributed.get_world_size(self.group)

    def begin(self, length: int, mask: Tensor | None, order: TextFirst | None) -> Part | None:
        """Note and return the part of texts of ``length`` tokens that is this process's; None: all of them."""
        bounds = None
        if self.size > 1 and length > self.whole_up_to:
            bounds = cut(length, block=self.block, processes=self.size)
        self.part = None
        if bounds is not None:
            self.part = Part(bounds[self.rank], bounds[self.rank + 1], length, bounds, mask, order)
        return self.part


def sequence_group(model: nn.Module) -> SequenceGroup:
    """The processes among which ``model`` shares texts out. Raises ConfigurationError where it does not."""
    found = vars(model).get(SEQUENCE_GROUP)
    if found is None:
        raise ConfigurationError(
            f"this {type(model).__name__} does not share texts out: longform.distributed.sequence_parallel(model) first"
        )
    return found
