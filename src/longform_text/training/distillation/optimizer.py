"""Muon for the matrices inside the layers, AdamW for all else, as one optimizer."""

from collections.abc import Collection, Iterable
from typing import Any

from torch import Tensor, float32, nn
from torch.optim import AdamW, Muon, Optimizer
from torch.overrides import TorchFunctionMode

from longform.functional.conditions import native_bfloat16
from longform.layers.parameter_groups import multipliers, parameter_groups

# Tables and last layers: one row for each word, distance or label.
NOT_MUON = ("embeddings", "relative_attention_bias", "decoder", "out_proj")


class _Float32(TorchFunctionMode):
    """Float32 where bfloat16 is asked for."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.bfloat16:
            return args[0].to(float32, copy=True)
        return func(*args, **(kwargs or {}))


class Float32Muon(Muon):
    """Muon for CPUs that do not multiply bfloat16, in which torch's takes 25 times as long there."""

    def step(self, closure: Any = None) -> Any:
        """A step of Muon."""
        with _Float32():
            return super().step(closure)


class MuonAdamW(Optimizer):
    """Muon for the trained matrices inside the layers of ``model``, AdamW for vectors, tables and last layers.

    Muon (Jordan et al. 2024) takes the direction of a matrix's momentum and makes all its singular values one; "Muon is
    scalable for LLM training" (Liu et al. 2025) scales the result so that AdamW's rates and weight decay fit.
    ``weight_decay``: of the former. What has a rate of its own (longform.parameter_groups) keeps it, and AdamW.
    """

    def __init__(self, model: nn.Module, *, lr: float, weight_decay: float) -> None:
        by_muon = _inner_matrices(model)
        groups = parameter_groups(model, lr=lr, weight_decay=0.0)
        matrices = [group | {"weight_decay": weight_decay} for group in _groups_of(groups, by_muon)]
        others = _groups_of(groups, set(model.parameters()) - by_muon)
        self.parts: list[Optimizer] = []
        if matrices:
            kind = Muon if native_bfloat16(next(iter(by_muon)).device) else Float32Muon
            self.parts.append(kind(matrices, lr=lr, adjust_lr_fn="match_rms_adamw"))
        if others:
            self.parts.append(AdamW(others, lr=lr, fused=True))
        self.sizes = [len(part.param_groups) for part in self.parts]
        super().__init__([group for part in self.parts for group in part.param_groups], {"lr": lr})

    def step(self, closure: Any = None) -> Any:
        """A step of both, with the groups and the state of this optimizer, which a checkpoint keeps."""
        first = 0
        for part, count in zip(self.parts, self.sizes, strict=True):
            part.param_groups, part.state = self.param_groups[first : first + count], self.state
            part.step()
            first += count


def _inner_matrices(model: nn.Module) -> set[nn.Parameter]:
    """Trained matrices inside the layers, without those that have a rate of their own."""
    plain = {p for p, multiplier in multipliers(model).items() if multiplier is None and p.ndim == 2}
    return plain - {p for name, p in model.named_parameters() if any(part in name for part in NOT_MUON)}


def _groups_of(groups: Iterable[dict[str, Any]], parameters: Collection[nn.Parameter]) -> list[dict[str, Any]]:
    """Groups with those of their parameters that are among ``parameters``; none of them is empty."""
    chosen = [group | {"params": [p for p in group["params"] if p in parameters]} for group in groups]
    return [group for group in chosen if group["params"]]
