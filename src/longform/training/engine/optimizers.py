"""Muon for matrices and AdamW for the rest, as one optimizer.

Muon (Jordan et al. 2024) takes the direction of a matrix's momentum and makes all its singular values one; "Muon is
scalable for LLM training" (Liu et al. 2025) scales the result so that AdamW's rates and weight decay fit. An encoder
whose attention was replaced has to turn many directions of its matrices a little, which is what this does: see
docs/guides/heal-and-fine-tune.md for the measurement.
"""

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import nn
from torch.optim import AdamW, Muon, Optimizer

from longform.layers.parameter_groups import multipliers, parameter_groups

# Tables and last layers: one row for each word, distance or label.
NOT_MUON = ("embeddings", "relative_attention_bias", "decoder", "out_proj")


class MuonAdamW(Optimizer):
    """One optimizer of two: groups of ``matrices`` (2-D) by Muon, of ``others`` by AdamW; both follow one schedule.

    Shapes and dtypes as the parameters. ``lr``: highest learning rate of the network.
    """

    def __init__(self, matrices: list[dict[str, Any]], others: list[dict[str, Any]], *, lr: float) -> None:
        self.parts: list[Optimizer] = []
        super().__init__([*matrices, *others], {"lr": lr})
        if matrices:
            self.parts.append(Muon(matrices, lr=lr, adjust_lr_fn="match_rms_adamw"))
        if others:
            self.parts.append(AdamW(others, lr=lr, fused=True))
        self.link()

    def link(self) -> None:
        """To be called when a part has other groups: the schedule writes rates into the groups of the parts."""
        self.param_groups = [group for part in self.parts for group in part.param_groups]

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # ty: ignore[incompatible-method-override]
        """One update. Returns what ``closure`` returns."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self.parts:
            part.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """The states of both parts."""
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up states that ``state_dict`` gave."""
        for part, state in zip(self.parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
        self.link()


def muon_adamw(model: nn.Module, *, lr: float, weight_decay: float) -> MuonAdamW:
    """Muon for the trained matrices inside the layers, AdamW for vectors, tables, kernels and last layers.

    ``weight_decay``: of the former. What has a rate of its own (longform.parameter_groups) keeps it, and AdamW.
    """
    plain = {p for p, multiplier in multipliers(model).items() if multiplier is None and p.ndim == 2}
    others = {p for name, p in model.named_parameters() if any(part in name for part in NOT_MUON)}
    by_muon, by_adamw = split_groups(parameter_groups(model, lr=lr, weight_decay=0.0), plain - others)
    return MuonAdamW([group | {"weight_decay": weight_decay} for group in by_muon], by_adamw, lr=lr)


def split_groups(
    groups: list[dict[str, Any]], first: Collection[nn.Parameter]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Groups of the parameters among ``first``, and of the others; none of them is empty."""
    halves = [
        [group | {"params": [p for p in group["params"] if (p in first) == wanted]} for group in groups]
        for wanted in (True, False)
    ]
    first_half, second_half = ([group for group in half if group["params"]] for half in halves)
    return first_half, second_half
