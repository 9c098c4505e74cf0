"""Parameters of a module, grouped for an optimizer: some learn at a rate of their own.

Adam moves every number by about the learning rate, whatever its size. An entry of E that begins as a mean of 8 tokens
is 1/8, and k n of them move at once: at the network's rate noise drowns the means before anything is learned.
"""

from collections.abc import Iterator
from typing import Any

from torch import nn


def parameter_groups(module: nn.Module, *, lr: float, weight_decay: float | None = None) -> list[dict[str, Any]]:
    """Groups for torch.optim of the trained parameters of ``module``, each once, however many modules share it.

    ``lr``: learning rate. A module multiplies it for its own parameters, and for those of the modules inside it, by an
    attribute ``learning_rate_multiplier``: projections that begin as means of runs of tokens do.
    ``weight_decay``: of matrices whose rate is not multiplied; None: the optimizer's own. All else has none.
    """
    groups: dict[tuple[float, float | None], list[nn.Parameter]] = {}
    for parameter, multiplier in dict(_multipliers(module, 1.0)).items():
        if parameter.requires_grad:
            decay = weight_decay if multiplier == 1.0 and parameter.ndim > 1 else 0.0
            groups.setdefault((multiplier, decay), []).append(parameter)
    return [
        {"params": groups[multiplier, decay], "lr": lr * multiplier}
        | ({} if decay is None else {"weight_decay": decay})
        for multiplier, decay in sorted(groups, key=lambda key: (-key[0], key[1] == 0.0))  # the network's own first
    ]


def _multipliers(module: nn.Module, outer: float) -> Iterator[tuple[nn.Parameter, float]]:
    """Each parameter of ``module``, with the multiplier of the innermost module around it that has one."""
    own = getattr(module, "learning_rate_multiplier", outer)
    for parameter in module.parameters(recurse=False):
        yield parameter, own
    for child in module.children():
        yield from _multipliers(child, own)
