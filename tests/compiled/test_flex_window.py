"""FlexAttention inside torch.compile: one graph for all lengths, and torch's own CPU kernel by our block lists."""

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from window_cases import Inputs, taking

from longform.functional import window
from longform.functional.window import flex as window_flex
from longform.functional.window.flex import blocks_of, near_tiles
from strategies import Text, generator, normal
from tolerances import assert_close


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()


def inputs(length: int, mask: torch.Tensor | None = None) -> Inputs:
    return Inputs((4, 2, True, 40, Text(2, length, mask)), 7, torch.float32)


def called(given: Inputs) -> torch.Tensor:
    options = {"window": 4, "memory_bias": given.bias, "memory_budget": 5.0, "mask": given.mask}
    return window.windowed_attention(*given.heads, given.memory_of, **options)[0]


def test_eager_mode_has_one_graph_for_every_length():
    """What _compiled() compiles, forward and backward."""
    counter, made = CompileCounterWithBackend("aot_eager"), 0
    with taking("flex") as patch:
        compiled = torch.compile(window_flex._never_eager, fullgraph=True, dynamic=True, backend=counter)
        patch.setattr(window_flex, "_compiled", lambda: compiled)
        for length in (23, 40, 57):
            results = []
            for one in (called, lambda given: given.fast("compiled", 5.0)[0]):
                given = inputs(length)
                out = one(given)
                results.append([out, *torch.autograd.grad(out, given.leaves, given.cotangent.float())])
            for found, expected in zip(*results, strict=True):
                assert_close(found, expected)
            made = made or counter.frame_count
    assert counter.frame_count == made  # nothing more after the first length


@torch.no_grad()
@pytest.mark.parametrize("padded", [False, True])
def test_a_graph_of_the_caller_takes_it_in(padded):
    counter = CompileCounterWithBackend("eager")
    with taking("flex"):
        compiled = torch.compile(called, fullgraph=True, dynamic=True, backend=counter)
        for length in (23, 40, 57):
            mask = torch.arange(length) < torch.tensor([[length], [length - 9]])
            given = inputs(length, mask.long() if padded else None)
            assert_close(compiled(given), given.fast("compiled", 5.0)[0])
    assert counter.frame_count <= 2


@pytest.mark.filterwarnings("ignore:.*script_method.*:DeprecationWarning")  # inductor's own imports
@torch.no_grad()
@pytest.mark.parametrize(("length", "size"), [(75, 12), pytest.param(80, 16, marks=pytest.mark.nightly)])
def test_a_kernel_that_skips_tiles_sees_all_of_the_window(length, size):
    """torch's CPU kernel goes by the block lists, as the one for GPUs does."""
    source = generator(3)
    query, key, value = (normal(source, 2, 2, length, 16, dtype=torch.float32) for _ in range(3))
    mask = torch.arange(length) < torch.tensor([[length], [length - 20]])
    blocks, key_block = blocks_of(mask, batch=2, length=length, window=size, device=query.device)
    tiles = near_tiles(mask, length=length, window=size, device=query.device, tile=16)

    def seen(b, h, q, k):
        return (key_block[b, k] - blocks[q]).abs() <= 1

    made = window_flex.flex.BlockMask((length, length), *tiles, BLOCK_SIZE=(16, 16), mask_mod=seen)
    out = torch.compile(window_flex.flex.flex_attention, fullgraph=True)(query, key, value, block_mask=made)
    pairs = (key_block[:, None, :] - blocks[:, None]).abs() <= 1
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=pairs[:, None])
    kept = mask[:, None, :, None]
    assert_close(out * kept, expected.nan_to_num() * kept)
