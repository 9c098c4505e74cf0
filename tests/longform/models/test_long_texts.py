"""A long text passes through the layers some tokens at a time and in place: the same numbers, and nothing lost."""

import pytest
import torch
from model_kinds import KINDS, model, text
from torch import Tensor, nn

from longform.layers import streaming
from longform.layers.self_attention import Shared
from longform.models.modeling_linformer import LinformerModel
from tolerances import assert_close

LENGTH = 32


@pytest.fixture(autouse=True)
def few_tokens_are_long(monkeypatch):
    """From 17 tokens on, 4 at a time."""
    monkeypatch.setattr(streaming, "LONG", 17)
    monkeypatch.setattr(streaming, "CPU_ROWS", 8)


def whole(made: LinformerModel, given: dict[str, Tensor], **options) -> Tensor:
    """By the path that takes gradients."""
    with torch.enable_grad():
        return made(**given, **options).last_hidden_state.detach()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("normalization", ["post", "pre"])
def test_all_models_give_the_same(kind, normalization):
    torch.manual_seed(1)
    made, given = model(kind, LinformerModel, normalization=normalization), text(3, LENGTH)
    with torch.no_grad():
        assert_close(made(**given).last_hidden_state, whole(made, given), scope="model")


@pytest.mark.parametrize("kind", ["linear", "mean-window-sinks"])
@pytest.mark.parametrize("of", ["words", "words, with types and places", "vectors"])
def test_all_inputs_are_embedded_as_whole_texts_are(kind, of):
    made, given = model(kind), text(2, LENGTH)
    if of == "vectors":
        given["inputs_embeds"] = torch.randn(2, LENGTH, made.config.hidden_size)
        del given["input_ids"]
    elif of == "words, with types and places":
        given["token_type_ids"] = torch.randint(2, (2, LENGTH))
        given["position_ids"] = torch.randint(LENGTH, (2, LENGTH))
    before = {name: x.clone() for name, x in given.items()}
    expected = whole(made, given)
    with torch.inference_mode():
        assert_close(made(**given).last_hidden_state, expected, scope="model")
    assert all(torch.equal(given[name], x) for name, x in before.items())


@pytest.mark.parametrize("kind", ["linear", "mean-window-sinks"])
def test_a_layer_puts_its_output_where_its_input_was_only_when_told(kind):
    made, hidden = model(kind), torch.randn(2, LENGTH, 8)
    layer, shared = made.encoder.layers[0], Shared(made.encoder.shared_projection)
    given = hidden.clone()
    with torch.no_grad():
        out = layer.in_parts(hidden, None, shared, in_place=False)
        assert torch.equal(hidden, given)
        assert_close(out, layer(hidden, None, shared, False)[0], scope="model")
        written = layer.in_parts(hidden, None, shared, in_place=True)
    assert written.data_ptr() == hidden.data_ptr()
    assert torch.equal(written, out)


@pytest.mark.parametrize("kind", ["linear", "mean-window-sinks"])
def test_what_somebody_keeps_is_not_overwritten(kind):
    made, given = model(kind), text(2, LENGTH)
    with torch.no_grad():
        expected = made(**given, output_hidden_states=True).hidden_states
        hidden = expected[0].clone()
        made.encoder(hidden, None, output_hidden_states=False, output_attentions=False)
        assert torch.equal(hidden, expected[0])  # the caller's
        kept: list[Tensor] = []
        watched = [made.embeddings, *made.encoder.layers]
        hooks = [x.register_forward_hook(lambda _, __, out: kept.append(out)) for x in watched]
        made(**given)
        for hook in hooks:
            hook.remove()
    words = kept[0] * given["attention_mask"][..., None]  # the encoder has padding blanked
    states = [words, *(out[0] for out in kept[1:])]
    with torch.enable_grad():
        right = made(**given, output_hidden_states=True).hidden_states
    for found, again, state in zip(states, expected, right, strict=True):
        assert_close(found, state.detach(), scope="model")
        assert_close(again, state.detach(), scope="model")


class Nothing(nn.Module):
    """A layer that was taken out."""

    def forward(self, hidden, *_):
        """Its input."""
        return hidden, None


def test_a_layer_that_was_taken_out_gives_the_callers_tensor_on():
    made, given = model("linear"), text(2, LENGTH)
    made.encoder.layers[0] = Nothing()
    with torch.no_grad():
        expected = whole(made, given)
        hidden = made.embeddings(given["input_ids"])
        before = hidden.clone()
        made.encoder(hidden, None, output_hidden_states=False, output_attentions=False)
        assert torch.equal(hidden, before)
        assert_close(made(**given).last_hidden_state, expected, scope="model")


def test_autocast_writes_no_bfloat16_into_float32():
    made, given = model("linear", normalization="pre"), text(2, LENGTH)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        out = made(**given).last_hidden_state
        assert out.dtype == whole(made, given).dtype
        assert (out - whole(made, given)).norm() < 0.03 * out.norm()
