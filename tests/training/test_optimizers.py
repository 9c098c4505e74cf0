"""Muon and AdamW as one optimizer."""

import torch
from torch import nn

from longform.training.engine.optimizers import muon_adamw


def _model() -> nn.ModuleDict:
    torch.manual_seed(0)
    return nn.ModuleDict({"dense": nn.Linear(5, 7), "embeddings": nn.Embedding(11, 5), "out_proj": nn.Linear(7, 3)})


def _step(model: nn.ModuleDict, optimizer: torch.optim.Optimizer) -> None:
    ids = torch.arange(6).reshape(2, 3)
    model["out_proj"](model["dense"](model["embeddings"](ids)).tanh()).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def test_matrices_inside_go_to_muon_and_tables_and_last_layers_do_not():
    model = _model()
    optimizer = muon_adamw(model, lr=0.1, weight_decay=0.0)
    muon, adamw = optimizer.param_groups
    assert [p.shape for p in muon["params"]] == [(7, 5)]
    assert len(adamw["params"]) == 4
    before = model["dense"].weight.detach().clone()
    _step(model, optimizer)
    # Orthogonalised: every singular value of the update is about 0.2 sqrt(max(rows, columns)) lr.
    sizes = torch.linalg.svdvals(model["dense"].weight.detach() - before) / (0.1 * 0.2 * 7**0.5)
    assert sizes.min() > 0.5
    assert sizes.max() < 1.4


def test_a_schedule_reaches_both_parts():
    model = _model()
    optimizer = muon_adamw(model, lr=0.1, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.0 if step else 1.0)
    _step(model, optimizer)
    schedule.step()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    _step(model, optimizer)
    for name, p in model.named_parameters():
        torch.testing.assert_close(p.detach(), before[name], rtol=0, atol=0, msg=name)


def test_a_saved_state_goes_on_to_the_same_weights(tmp_path):
    unbroken, first = _model(), _model()
    optimizer, saved = (muon_adamw(model, lr=0.1, weight_decay=0.01) for model in (unbroken, first))
    for model, made in ((unbroken, optimizer), (first, saved)):
        _step(model, made)
        _step(model, made)
    torch.save(saved.state_dict(), tmp_path / "optimizer.pt")
    resumed = muon_adamw(first, lr=0.5, weight_decay=0.3)
    resumed.load_state_dict(torch.load(tmp_path / "optimizer.pt", weights_only=True))
    _step(unbroken, optimizer)
    _step(first, resumed)
    for (name, wanted), given in zip(unbroken.named_parameters(), first.parameters(), strict=True):
        torch.testing.assert_close(given, wanted, rtol=0, atol=0, msg=name)


def test_a_matrix_with_a_rate_of_its_own_keeps_it_and_adamw():
    model = _model()
    model["dense"].learning_rate_multiplier = 0.5
    optimizer = muon_adamw(model, lr=0.1, weight_decay=0.3)
    rates = {p: (group["lr"], group["weight_decay"]) for group in optimizer.param_groups for p in group["params"]}
    assert rates[model["dense"].weight] == (0.05, 0.0)
    _step(model, optimizer)
    assert [type(part) for part in optimizer.parts] == [torch.optim.AdamW]


def test_frozen_parameters_stay_out():
    model = _model()
    model["dense"].requires_grad_(False)
    optimizer = muon_adamw(model, lr=0.1, weight_decay=0.0)
    assert sum(len(group["params"]) for group in optimizer.param_groups) == 3
