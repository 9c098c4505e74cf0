"""Weighted means begin as means, look at content, and a short convolution begins as nothing."""

import pytest
import torch
from model_kinds import config, model, text
from torch import nn
from transformers import BertConfig, BertModel

import longform
from longform import LinformerConfig, LinformerModel, Projection
from longform.errors import ConfigurationError
from longform.layers.attention import LinformerAttention
from longform.layers.self_attention import Shared
from longform.layers.sequence_projection import SCORE_DEVIATION, WeightedMeanProjection
from strategies import generator, normal
from tolerances import assert_close

WINDOWS = (None, 8)


def layer(projection: str, **options) -> LinformerAttention:
    torch.manual_seed(0)
    chosen = Projection(projection, sink_tokens=1, memory_budget=None)
    return LinformerAttention(12, 3, max_length=32, projected_length=8, projection=chosen, **options).double()


def padded(length: int = 27) -> tuple[torch.Tensor, torch.Tensor]:
    mask = torch.arange(length) < torch.tensor([length, length - 9, 3])[:, None]
    return normal(generator(1), 3, length, 12), mask


@pytest.mark.parametrize("window", WINDOWS)
def test_scores_of_zero_are_means(window):
    weighted, plain = (layer(kind, attention_window=window) for kind in ("weighted_mean", "mean"))
    missing = weighted.load_state_dict(plain.state_dict(), strict=False).missing_keys
    assert missing == ["groups.0.scores.weight"]
    nn.init.zeros_(weighted.groups[0].scores.weight)
    hidden, mask = padded()
    for given in (mask, None):
        assert_close(weighted(hidden, given), plain(hidden, given))


@pytest.mark.parametrize("window", WINDOWS)
def test_a_score_keeps_one_token_of_its_run(window):
    made = layer("weighted_mean", attention_window=window)
    with torch.no_grad():
        made.groups[0].scores.weight.copy_(normal(generator(2), 6, 12) * 1e4)
    hidden, _ = padded(32)
    slots = made.shorten(hidden, None, Shared())
    keys = made.keys_and_values(hidden, None)[0][0]  # (h, n, d)
    for head in range(3):
        for slot, start in enumerate(range(4, 32, 4), start=2):  # behind a sink and the run that it stands in
            distance = (keys[head, start : start + 4] - slots.key[0, head, slot]).abs().amax(dim=1)
            assert distance.min() < 1e-6


def test_new_scores_are_small_and_one_a_head_and_side():
    made = layer("weighted_mean").groups[0]
    assert isinstance(made, WeightedMeanProjection)
    assert made.scores.weight.shape == (2 * 3, 12)
    assert 0 < made.scores.weight.abs().max() < 5 * SCORE_DEVIATION


@pytest.mark.parametrize("options", [{"attention_window": None}, {"attention_window": 8, "memory_budget": None}])
def test_a_conversion_begins_as_means(options):
    sizes = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 16}
    source = BertModel(BertConfig(vocab_size=40, max_position_embeddings=32, **sizes)).eval()
    given = {"max_length": 64, "projected_length": 16, **options}
    weighted = longform.convert(source, projection="weighted_mean", short_convolution=5, **given)
    plain = longform.convert(source, projection="mean", **given)
    inputs = {"input_ids": torch.randint(5, 40, (2, 50))}
    with torch.no_grad():
        assert_close(weighted.model(**inputs)[0], plain.model(**inputs)[0], scope="model")
    reasons = {new.name.rsplit(".", 2)[-2]: new.reason for new in weighted.report.new}
    assert "start at 0" in reasons["scores"]
    assert "starts at 0" in reasons["convolution"]


def test_a_short_convolution_begins_as_nothing_and_sees_its_own_text_alone():
    plain, convolved = layer("mean"), layer("mean", short_convolution=5)
    convolved.load_state_dict(plain.state_dict(), strict=False)
    hidden, mask = padded()
    assert_close(convolved(hidden, mask), plain(hidden, mask))
    with torch.no_grad():
        convolved.convolution.weight.copy_(normal(generator(3), 5, 12))
    together = convolved(hidden, mask)
    for row, length in enumerate(mask.sum(dim=1)):
        assert_close(together[row, :length], convolved(hidden[row : row + 1, :length])[0])
    assert (together[0] - plain(hidden, mask)[0]).abs().max() > 0.1


@pytest.mark.parametrize("taps", [1, 2, 4, -3])
def test_an_even_convolution_is_refused(taps):
    with pytest.raises(ConfigurationError, match=rf"short_convolution={taps} must be an odd number.*or 0 for none"):
        layer("mean", short_convolution=taps)


def test_old_configurations_have_neither():
    old = config("mean-window").to_dict()
    del old["short_convolution"]
    assert LinformerModel(LinformerConfig.from_dict(old)).encoder.layers[0].attention.convolution is None


@pytest.mark.parametrize("kind", ["weighted_mean", "weighted_mean-window"])
def test_it_learns(kind):
    """Scores and convolution get gradients through a model."""
    made = model(kind).train()
    made(**text(2, 32)).last_hidden_state.square().sum().backward()
    scores = made.encoder.layers[0].attention.groups[0].scores.weight
    assert scores.grad is not None
    assert scores.grad.abs().max() > 0
