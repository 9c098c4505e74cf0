"""A check that all processes of a group have the same texts: parts of different ones would be mixed in silence."""

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from longform.errors import InputError


def digest(given: Mapping[str, Any]) -> int:
    """A number of 63 bits for the tensors of ``given``, any shapes and dtypes: names, shapes and contents."""
    content = hashlib.blake2b(digest_size=8)
    for name in sorted(given):
        value = given[name]
        if isinstance(value, Tensor):
            content.update(f"{name} {value.dtype} {tuple(value.shape)} ".encode())
            content.update(value.detach().contiguous().cpu().flatten().view(torch.uint8).numpy())
    return int.from_bytes(content.digest()) >> 1


def check_same_texts(given: Mapping[str, Any], group: ProcessGroup, device: torch.device) -> None:
    """Compare the tensors of ``given`` over the processes of ``group``, which tell each other 8 bytes.

    Raises InputError in all of them where they differ.
    """
    own = torch.tensor([digest(given)], device=device)
    found = [torch.empty_like(own) for _ in range(torch.distributed.get_world_size(group))]
    torch.distributed.all_gather(found, own, group)
    digests = [int(x) for x in found]
    odd = [rank for rank, each in enumerate(digests) if each != digests[0]]
    if odd:
        shapes = {name: tuple(value.shape) for name, value in given.items() if isinstance(value, Tensor)}
        raise InputError(
            f"the processes that share a text out were given different ones: rank {odd[0]} has not what rank 0 has "
            f"(here, rank {torch.distributed.get_rank(group)}: {shapes}); give each of them the same whole batch, of "
            "which it takes its part"
        )
