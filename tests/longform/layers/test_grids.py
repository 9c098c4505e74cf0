"""Grids: runs are tiles, the window is the neighbourhood; odd sizes, prefix tokens, masks."""

import pytest
import torch
from reference.orders import grid as twin

from longform import LinformerAttention, LinformerEncoder
from longform.errors import ConfigurationError, InputError
from strategies import generator, normal, randomised
from tolerances import assert_close

CASES = [
    ((7, 10), (2, 2), (2, 4), 0),
    ((7, 10), (2, 2), (2, 4), 2),
    ((8, 9), (1, 3), (2, 3), 7),
    ((3, 12), (2, 2), (4, 4), 1),
]


@torch.no_grad()
@pytest.mark.parametrize("masked", [pytest.param(False, marks=pytest.mark.nightly), True])
@pytest.mark.parametrize("selected", [0, 2])
@pytest.mark.parametrize(("extents", "tile", "block", "prefix"), CASES)
def test_tiles_and_neighbourhoods(extents, tile, block, prefix, selected, masked):
    layer = LinformerAttention(
        8, 2, tile=tile, attention_window=block, num_prefix_tokens=prefix, projection="weighted_mean",
        selected_slots=selected, short_convolution=0,
    )  # fmt: skip
    randomised(layer.double())
    length = prefix + extents[0] * extents[1]
    hidden = normal(generator(1), 2, length, 8)
    mask = torch.rand(2, length, generator=generator(2)) > (0.3 if masked else -1.0)
    out = layer(hidden, mask, grid=extents)
    for row, valid, found in zip(hidden, mask, out, strict=True):
        expected = twin(layer, row * valid[:, None], extents, tile, block, prefix, valid, selected)
        assert_close(found[valid], expected[valid])
    if not prefix:
        whole = layer(hidden.view(2, *extents, 8), mask.view(2, *extents))
        assert torch.equal(whole.flatten(1, 2), out)


@torch.no_grad()
@pytest.mark.parametrize("selected", [0, 3])
@pytest.mark.parametrize("prefix", [0, 3])
def test_a_line_of_tokens_is_the_special_case(prefix, selected):
    """Prefix tokens apart, which stand in the first runs of a text and before those of a grid."""
    options = {"projection": "weighted_mean", "short_convolution": 3, "attention_window": 4, "selected_slots": selected}
    line = randomised(LinformerAttention(8, 2, tokens_per_slot=2, **options).double())
    tiles = LinformerAttention(
        8, 2, tile=(2,), num_prefix_tokens=prefix, **options | {"attention_window": (4,)}
    ).double()
    tiles.load_state_dict(line.state_dict())
    hidden = normal(generator(1), 2, 31, 8)
    if not prefix:
        assert_close(tiles(hidden), line(hidden))
    else:
        assert tiles(hidden).shape == hidden.shape


@torch.no_grad()
def test_without_a_window_slots_are_means_of_tiles():
    layer = randomised(LinformerAttention(8, 2, tile=(2, 3), projection="mean", short_convolution=0).double())
    hidden = normal(generator(1), 1, 4, 6, 8)
    means = hidden.view(1, 2, 2, 2, 3, 8).mean(dim=(2, 4)).flatten(1, 2)
    alike = LinformerAttention(8, 2, max_length=4, projected_length=4, projection="mean", short_convolution=0).double()
    alike.load_state_dict(layer.state_dict())
    assert_close(layer(hidden).flatten(1, 2), alike(hidden.flatten(1, 2), context=means))


@pytest.mark.parametrize("selected", [0, 1])
def test_volumes_gradients_and_odd_sizes(selected):
    encoder = LinformerEncoder(8, 2, 2, tile=(1, 2, 2), attention_window=(2, 4, 4), selected_slots=selected)
    hidden = torch.randn(2, 5, 5, 9, 8, requires_grad=True)
    out = encoder(hidden, torch.ones(2, 5, 5, 9))
    out.square().sum().backward()
    assert out.shape == hidden.shape
    assert all(parameter.grad is not None for parameter in encoder.parameters())


@torch.no_grad()
@pytest.mark.parametrize("selected", [0, 2])
def test_what_stands_in_masked_places_counts_for_nothing(selected):
    options = {"tile": (2, 2), "attention_window": (4, 4), "num_prefix_tokens": 1, "selected_slots": selected}
    encoder = randomised(LinformerEncoder(8, 2, 2, **options))
    hidden, mask = torch.randn(2, 1 + 9 * 6, 8), torch.rand(2, 1 + 9 * 6) > 0.4
    other = torch.where(mask[..., None], hidden, torch.nan)
    assert_close(*(encoder(x, mask, grid=(9, 6))[mask] for x in (hidden, other)), scope="model")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: LinformerAttention(8, 2, tile=(2, 2), attention_window=(2, 3), projection="mean"), "multiple of tile"),
        (lambda: LinformerAttention(8, 2, tile=(2, 2), attention_window=4, projection="mean"), "for each axis"),
        (lambda: LinformerAttention(8, 2, tile=(2, 0), projection="mean"), "from 1 on for each axis"),
        (lambda: LinformerAttention(8, 2, tile=(2, 2), projection="linear"), "max_length=None needs tokens_per_slot"),
    ],
)
def test_tiles_that_do_not_go(make, said):
    with pytest.raises(ConfigurationError, match=said):
        make()


@pytest.mark.parametrize(
    ("prefix", "shape", "given", "said"),
    [
        (0, (2, 9, 8), None, r"expected \(batch, n0, n1, hidden_size\) for tile=\(2, 2\)"),
        (1, (2, 3, 4, 8), None, "no place for sink_tokens=1"),
        (1, (2, 12, 8), (3, 4), "the input has n=12 tokens, .* has 13"),
        (0, (2, 12, 8), (3, 2, 2), "has 12, in tiles of"),
        (0, (2, 3, 4, 7), None, "hidden_states has shape"),
    ],
)
def test_grids_that_do_not_match(prefix, shape, given, said):
    layer = LinformerAttention(8, 2, tile=(2, 2), projection="mean", num_prefix_tokens=prefix)
    with pytest.raises(InputError, match=said):
        layer(torch.zeros(shape), grid=given)


def test_what_inference_kept_of_a_grid_serves_in_training():
    layer = LinformerAttention(8, 2, tile=(2, 2), attention_window=(4, 4), projection="mean")
    grids = torch.randn(1, 11, 13, 8)  # a size of no other test
    with torch.inference_mode():
        layer(grids)
    layer(grids.requires_grad_()).sum().backward()
    assert grids.grad.isfinite().all()
