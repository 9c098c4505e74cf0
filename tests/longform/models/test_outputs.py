"""Hidden states, attention weights, checkpointing."""

import pytest
import torch
from kernel_tables import machine
from model_kinds import KINDS, LONGEST, checkpointed, model, text

from longform import LinformerForMaskedLM
from longform.layers import streaming
from tolerances import assert_close

QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
WIDTHS = {  # of the attention weights of a text of 32 tokens
    "linear": 8, "linear-none": 8, "linear-key_value": 8, "linear-layerwise": 8, "random": 8, "mean": 8, "max": 8,
    "convolution": 8, "k of each head": 8, "mean-window": 8 + 3 * 8, "weighted_mean": 8,
    "weighted_mean-convolution": 8, "weighted_mean-window": 2 + 8 + 3 * 8, "weighted_mean-rotary": 8 + 3 * 8,
    "max-window": 8 + 3 * 8,
    "convolution-window": 8 + 3 * 8, "mean-sinks": 2 + 8, "mean-window-sinks": 2 + 8 + 3 * 8,
    "mean-window-distances": 1 + 8 + 3 * 8, "mean-window-selection": 1 + 8 + 3 * 4,
    "rotary-window-selection": 8 + 3 * 4,
    "by_place": 8, "content_and_place": 8, "latent": 8, "latent-sinks": 2 + 8, "latent-rotary": 8,
    "rotary": 8, "rotary-window": 1 + 8 + 3 * 8, "rotary-local": 3 * 11,  # which is 1 + 8 + 3 * 8 in its first layer
    "narrow heads": 2 + 8 + 3 * 8, "wide heads": 8, "wide rotary heads": 8 + 3 * 8, "window over everything": 32,
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_attentions_and_hidden_states(kind):
    made, given = model(kind, LinformerForMaskedLM), text(2, LONGEST)
    out = made(**given, output_attentions=True, output_hidden_states=True)
    assert [a.shape for a in out.attentions] == [(2, 2, LONGEST, WIDTHS[kind])] * 2
    assert [h.shape for h in out.hidden_states] == [(2, LONGEST, 8)] * 3
    for weights in out.attentions:
        assert_close(weights.sum(dim=-1), torch.ones(2, 2, LONGEST))
    plain = made(**given)
    assert plain.attentions is None
    assert plain.hidden_states is None
    kept = given["attention_mask"].bool()
    assert_close(out.logits[kept], plain.logits[kept], scope="model")
    by_head = made.linformer(**given, output_hidden_states=True)
    assert_close(by_head.hidden_states[-1][kept], by_head.last_hidden_state[kept], scope="model")


@pytest.mark.parametrize("kind", KINDS)
def test_the_attention_weights_returned_are_those_used(kind):
    """Attributions ask for their gradients."""
    made, given = model(kind, **QUIET).double(), text(2, LONGEST - 3)
    kept = given["attention_mask"].bool()
    out = made(**given, output_attentions=True)
    assert_close(out.last_hidden_state[kept], made(**given).last_hidden_state[kept], scope="model")
    gradients = torch.autograd.grad(out.last_hidden_state[kept].pow(3).mean(), out.attentions)
    for gradient in gradients:
        of_tokens = gradient.transpose(1, 2)
        assert of_tokens[kept].abs().max() > 1e-6
        assert of_tokens[~kept].abs().max() == 0


@pytest.mark.parametrize("pre_or_post", ["pre", "post"])
def test_who_watches_the_attention_sees_its_output_alone(pre_or_post):
    made, given = model("mean-window", normalization=pre_or_post), text(2, 20)
    seen = []
    with torch.no_grad():
        expected = made(**given).last_hidden_state
        layer = made.encoder.layers[0]
        layer.attention.register_forward_hook(lambda *passed: seen.append(passed[2]))
        assert_close(made(**given).last_hidden_state, expected.double())
        hidden = made(**given, output_hidden_states=True).hidden_states[0]
        source = layer.attention_norm(hidden) if pre_or_post == "pre" else hidden
        alone = layer.attention.forward(source, given["attention_mask"])
    for out in seen:
        assert_close(out, alone.double())
    assert len(seen) == 2


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")  # torch's, of an RMSNorm in autocast
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_gradient_checkpointing_gives_the_same_gradients(kind, half):
    sizes = {"hidden_size": 64, "initializer_range": 0.1}
    made, given = model(kind, LinformerForMaskedLM, **QUIET, **sizes).train(), text(2, LONGEST)
    calls, gradients = [], []
    made.linformer.encoder.layers[0].attention.value.register_forward_hook(lambda *_: calls.append(1))
    for reentrant in (None, False, True):
        if reentrant is not None:
            checkpointed(made, reentrant=reentrant)
        made.zero_grad()
        with machine("avx512"), torch.autocast("cpu", torch.bfloat16, enabled=half):
            made(**given, labels=given["input_ids"]).loss.backward()
        gradients.append({name: p.grad for name, p in made.named_parameters() if p.grad is not None})
    assert len(calls) == 5  # once, then forward and again in backward
    whole = torch.cat([x.flatten() for x in gradients[0].values()]).norm()
    for name, gradient in gradients[0].items():
        assert torch.equal(gradients[1][name], gradient)
        # Its forward took the kernels of inference.
        assert (gradients[2][name] - gradient).norm() < (0.02 if half else 1e-4) * whole


@pytest.mark.parametrize(("rows", "long"), [(8, 16), (8, 99), (99, 16)])
@pytest.mark.parametrize("kind", ["linear", "mean-window"])
def test_reentrant_checkpointing_computes_again_what_was_dropped(kind, rows, long, monkeypatch):
    """Its first pass has no gradients, and goes through long texts in parts where nothing is dropped."""
    monkeypatch.setattr(streaming, "CPU_ROWS", rows)
    monkeypatch.setattr(streaming, "LONG", long)
    options = {**QUIET, "hidden_dropout_prob": 0.3}
    made, given = model(kind, LinformerForMaskedLM, **options).double().train(), text(2, LONGEST)
    gradients = []
    for reentrant in (False, True):
        checkpointed(made, reentrant=reentrant)
        made.zero_grad()
        torch.manual_seed(3)
        made(**given, labels=given["input_ids"]).loss.backward()
        gradients.append({name: p.grad for name, p in made.named_parameters()})
    for name, gradient in gradients[0].items():
        assert_close(gradients[1][name], gradient, scope="model")
