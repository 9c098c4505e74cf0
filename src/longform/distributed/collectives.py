"""Messages between processes: sums, the tokens on both sides of a part, and those of all parts. Gradients pass.

The gradient of a sum over processes is the sum of the gradients, that of an exchange the exchange backwards: torch's
functional collectives have both, in eager mode and in compiled graphs. (torch.distributed.all_reduce has none, and that
of DTensor's Partial is wrong unless it is told what the gradient is.)

Axes: B batch, n tokens of the whole texts, m tokens of a part, D features.
"""

from typing import NamedTuple

import torch
import torch.distributed._functional_collectives as functional
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from longform.distributed.parts import sequence_group
from longform.functional.masks import moved


class Neighbours(NamedTuple):
    """Tokens ``before`` and ``after`` those of a part, (B, ., D) each; none at the ends of a text."""

    before: Tensor
    after: Tensor


def summed(tensors: list[Tensor], group: ProcessGroup) -> list[Tensor]:
    """Each tensor summed over the processes of ``group``, all in one message; tensors of one dtype, of any shapes."""
    flat = torch.cat([x.flatten() for x in tensors])
    total = functional.wait_tensor(functional.all_reduce(flat, "sum", group))
    parts = total.split([x.numel() for x in tensors])
    return [part.view(x.shape) for part, x in zip(parts, tensors, strict=True)]


def neighbours(x: Tensor, group: ProcessGroup, *, window: int, before: int, after: int) -> Neighbours:
    """The ``before`` last tokens of the process before this one, and the ``after`` first ones of the next.

    x (B, m, D): this process's; those before and after it get up to ``window`` of them. 0 where there is no process.
    """
    rank, size = torch.distributed.get_rank(group), torch.distributed.get_world_size(group)
    tokens = x.transpose(0, 1)
    sent, received, messages = [0] * size, [0] * size, []
    if rank > 0:
        messages.append(tokens[:window])
        sent[rank - 1], received[rank - 1] = messages[-1].shape[0], before
    if rank < size - 1:
        messages.append(tokens[-window:])
        sent[rank + 1], received[rank + 1] = messages[-1].shape[0], after
    found = functional.all_to_all_single(torch.cat(messages).contiguous(), received, sent, group)
    return Neighbours(*functional.wait_tensor(found).transpose(0, 1).split([before, after], dim=1))


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
