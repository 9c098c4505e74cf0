"""Layers and models on a GPU: the twin's numbers, padding that changes nothing, long texts, graphs."""

import copy
import math
from itertools import product

import pytest
import torch
from attention_kinds import KINDS as LAYER_KINDS
from attention_kinds import Layer
from model_kinds import KINDS, LONGEST, compiled_kinds, model, text
from torch import nn

from longform import LinformerForMaskedLM, LinformerModel
from longform.functional.dispatch import listening
from longform.layers import streaming
from longform.models.graphs import capture
from longform.models.inference import pack_weights
from strategies import generator, gradients, normal
from tolerances import assert_close

GPU = torch.device("cuda")
QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
WIDE = {  # heads that the Triton kernel takes
    "hidden_size": 128, "num_attention_heads": 2, "num_key_value_heads": None, "head_dim": None, "attention_window": 32,
    "projected_length": 64, "max_position_embeddings": 1024, "intermediate_size": 192, "initializer_range": 0.1,
}  # fmt: skip
WINDOWED = ["mean-window", "mean-window-sinks", "rotary-window", "rotary-local"]


def errors_of_gradients(found: nn.Module, expected: nn.Module) -> dict[str, float]:
    """||difference|| / ||expected|| of each weight's gradient; small ones (of key biases) as parts of the largest."""
    wanted = {name: x.grad.double().cpu() for name, x in expected.named_parameters() if x.grad is not None}
    least = 0.01 * max(float(x.norm()) for x in wanted.values())
    given = dict(found.named_parameters())
    pairs = {name: (given[name].grad.double().cpu(), x) for name, x in wanted.items()}
    return {name: float((one - x).norm()) / max(float(x.norm()), least) for name, (one, x) in pairs.items()}


@pytest.mark.parametrize("kind", LAYER_KINDS, ids=str)
def test_a_layer_and_its_gradients_equal_the_twin(kind):
    made = Layer(kind, 7, taps=3.0)
    mask = torch.arange(kind.longest) < torch.tensor([[kind.longest], [kind.longest - 3]])
    hidden = normal(generator(8), 2, kind.longest, kind.width, grad=True)
    cotangent = normal(generator(9), 2, kind.longest, kind.width) * mask[..., None]
    leaves = [hidden, *(leaf for leaf in made.leaves if leaf.requires_grad)]
    expected = made.twin(hidden, mask)
    wanted = gradients(expected, cotangent, leaves)

    made.layer.to(GPU)
    if made.shared is not None:
        made.shared.to(GPU)
    there = hidden.detach().to(GPU).requires_grad_()
    found = made(there, mask.to(GPU))
    moved = [there, *(leaf for leaf in made.leaves if leaf.requires_grad)]
    for one, other in zip(gradients(found, cotangent.to(GPU), moved), wanted, strict=True):
        assert_close(one.cpu(), other)
    assert_close(found.cpu() * mask[..., None], expected * mask[..., None])


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_a_model_gives_what_a_cpu_gives(kind):
    made, given = model(kind), text(4, LONGEST - 1)
    text_alone = given["attention_mask"].bool()
    expected = copy.deepcopy(made).double()(**given).last_hidden_state[text_alone]
    found = made.to(GPU)(**{name: x.to(GPU) for name, x in given.items()}).last_hidden_state.cpu()[text_alone]
    assert_close(found, expected, scope="model")


