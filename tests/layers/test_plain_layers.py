"""Fused calls and chunks give what the plain modules give, and step aside where somebody else is at work."""

import pytest
import torch
from model_kinds import model, text
from torch import nn

from longform import LinformerModel
from longform.layers import linear as plain_linear
from longform.layers import row_chunks
from longform.layers.feed_forward import FeedForward
from longform.layers.linear import apply_linear, is_plain
from longform.layers.row_chunks import in_chunks
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
    quantised = torch.nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))
    return [hooked, before, replaced, quantised, Adapted(4, 3)]


def test_only_an_untouched_linear_is_plain():
    assert is_plain(nn.Linear(4, 3), nn.Linear)
    for layer in watched():
        assert not is_plain(layer, nn.Linear)
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    assert not is_plain(nn.Linear(4, 3), nn.Linear)
    handle.remove()
    assert is_plain(nn.Linear(4, 3), nn.Linear)


@pytest.mark.parametrize("with_gelu", [False, True])
def test_a_layer_that_is_not_plain_is_called(with_gelu):
    x = torch.randn(2, 5, 4)
    for layer in watched():
        expected = nn.functional.gelu(layer(x)) if with_gelu else layer(x)
        assert_close(apply_linear(layer, x, with_gelu=with_gelu), expected)


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


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("rows", [1, 4, 5, 14, 15, 99])
def test_chunks_are_the_whole(rows, grad):
    x, y = torch.randn(2, 7, 3, requires_grad=grad), torch.randn(2, 7, 3).transpose(0, 1).contiguous().transpose(0, 1)
    sizes = []

    def function(a, b):
        sizes.append(a.shape[1])
        return a.bfloat16() * b.bfloat16()

    out = in_chunks(function, x, y, rows=rows)
    assert torch.equal(out, x.bfloat16() * y.bfloat16())
    assert max(sizes) <= rows
    assert sum(sizes) == 14
    assert out.requires_grad == grad


@pytest.mark.parametrize("kind", ["linear", "mean-window-sinks"])
@pytest.mark.parametrize("normalization", ["post", "pre"])
def test_a_model_in_chunks_is_the_model(monkeypatch, kind, normalization):
    made, given = model(kind, LinformerModel, normalization=normalization), text(2, 32)
    with torch.no_grad():
        whole = made(**given).last_hidden_state
        monkeypatch.setattr(row_chunks, "CPU_ROWS", 10)
        assert_close(made(**given).last_hidden_state, whole, scope="model")
        shapes = []
        handle = made.encoder.layers[0].feed_forward.register_forward_hook(lambda _, x, __: shapes.append(x[0].shape))
        made(**given)
        handle.remove()
    assert shapes == [(2, 32, 8)]  # who looks is shown the whole
    monkeypatch.undo()
    for layer in made.encoder.layers:
        layer.chunk_size = 5
    assert_close(made(**given).last_hidden_state, whole, scope="model")


def test_nothing_is_plain_in_a_compiled_graph(monkeypatch):
    monkeypatch.setattr(plain_linear.torch.compiler, "is_compiling", lambda: True)
    assert not is_plain(nn.Linear(4, 3), nn.Linear)


@pytest.mark.parametrize(("batch", "rows"), [(1, 1024), (3, 341), (9999, 1)])
def test_each_document_of_a_batch_has_its_part_of_a_chunk(monkeypatch, batch, rows):
    monkeypatch.setattr(row_chunks, "CPU_ROWS", 1024)
    assert row_chunks.rows_of_each(batch) == rows
