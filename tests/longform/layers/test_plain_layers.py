"""Fused calls and chunks give what the plain modules give, and step aside where somebody else is at work."""

import pytest
import torch
from model_kinds import model, text
from torch import nn

from longform import LinformerModel
from longform.layers import streaming
from longform.layers.block import FeedForward
from longform.layers.linear import are_affine, is_hooked, pack_linear
from longform.layers.streaming import can_run_in_parts, in_chunks
from tolerances import assert_close


class Adapted(nn.Linear):
    """Somebody's layer with more to do."""

    def forward(self, x):
        return super().forward(x) + 1.0


def watched() -> list[nn.Module]:
    hooked, before, replaced = nn.Linear(4, 3), nn.Linear(4, 3), nn.Linear(4, 3)
    hooked.register_forward_hook(lambda *_: None)
    before.register_forward_pre_hook(lambda *_: None)
    replaced.forward = lambda x: x[..., :3] * 2.0
    compiled, behind, slopes = nn.Linear(4, 3), nn.Linear(4, 3), nn.Linear(4, 3)
    compiled._compiled_call_impl = compiled._call_impl  # as nn.Module.compile() leaves it
    behind.register_full_backward_hook(lambda *_: None)
    slopes.register_full_backward_pre_hook(lambda *_: None)
    return [hooked, before, behind, slopes, replaced, compiled, Adapted(4, 3)]


def test_only_a_layer_that_is_its_weights_is_affine():
    parametrised = torch.nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))
    assert are_affine(nn.Linear(4, 3), parametrised, pack_linear(nn.Linear(4, 3)))
    for layer in watched():
        assert not are_affine(nn.Linear(4, 3), layer)
    *hooked, adapted = watched()
    assert all(map(is_hooked, hooked))
    assert not is_hooked(nn.Linear(4, 3), adapted)


def test_layers_are_torchs_own():
    """Tools that look an exact type up (quantize_dynamic, pruning, PEFT) find all of them."""
    made = model("mean-window")
    found = [part for part in made.modules() if isinstance(part, nn.Linear)]
    assert {type(part) for part in found} == {nn.Linear}
    assert {type(part) for part in made.modules() if isinstance(part, nn.LayerNorm)} == {nn.LayerNorm}


@torch.no_grad()
def test_a_feed_forward_part_calls_layers_that_are_not_plain():
    x = torch.randn(2, 5, 4)
    for layer in watched():
        part = FeedForward(4, 3, nn.GELU())
        part.intermediate = layer
        assert_close(part(x), part.output(nn.functional.gelu(layer(x))))


@pytest.mark.parametrize("activation", [nn.GELU(), nn.GELU("tanh"), nn.functional.relu])
def test_feed_forward_equals_its_parts(activation):
    part, x = FeedForward(4, 6, activation), torch.randn(2, 5, 4)
    with torch.no_grad():
        assert_close(part(x), part.output(activation(part.intermediate(x))))


def test_a_hook_on_the_activation_sees_it():
    part, seen = FeedForward(4, 6, nn.GELU()), []
    part.activation.register_forward_hook(lambda *_: seen.append(1))
    with torch.no_grad():
        part(torch.randn(2, 5, 4))
    assert seen == [1]


def test_a_quantised_model_is_not_bypassed():
    made, given = model("mean-window"), text(2, 32)
    whole = made(**given).last_hidden_state.detach()
    for module in made.modules():
        if isinstance(module, FeedForward):
            module.output = Adapted(*reversed(module.output.weight.shape))
    assert (made(**given).last_hidden_state - whole).abs().max() > 0.1


@pytest.mark.parametrize("rows", [1, 4, 5, 14, 15, 99])
def test_chunks_are_the_whole(monkeypatch, rows):
    monkeypatch.setattr(streaming, "CPU_ROWS", rows)
    x, residual = (torch.randn(7, 2, 3).transpose(0, 1) for _ in range(2))
    sizes = []

    def function(a, b):
        sizes.append(a.shape[1])
        return (a if b is None else a + b).bfloat16()

    with torch.no_grad():
        out, sums = in_chunks(function, x), in_chunks(function, x, residual)
    assert torch.equal(out, x.bfloat16())
    assert torch.equal(sums, (x + residual).bfloat16())
    assert max(sizes) <= rows
    assert sum(sizes) == 28


@pytest.mark.parametrize("chunk_size", [1, 3, 7, 99])
def test_a_feed_forward_part_in_chunks_is_the_whole(chunk_size):
    """Forward and backward, as Hugging Face's chunk_size_feed_forward has it."""
    part = FeedForward(4, 6, nn.GELU())
    x = torch.randn(2, 7, 4)
    whole = part(x)
    part.chunk_size = chunk_size
    assert_close(part(x), whole)
    parameters = list(part.parameters())
    found = torch.autograd.grad(part(x).square().sum(), parameters)
    part.chunk_size = 0
    for one, other in zip(found, torch.autograd.grad(part(x).square().sum(), parameters), strict=True):
        assert_close(one, other, scope="model")


@pytest.mark.parametrize("kind", ["linear", "mean-window-sinks"])
@pytest.mark.parametrize("normalization", ["post", "pre"])
def test_a_model_in_chunks_is_the_model(monkeypatch, kind, normalization):
    made, given = model(kind, LinformerModel, normalization=normalization), text(2, 32)
    with torch.no_grad():
        whole = made(**given).last_hidden_state
        monkeypatch.setattr(streaming, "CPU_ROWS", 10)
        assert_close(made(**given).last_hidden_state, whole, scope="model")
        shapes = []
        handle = made.encoder.layers[0].feed_forward.register_forward_hook(lambda _, x, __: shapes.append(x[0].shape))
        made(**given)
        handle.remove()
    assert shapes == [(2, 32, 8)]  # who looks is shown the whole
    monkeypatch.undo()
    for layer in made.encoder.layers:
        layer.feed_forward.chunk_size = 5
    assert_close(made(**given).last_hidden_state, whole, scope="model")


def test_nothing_runs_in_parts_in_a_compiled_graph_or_where_somebody_looks(monkeypatch):
    layer, x = FeedForward(4, 6, nn.GELU()).eval(), torch.randn(2, 5, 4)
    assert not can_run_in_parts(layer, x)  # a gradient may be wanted
    with torch.no_grad():
        assert can_run_in_parts(layer, x)
        assert not can_run_in_parts(layer.train(), x)
        handle = layer.eval().output.register_forward_pre_hook(lambda *_: None)
        assert not can_run_in_parts(layer, x)
        handle.remove()
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
        assert not can_run_in_parts(layer, x)


@pytest.mark.parametrize(("batch", "rows"), [(1, 1024), (3, 341), (9999, 1)])
def test_each_document_of_a_batch_has_its_part_of_a_chunk(monkeypatch, batch, rows):
    monkeypatch.setattr(streaming, "CPU_ROWS", 1024)
    assert streaming.rows_of_each(batch) == rows
