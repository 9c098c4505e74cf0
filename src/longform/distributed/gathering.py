"""Whole results of a model whose texts are shared out.

Axes: B batch, n tokens of the whole texts, m tokens of a part.
"""

import torch
from torch import Tensor, nn

from longform.distributed.collectives import summed
from longform.distributed.parts import SequenceGroup
from longform.errors import ConfigurationError
from longform.functional.masks import moved

SEQUENCE_GROUP = "sequence_group"  # the attribute of a model that holds them


def sequence_group(model: nn.Module) -> SequenceGroup:
    """The processes among which ``model`` shares texts out. Raises ConfigurationError where it does not."""
    found = vars(model).get(SEQUENCE_GROUP)
    if found is None:
        raise ConfigurationError(
            f"this {type(model).__name__} does not share texts out: longform.distributed.sequence_parallel(model) first"
        )
    return found


def gather_tokens(model: nn.Module, x: Tensor) -> Tensor:
    """Tensor of all tokens, (B, n, ...), from each process's part x (B, m, ...) in the last pass of ``model``.

    Hidden states or logits, in the places of the input. The whole text is then in every process, and moved to each: for
    short texts, and to look at. Gradients pass. Raises ConfigurationError where the model shares no texts out.
    """
    sequence = sequence_group(model)
    part = sequence.part
    if part is None:
        return x
    whole = x.new_zeros(x.shape[0], part.length, *x.shape[2:])
    places = torch.arange(part.start, part.stop, device=x.device)
    whole = summed([whole.index_copy(1, places, x)], sequence.group)[0]
    return whole if part.order is None else moved(whole, part.order.back)
