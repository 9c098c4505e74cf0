"""Gradients of gradients of a classifier, float32 and under autocast, beside the same in float64 by the formulas."""

import copy
from collections.abc import Callable, Iterable
from contextlib import nullcontext

import model_kinds
import pytest
import torch
from kernel_tables import machine
from torch import Tensor
from torch.func import functional_call

from longform import LinformerForSequenceClassification, kernels
from longform.functional.dispatch import listening
from strategies import generator, normal

FORMULAS = {"attention": "formula", "window": "formula"}
SIZES = {
    "hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 96, "initializer_range": 0.1,
    "max_position_embeddings": 64, "projected_length": 16,
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "classifier_dropout": 0.0,
}  # fmt: skip
KINDS = ("linear", "mean-window", "mean-window-distances", "rotary-local")


def loss_of(model: LinformerForSequenceClassification, given: dict[str, Tensor], weights: dict[str, Tensor]) -> Tensor:
    return functional_call(model, weights, kwargs=given).loss


def hessian_vector_product(model, given: dict[str, Tensor], weights: dict[str, Tensor]) -> Iterable[Tensor]:
    leaves, source = list(weights.values()), generator(5)
    first = torch.autograd.grad(loss_of(model, given, weights), leaves, create_graph=True)
    return torch.autograd.grad(sum((x * normal(source, *x.shape)).sum() for x in first), leaves)


def gradient_penalty(model, given: dict[str, Tensor], weights: dict[str, Tensor]) -> Iterable[Tensor]:
    embeddings = given["inputs_embeds"].clone().requires_grad_()
    loss = loss_of(model, given | {"inputs_embeds": embeddings}, weights)
    (first,) = torch.autograd.grad(loss, embeddings, create_graph=True)
    return torch.autograd.grad(first.square().sum(), weights.values(), materialize_grads=True)


def inner_step(model, given: dict[str, Tensor], weights: dict[str, Tensor]) -> Iterable[Tensor]:
    """As MAML has it: the gradient of the loss after a step, by the weights before it."""
    leaves = list(weights.values())
    first = torch.autograd.grad(loss_of(model, given, weights), leaves, create_graph=True)
    moved = {name: x - 0.05 * g for (name, x), g in zip(weights.items(), first, strict=True)}
    return torch.autograd.grad(loss_of(model, given, moved), leaves)


def outcome(ask: Callable[..., Iterable[Tensor]], model, given: dict[str, Tensor], *, autocast: bool = False) -> Tensor:
    weights = {name: x for name, x in model.named_parameters() if "word_embeddings" not in name}
    with torch.autocast("cpu", dtype=torch.bfloat16) if autocast else nullcontext():
        return torch.cat([x.double().flatten() for x in ask(model, given, weights)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ask", [hessian_vector_product, gradient_penalty, inner_step])
def test_they_are_those_of_the_formulas(ask, kind):
    model = model_kinds.model(kind, LinformerForSequenceClassification, num_labels=3, **SIZES)
    mask = (torch.arange(60) < torch.tensor([[60], [43]])).long()
    given = {"inputs_embeds": torch.randn(2, 60, 64), "attention_mask": mask, "labels": torch.tensor([0, 2])}
    wide = given | {"inputs_embeds": given["inputs_embeds"].double()}
    with kernels.use(attention="formula", window="formula"):
        right = outcome(ask, copy.deepcopy(model).double(), wide)
    assert (outcome(ask, model, given) - right).norm() < 1e-4 * right.norm()
    with kernels.use(**FORMULAS):
        plain = (outcome(ask, model, given, autocast=True) - right).norm()
    assert plain < 0.05 * right.norm()
    for units in (None, "avx512", "amx"):
        with machine(units), listening() as heard:
            model.train()  # linear layers look for kernels then
            error = (outcome(ask, model, given, autocast=True) - right).norm()
        assert error < 1.5 * plain, units
        taken = {choice.kernel for choice in heard}
        assert ("compiled_training" in taken) == (units is not None and kind != "mean-window-distances")