@pytest.mark.parametrize("kind", WINDOWED)
@pytest.mark.parametrize("length", [1000, 1024])
def test_a_windowed_model_trains_as_on_a_cpu(kind, length):
    made = model(kind, LinformerForMaskedLM, **WIDE, **QUIET).double()
    given = text(2, length)
    given["attention_mask"][1, length // 3 :] = 0
    labels = torch.where(given["attention_mask"].bool(), given["input_ids"], -100)
    twin, moved = copy.deepcopy(made), copy.deepcopy(made).float().to(GPU)
    expected = twin(**given, labels=labels).loss
    expected.backward()
    with listening() as heard:
        found = moved(**{name: x.to(GPU) for name, x in given.items()}, labels=labels.to(GPU)).loss
    assert "triton" in {choice.kernel for choice in heard if choice.operation == "window"}
    found.backward()
    assert_close(found.detach().cpu(), expected.detach(), scope="model")
    for name, error in errors_of_gradients(moved, twin).items():
        assert error < 1e-3, name


@pytest.mark.parametrize(
    ("kind", "dtype"), [("linear", torch.float32), *product(WINDOWED, (torch.float32, torch.bfloat16))]
)
@torch.no_grad()
def test_a_text_alone_and_beside_padding(kind, dtype):
    made = model(kind, LinformerModel, **WIDE | {"attention_window": KINDS[kind].get("attention_window") and 32})
    made = made.to(GPU, dtype)
    batch = {name: x.to(GPU) for name, x in text(3, 1024).items()}
    batch["attention_mask"][1, 100:] = 0
    batch["attention_mask"][2, 3:] = 0
    together = made(**batch).last_hidden_state
    for row, tokens in ((1, 100), (2, 3)):
        alone = made(input_ids=batch["input_ids"][row : row + 1, :tokens]).last_hidden_state
        error = (together[row, :tokens] - alone[0]).double().norm() / alone.double().norm()
        assert error < (1e-5 if dtype == torch.float32 else 3e-2)
    valid = batch["attention_mask"].bool()
    poisoned = torch.where(valid[..., None], 0.1, math.nan).to(dtype).expand(-1, -1, 128)
    out = made(inputs_embeds=poisoned, attention_mask=batch["attention_mask"]).last_hidden_state
    assert torch.isfinite(out[valid]).all()


@torch.no_grad()
def test_a_long_text_is_read_in_parts(monkeypatch):
    monkeypatch.setattr(streaming, "DEVICE_ROWS", 4096)
    longer = {"max_position_embeddings": 16384, "projected_length": 1024}
    made = model("mean-window", LinformerModel, **WIDE | longer).to(GPU)
    ids = torch.randint(5, 40, (1, 16384), device=GPU)
    with torch.enable_grad():  # in one piece
        whole = made.requires_grad_(False)(input_ids=ids).last_hidden_state
    assert_close(pack_weights(made)(input_ids=ids).last_hidden_state, whole, scope="model")


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_captured_passes(kind):
    """Batches of one shape and of others, of which each kind is captured when it comes again; no warning is given."""
    made = capture(model(kind).to(GPU))
    for lengths in ([29, 20], [31, 17], [30, 19], [29, 3], [31, 1], [32, 32], [32, 32], [30, 18]):
        width = max(lengths)
        given = {name: x.to(GPU) for name, x in text(2, width).items()}
        given["attention_mask"] = (torch.arange(width) < torch.tensor(lengths)[:, None]).long().to(GPU)
        text_alone = given["attention_mask"].bool()
        expected = made.forward.ordinary(**given).last_hidden_state
        assert_close(made(**given).last_hidden_state[text_alone], expected[text_alone], scope="model")
    assert len(made.forward.graphs) == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.no_grad()
def test_more_graphs_than_are_kept_share_their_memory(dtype):
    made = capture(model("mean-window-sinks", LinformerModel, **WIDE).to(GPU, dtype), kept=3)
    for length in (100, 300, 500, 700, 900) * 4:
        given = {name: x[:, :length].to(GPU) for name, x in text(2, length).items()}
        text_alone = given["attention_mask"].bool()
        expected = made.forward.ordinary(**given).last_hidden_state[text_alone].float()
        error = (made(**given).last_hidden_state[text_alone].float() - expected).norm() / expected.norm()
        assert error < (1e-5 if dtype == torch.float32 else 2e-2)
    assert len(made.forward.graphs) == 3


@pytest.mark.parametrize("kind", compiled_kinds(KINDS))
@torch.no_grad()
def test_one_graph_for_every_length(kind):
    torch._dynamo.reset()  # one process may compile a function only so many times
    made = model(kind).to(GPU)
    graph = torch.compile(made, fullgraph=True, dynamic=True)
    for batch, length in ((2, LONGEST), (3, LONGEST - 3), (2, 9)):
        given = {name: x.to(GPU) for name, x in text(batch, length).items()}
        text_alone = given["attention_mask"].bool()
        found, expected = graph(**given).last_hidden_state, made(**given).last_hidden_state
        assert_close(found[text_alone], expected[text_alone], scope="model")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_graph_of_a_training_step(dtype):
    torch._dynamo.reset()
    made = model("mean-window", LinformerForMaskedLM, **WIDE, **QUIET).to(GPU)
    copied = copy.deepcopy(made)
    graph = torch.compile(copied, dynamic=True)
    given = {name: x.to(GPU) for name, x in text(2, 777).items()}
    losses = []
    for trained in (made, graph):
        with torch.autocast("cuda", dtype=dtype, enabled=dtype != torch.float32):
            loss = trained(**given, labels=given["input_ids"]).loss
        loss.backward()
        losses.append(loss.detach())
    assert_close(losses[1], losses[0], scope="model")
    for name, error in errors_of_gradients(copied, made).items():
        assert error < (1e-3 if dtype == torch.float32 else 0.1), name
