"""A graph of batches without padding: one for the first, one for all others."""

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from longform import LinformerEncoder
from strategies import randomised

BATCHES = [5, 40, 33], [50, 64, 12, 20], [7, 8, 9, 10, 60], [33, 64], [1, 2, 3, 40, 50, 60]


@pytest.mark.parametrize("options", [{}, {"attention_window": 8}, {"projection": "latent", "positions": "rotary"}])
def test_two_graphs_serve_all_batches(options):
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = randomised(LinformerEncoder(32, 2, 2, **options)).eval()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    for lengths in BATCHES:
        x, ends = torch.randn(sum(lengths), 32), torch.tensor([0, *lengths]).cumsum(0)
        found = compiled(x, cu_seqlens=ends, max_seqlen=max(lengths))
        torch.testing.assert_close(found, model(x, cu_seqlens=ends), atol=1e-5, rtol=1e-4)
    assert counter.frame_count == 2


def test_nested_tensors_are_read_outside_of_graphs():
    torch._dynamo.reset()
    model, nested = (
        LinformerEncoder(32, 1, 2).eval(),
        torch.nested.nested_tensor([torch.randn(3, 32), torch.randn(5, 32)], layout=torch.jagged),
    )
    found = torch.compile(model, backend="eager")(nested)
    torch.testing.assert_close(found.values(), model(nested).values())
