"""The window's Triton kernel inside torch.compile, by Triton's interpreter on a CPU: eager values and gradients.

The kernel stands in the graph as an operator, longform::window, with one for its gradients; nothing breaks the graph.
"""

from collections import Counter

import pytest
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

from longform import LinformerEncoder, Projection, kernels

pytestmark = pytest.mark.filterwarnings(  # torch's own
    "ignore:.*should not be instantiated:DeprecationWarning", "ignore:.*script_method:DeprecationWarning"
)
WIDTH, HEADS, WINDOW = 32, 2, 16
KINDS = {
    "plain": {},
    "budget and sinks": {"projection": Projection("weighted_mean", sink_tokens=1, memory_budget=9.0)},
    "selection": {"selected_slots": 2, "projection": Projection("weighted_mean", sink_tokens=1)},
    "causal": {"causal": True},
    "shared heads": {"num_key_value_heads": 1},
}
LENGTH = 83
# Compiling takes its time: by day one kind of text, at night without padding, with it, and longer by the same graph.
CASES = [("budget and sinks", ["padded"]), ("selection", ["whole"])]
CASES += [pytest.param(kind, ["whole", "padded", "longer"], marks=pytest.mark.nightly) for kind in KINDS]


def counting(found: Counter):
    """A backend that computes graphs as they are and counts their calls of Longform's operators."""

    def compiled(graph, inputs):
        found.update(str(node.target) for node in graph.graph.nodes if str(node.target).startswith("longform."))
        return make_boxed_func(graph.forward)

    return aot_autograd(fw_compiler=compiled, bw_compiler=compiled)


@pytest.fixture(autouse=True)
def _no_graphs_of_others():
    torch._dynamo.reset()


def results(network, x, mask):
    network.zero_grad()
    x = x.clone().requires_grad_()
    with kernels.use(window="triton"):
        out = network(x, mask)
        (out * torch.linspace(-1.0, 1.0, out.shape[-1])).sum().backward()
    return [out.detach(), x.grad, *(None if p.grad is None else p.grad.clone() for p in network.parameters())]


@pytest.mark.parametrize(("kind", "texts"), CASES)
def test_it_trains_as_eager(kind, texts):
    torch.manual_seed(0)
    options = {"tokens_per_slot": 4, "attention_window": WINDOW, **KINDS[kind]}
    network, calls = LinformerEncoder(WIDTH, 1, HEADS, 128, **options), Counter()
    compiled = torch.compile(network, fullgraph=True, backend=counting(calls))
    for text in texts:
        length = LENGTH + 20 if text == "longer" else LENGTH
        mask = torch.arange(length) < torch.tensor([[length], [length // 2]]) if text == "padded" else None
        x = torch.randn(2, length, WIDTH)
        found, expected = results(compiled, x, mask), results(network, x, mask)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    graphs = calls["longform.window.default"]
    assert graphs > 0
    assert calls == {"longform.window.default": graphs, "longform.window_backward.default": graphs}


@pytest.mark.nightly
def test_inductor():
    """It also checks that the layouts are those that it was told."""
    torch.manual_seed(0)
    network = LinformerEncoder(WIDTH, 1, HEADS, 128, tokens_per_slot=4, attention_window=WINDOW, selected_slots=2)
    compiled, x = torch.compile(network, fullgraph=True), torch.randn(2, 5 * WINDOW, WIDTH)
    for one, other in zip(results(compiled, x, None), results(network, x, None), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    with kernels.use(window="triton"), torch.no_grad():
        torch.testing.assert_close(compiled.eval()(x), network.eval()(x), rtol=1e-5, atol=1e-5)


def test_an_exported_graph_has_no_operator_of_ours():
    network = LinformerEncoder(WIDTH, 1, HEADS, 128, tokens_per_slot=4, attention_window=WINDOW).eval()
    exported = torch.export.export(network, (torch.randn(1, 5 * WINDOW, WIDTH),))
    assert "longform" not in str(exported.graph)
