"""Tensors saved for the backward pass that are computed again, kept elsewhere or given out once: the same gradients."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import pytest
import torch
from gradients import assert_near
from kernel_tables import machine
from stack_kinds import HEADS, STACKS, WIDTH, stack, texts
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from longform import LinformerEncoder
from longform.functional.dispatch import listening
from strategies import randomised

Way = Callable[[LinformerEncoder, Tensor, Tensor], Tensor]
plainly: Way = nn.Module.__call__


def once(layout: torch.memory_format = torch.preserve_format) -> saved_tensors_hooks:
    """Hooks that hand out a copy of each tensor once."""
    return saved_tensors_hooks(lambda x: [x.detach().clone(memory_format=layout)], list.pop)


def again(reentrant: bool, model: nn.Module, *given: Tensor) -> Tensor:
    return checkpoint(model, *given, use_reentrant=reentrant)


def by_layers(model: LinformerEncoder, hidden: Tensor, mask: Tensor) -> Tensor:
    model.recompute = True
    return model(hidden, mask)


def nested(model: LinformerEncoder, hidden: Tensor, mask: Tensor) -> Tensor:
    return again(False, partial(by_layers, model), hidden, mask)


def twice(model: LinformerEncoder, hidden: Tensor, mask: Tensor) -> Tensor:
    return model(model(hidden, mask), mask)


def in_segments(model: LinformerEncoder, hidden: Tensor, mask: Tensor) -> Tensor:
    """``twice``, of which the first is computed again."""
    return checkpoint_sequential([partial(model, attention_mask=mask)] * 2, 2, hidden, use_reentrant=False)


def gradients(kind: str, half: bool, way: Way, hooks: AbstractContextManager | None = None) -> list[Tensor]:
    """Of the input and all weights, for one and the same gradient of the output."""
    model, (hidden, mask) = stack(kind), texts(kind)
    hidden, slope = hidden.requires_grad_(), torch.randn(hidden.shape)
    with hooks or nullcontext(), machine("avx512"), torch.autocast("cpu", torch.bfloat16, enabled=half):
        out = way(model, hidden, mask)
        out.backward(slope.to(out.dtype) * mask[..., None])
    return [hidden.grad, *(weight.grad for weight in model.parameters() if weight.grad is not None)]


def flat(tensors: list[Tensor]) -> Tensor:
    return torch.cat([x.flatten() for x in tensors])


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("kind", STACKS)
def test_gradients_are_the_same(kind, half):
    plain = gradients(kind, half, plainly)
    ways = [(partial(again, True), None), (partial(again, False), save_on_cpu()), (plainly, once())]
    ways += [(by_layers, None), (nested, None)]
    for found in (gradients(kind, half, *way) for way in ways):
        for one, other in zip(found, plain, strict=True):
            assert torch.equal(one, other)
    # Sums in another order. All weights together: the gradient of a key's bias is nothing but rounding.
    elsewhere = gradients(kind, half, plainly, once(torch.contiguous_format))
    assert_near([flat(elsewhere)], [flat(plain)], torch.bfloat16 if half else torch.float32)
    for one, other in zip(gradients(kind, half, twice), gradients(kind, half, in_segments), strict=True):
        assert torch.equal(one, other)


def test_every_kernel_of_training_served():
    with listening() as heard:
        for kind in ("linear", "mean-window", "mean-causal"):
            for half in (False, True):
                gradients(kind, half, plainly)
    assert {choice[:2] for choice in heard} == {
        ("attention", "compiled_training"), ("attention", "sdpa"),
        ("window", "compiled_training"), ("window", "sdpa_training"), ("window", "formula"),
    }  # fmt: skip


def test_gradients_of_a_context_whose_layers_are_computed_again():
    found = []
    for recompute in (False, True):
        torch.manual_seed(0)
        options = {"context_size": 24, "gradient_checkpointing": recompute}
        model = randomised(LinformerEncoder(WIDTH, 2, HEADS, **options)).train()
        hidden, context = torch.randn(2, 20, WIDTH), torch.randn(2, 70, 24, requires_grad=True)
        with machine("avx512"), torch.autocast("cpu", torch.bfloat16):
            model(hidden, context=context).square().sum().backward()
        found.append([context.grad, *(weight.grad for weight in model.parameters() if weight.grad is not None)])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)
