"""Muon and AdamW, which share the weights of a distillation."""

import torch
from torch import nn

from longform_text.training.distillation.optimizer import Float32Muon, MuonAdamW


def _model() -> nn.ModuleDict:
    torch.manual_seed(0)
    return nn.ModuleDict({"dense": nn.Linear(5, 7), "embeddings": nn.Embedding(11, 5), "out_proj": nn.Linear(7, 3)})


def _step(model: nn.ModuleDict, optimizer: torch.optim.Optimizer) -> None:
    ids = torch.arange(6).reshape(2, 3)
    model["out_proj"](model["dense"](model["embeddings"](ids)).tanh()).square().sum().backward()
    optimizer.step()


def test_matrices_inside_go_to_muon_and_tables_and_last_layers_do_not():
    model = _model()
    optimizer = MuonAdamW(model, lr=0.1, weight_decay=0.0)
    muon, adamw = optimizer.param_groups
    assert [p.shape for p in muon["params"]] == [(7, 5)]
    assert len(adamw["params"]) == 4
    before = model["dense"].weight.detach().clone()
    _step(model, optimizer)
    # Orthogonalised: every singular value of the update is about 0.2 sqrt(max(rows, columns)) lr.
    sizes = torch.linalg.svdvals(model["dense"].weight.detach() - before) / (0.1 * 0.2 * 7**0.5)
    assert sizes.min() > 0.5
    assert sizes.max() < 1.4


def test_a_matrix_with_a_rate_of_its_own_keeps_it_and_adamw():
    model = _model()
    model["dense"].learning_rate_multiplier = 0.5
    optimizer = MuonAdamW(model, lr=0.1, weight_decay=0.3)
    rates = {p: (group["lr"], group["weight_decay"]) for group in optimizer.param_groups for p in group["params"]}
    assert rates[model["dense"].weight] == (0.05, 0.0)
    assert [type(part) for part in optimizer.parts] == [torch.optim.AdamW]


def test_frozen_parameters_stay_out():
    model = _model()
    model["dense"].requires_grad_(False)
    optimizer = MuonAdamW(model, lr=0.1, weight_decay=0.0)
    assert sum(len(group["params"]) for group in optimizer.param_groups) == 3


def test_a_checkpoint_of_both_goes_on_as_if_there_had_been_none():
    weights = []
    for kept in (False, True):
        model = _model()
        optimizer = MuonAdamW(model, lr=0.1, weight_decay=0.1)
        _step(model, optimizer)
        if kept:
            state, optimizer = optimizer.state_dict(), MuonAdamW(model, lr=0.1, weight_decay=0.1)
            optimizer.load_state_dict(state)
        optimizer.zero_grad()
        _step(model, optimizer)
        weights.append(model.state_dict())
    torch.testing.assert_close(weights[0], weights[1], rtol=0, atol=0)


def test_muon_in_float32_moves_matrices_as_torch_s_does():
    """Which multiplies in bfloat16; the gradients and the momentum are not touched by it."""
    moved = []
    for kind in (torch.optim.Muon, Float32Muon):
        matrix = nn.Parameter(torch.zeros(24, 16))
        optimizer = kind([matrix], lr=0.1, weight_decay=0.0)
        for seed in range(3):
            matrix.grad = torch.randn(24, 16, generator=torch.Generator().manual_seed(seed))
            optimizer.step()
        moved.append((matrix.detach(), optimizer.state[matrix]["momentum_buffer"]))
    assert torch.equal(moved[0][1], moved[1][1])
    assert moved[1][0].dtype == torch.float32
    assert torch.nn.functional.cosine_similarity(moved[0][0].flatten(), moved[1][0].flatten(), dim=0) > 0.999
