"""Parameters of a module, grouped for an optimizer: some learn at another rate than the network.

Adam moves every number by about the learning rate, whatever its size. An entry of E that begins as a mean of 8 tokens
is 1/8, and k n of them move at once: at the network's rate noise drowns the means before anything is learned.
"""

from collections.abc import Iterator
from typing import Any

from torch import nn


def parameter_groups(module: nn.Module, *, lr: float, weight_decay: float | None = None) -> list[dict[str, Any]]:
    """Groups for torch.optim of the trained parameters of ``module``, each once, however many modules share it.

    ``lr``: learning rate. A module multiplies it for its parameters, and for those of the modules inside it, by an
    attribute ``learning_rate_multiplier``, as projections do; these have no weight decay. Adapters of PEFT inside them
    are matrices of other sizes of entries: they learn at ``lr``, as all adapters do, and decay. ``weight_decay``: of
    other matrices; None: the optimizer's own. Vectors (biases, norms) have none.
    """
    groups: dict[tuple[float, float | None], list[nn.Parameter]] = {}
    for parameter, multiplier in multipliers(module).items():
        decay = weight_decay if multiplier is None and parameter.ndim > 1 else 0.0
        groups.setdefault((lr if multiplier is None else lr * multiplier, decay), []).append(parameter)
    return [
        {"params": groups[rate, decay], "lr": rate} | ({} if decay is None else {"weight_decay": decay})
        for rate, decay in sorted(groups, key=lambda key: (-key[0], key[1] == 0.0))  # the network's own first
    ]


def multipliers(module: nn.Module) -> dict[nn.Parameter, float | None]:
    """Each trained parameter of ``module``, with the multiplier of the innermost module around it that has one."""
    return {parameter: own for parameter, own in _inside(module, None) if parameter.requires_grad}


def _inside(module: nn.Module, outer: float | None) -> Iterator[tuple[nn.Parameter, float | None]]:
    own = getattr(module, "learning_rate_multiplier", outer)
    for parameter in module.parameters(recurse=False):
        yield parameter, own
    adapters = getattr(module, "adapter_layer_names", ())  # of a layer of PEFT
    for name, child in module.named_children():
        yield from _inside(child, None if name in adapters else own)
