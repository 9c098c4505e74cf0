"""torch.compile(fullgraph=True): no graph break, no graph of its own for each length, the eager result."""

import pytest
import torch
from model_kinds import KINDS, LONGEST, compiled_kinds, model, text
from torch._dynamo.testing import CompileCounterWithBackend

from longform import LinformerAttention, LinformerForMaskedLM
from tolerances import assert_close

ONE_LAYER = {"num_hidden_layers": 1, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()


# "mean-window-distances" has sinks too: what is traced for "mean-window-sinks", and the bias beside it.
@pytest.mark.parametrize("kind", compiled_kinds(kind for kind in KINDS if kind != "mean-window-sinks"))
@torch.no_grad()
def test_one_graph_for_every_length(kind):
    made, counter = model(kind, **ONE_LAYER), CompileCounterWithBackend("eager")
    compiled = torch.compile(made, fullgraph=True, dynamic=True, backend=counter)
    for length in (20, 9, 31, 8, 17, LONGEST, 3, 16, 2):
        for batch in (3, 2):
            given = text(batch, length)
            out, expected = compiled(**given).last_hidden_state, made(**given).last_hidden_state
            kept = given["attention_mask"].bool()
            assert_close(out[kept], expected[kept], scope="model")
    assert counter.frame_count <= 2  # torch may make one graph for n < maximum and one for n = maximum


@pytest.mark.parametrize("kind", ["linear", "mean-window"])
@pytest.mark.parametrize(
    "family", [pytest.param({}, marks=pytest.mark.nightly), {"pad_token_id": 1, "position_offset": 2}]
)
@torch.no_grad()
def test_one_graph_for_padding_on_either_side(kind, family):
    made, counter = model(kind, **ONE_LAYER, **family), CompileCounterWithBackend("eager")
    compiled = torch.compile(made, fullgraph=True, dynamic=True, backend=counter)
    for length, moved in ((20, 0), (20, 3), (29, 0), (29, 11)):
        right = text(3, length)
        right["attention_mask"][:, length - 11 :] = 0
        given = {name: x.roll(moved, dims=1) for name, x in right.items()}
        out, expected = compiled(**given), made(**right)
        kept = given["attention_mask"].bool()
        of_text = expected.last_hidden_state[right["attention_mask"].bool()]
        assert_close(out.last_hidden_state[kept], of_text, scope="model")
        assert_close(out.pooler_output, expected.pooler_output, scope="model")
    assert counter.frame_count == 1


@pytest.mark.parametrize(("kind", "backend"), [
    pytest.param("linear", "aot_eager", marks=pytest.mark.nightly), ("mean-window", "eager")
])  # fmt: skip
def test_training_compiles_too(kind, backend):
    """Forward and backward through one graph, gradients as in eager."""
    made, counter = model(kind, LinformerForMaskedLM, **ONE_LAYER).train(), CompileCounterWithBackend(backend)
    compiled = torch.compile(made, fullgraph=True, dynamic=True, backend=counter)
    for length in (19, 30):
        given = text(2, length)
        labels = given["input_ids"].masked_fill(given["attention_mask"] == 0, -100)
        results = []
        for run in (compiled, made):
            made.zero_grad()
            run(**given, labels=labels).loss.backward()
            results.append({name: p.grad.clone() for name, p in made.named_parameters() if p.grad is not None})
        assert results[0].keys() == results[1].keys()
        for name, gradient in results[0].items():
            assert_close(gradient, results[1][name], scope="model")
    assert counter.frame_count <= 2


def test_the_layer_alone_compiles():
    layer = LinformerAttention(12, 3, max_length=LONGEST, projected_length=6).eval()
    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend=counter)
    for length in (20, 9, LONGEST, 2):
        hidden = torch.randn(2, length, 12)
        mask = torch.arange(length) < torch.tensor([[length], [length - 1]])
        assert_close(compiled(hidden, mask)[mask], layer(hidden, mask)[mask])
        assert_close(compiled(hidden), layer(hidden))
    assert counter.frame_count <= 4  # with a mask and without


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")  # torch's own
@torch.no_grad()
def test_the_default_backend_gives_the_same():
    """Inductor, on one layer: compiling C++ is slow."""
    layer = LinformerAttention(8, 2, max_length=LONGEST, projected_length=6).eval()
    compiled = torch.compile(layer, fullgraph=True, dynamic=True)
    for length in (20, LONGEST):
        hidden = torch.randn(2, length, 8)
        mask = torch.arange(length) < torch.tensor([[length], [length - 3]])
        assert_close(compiled(hidden, mask)[mask], layer(hidden, mask)[mask])
