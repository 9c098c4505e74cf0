from dataclasses import replace

import pytest
import torch

from longform.errors import ConfigurationError, MissingDependencyError
from longform.layers.sequence_projection import block_mean_matrix
from longform_lab.compare.architectures import ARCHITECTURES, build
from longform_lab.compare.memory import step_memory
from longform_lab.speed.encoders import BIGBIRD_LEAST_BLOCKS
from longform_lab.speed.sizes import Sizes

SIZES = Sizes(
    length=52, vocabulary=16, labels=3, hidden_size=16, intermediate_size=32, projected_length=8, window=4, block=4,
    landmarks=4, random_features=8, dropout=0.0,
)  # fmt: skip
OURS = ("full", "longform", "selection", "weighted", "linformer")
UNLIKE_ALONE = ("reformer", "performer")  # its hashes follow the padded length; its mask hides values, not keys
SEES_PADDING = ("performer",)
BATCHED = {"bigbird": 3e-3, "nystromformer": 3e-3}  # a row alone against the row in a batch: padding, iterated inverse


def batch():
    inputs = torch.randint(1, 16, (2, 37))
    mask = torch.ones(2, 37, dtype=torch.long)
    mask[1, 21:] = 0
    return inputs * mask, mask


@pytest.mark.parametrize("name", list(ARCHITECTURES))
def test_every_architecture_learns_from_texts_of_any_length(name):
    inputs, mask = batch()
    model = build(name, SIZES, seed=0).train()
    model(inputs, mask).logsumexp(-1).sum().backward()
    assert [key for key, value in model.named_parameters() if value.grad is None] == []
    assert model(inputs, mask).shape == (2, 3)


@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name not in UNLIKE_ALONE])
def test_padding_does_not_change_a_text(name):
    inputs, mask = batch()
    model = build(name, SIZES, seed=0).eval()
    with torch.no_grad():
        together, alone = model(inputs, mask)[1], model(inputs[1:, :21], mask[1:, :21])[0]
    torch.testing.assert_close(together, alone, atol=BATCHED.get(name, 1e-6), rtol=0)


@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name not in SEES_PADDING])
def test_what_stands_under_the_mask_does_not_matter(name):
    inputs, mask = batch()
    model = build(name, SIZES, seed=0).eval()
    found = []
    for filling in (0, 7):
        torch.manual_seed(0)  # of Reformer's hashes
        with torch.no_grad():
            found.append(model(inputs + filling * (1 - mask), mask))
    torch.testing.assert_close(*found, atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name != "reformer"])  # its hashes are drawn anew
def test_it_is_measured_as_it_was_trained(name):
    inputs, mask = batch()
    model = build(name, SIZES, seed=0)
    with torch.no_grad():
        found = [model.train(training)(inputs, mask) for training in (True, False)]
    torch.testing.assert_close(*found, atol=1e-6, rtol=0)


@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("name", list(ARCHITECTURES))
def test_very_short_texts(name, length):
    model = build(name, replace(SIZES, length=length), seed=0)
    ids = torch.ones(2, length, dtype=torch.long)
    assert bool(model(ids, torch.ones_like(ids)).isfinite().all())


def test_the_twin_is_full_attention_and_weights_follow_the_seed():
    model = build("full", SIZES, seed=3)
    layer = model.model.linformer.encoder.layers[0].attention
    assert layer.covers_all
    same, other = build("full", SIZES, seed=3), build("full", SIZES, seed=4)
    weight = "model.linformer.embeddings.word_embeddings.weight"
    assert torch.equal(model.state_dict()[weight], same.state_dict()[weight])
    assert not torch.equal(model.state_dict()[weight], other.state_dict()[weight])


@pytest.mark.parametrize("name", list(ARCHITECTURES))
def test_the_pooling_is_that_of_the_sizes(name):
    inputs, mask = batch()
    models = [build(name, replace(SIZES, pooling=kind), seed=0).eval() for kind in ("mean", "cls", "cls")]
    with torch.no_grad():
        torch.manual_seed(0)  # of Reformer's hashes
        mean, first, again = (model(inputs, mask) for model in models)
    assert not torch.allclose(mean, first, atol=1e-4)
    if name != "reformer":
        assert torch.equal(first, again)


def test_a_pooling_or_a_start_that_there_is_not_is_refused():
    with pytest.raises(ConfigurationError, match="pooling='last' is not known; choose one of 'cls', 'mean'"):
        replace(SIZES, pooling="last")
    with pytest.raises(ConfigurationError, match="projection_init='zeros' is not known"):
        replace(SIZES, projection_init="zeros")


@pytest.mark.parametrize("law", ["block_mean", "normal"])
def test_linformers_projection_begins_as_the_sizes_say(law):
    made = build("linformer", replace(SIZES, projection_init=law), seed=0)
    (matrix,) = {tensor for name, tensor in made.named_parameters() if tensor.shape[-1] == SIZES.length}
    means = block_mean_matrix(SIZES.projected_length, SIZES.length)
    assert torch.equal(matrix[0], means) == (law == "block_mean")


def test_bigbird_stays_sparse_for_short_texts():
    model = build("bigbird", SIZES, seed=0)
    model(torch.ones(1, 2, dtype=torch.long), torch.ones(1, 2, dtype=torch.long))
    assert model.encoder.attention_type == "block_sparse"
    assert model.lengths(2) == BIGBIRD_LEAST_BLOCKS * SIZES.block


def test_a_missing_package_and_an_unknown_name_say_what_to_do(monkeypatch):
    def missing(name, package=None):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr("longform.errors.importlib.import_module", missing)
    with pytest.raises(MissingDependencyError, match=r'"performer_pytorch".*pip install -e "\.\[compare\]"'):
        build("performer", SIZES, seed=0)
    with pytest.raises(ConfigurationError, match='no architecture "mamba"; there are: full, longform'):
        build("mamba", SIZES, seed=0)


def test_sizes_that_do_not_go_together_are_refused():
    with pytest.raises(ConfigurationError, match="hidden_size=10 must be a multiple of heads=4"):
        Sizes(length=8, vocabulary=4, labels=2, hidden_size=10, heads=4)


@pytest.mark.nightly
def test_memory_of_a_step_grows_with_its_texts(tmp_path):
    # In processes of their own: this one has memory at hand that earlier tests gave back.
    few, many = (step_memory("linformer", SIZES, texts, torch.device("cpu"), tmp_path / "log")[0] for texts in (1, 400))
    assert few is not None
    assert many is not None
    assert many > few + 5


@pytest.mark.nightly
def test_a_measuring_process_that_fails_is_a_reason(tmp_path):
    mib, reason = step_memory("linformer", SIZES, 1, torch.device("meta"), tmp_path / "log")
    assert mib is None
    assert reason == "its process ended with status 1"


def test_many_buckets_of_reformer_are_two_factors():
    def buckets(length):
        sizes = Sizes(length=length, vocabulary=20, labels=2, window=64)
        return build("reformer", sizes, seed=0).encoder.config.num_buckets

    assert buckets(2048) == 64
    assert buckets(8192) == [16, 16]


def test_performers_own_tables_start_as_wide_as_asked_for():
    encoder = build("performer", Sizes(length=256, vocabulary=300, labels=3), seed=0).encoder
    for table in (encoder.words, encoder.positions):
        assert float(table.weight.detach().std()) == pytest.approx(64**-0.5, rel=0.1)


@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name != "performer"])
def test_weights_start_as_wide_as_asked_for(name):
    for asked, expected in ((0.0, 64**-0.5), (0.05, 0.05)):
        sizes = Sizes(length=256, vocabulary=30, labels=3, initializer_range=asked)
        model = build(name, sizes, seed=0)
        head = model.model.classifier if name in OURS else model.head
        found = [weight for key, weight in model.named_parameters() if "query" in key and weight.dim() == 2]
        assert found
        for weight in (*found, head.dense.weight):
            assert float(weight.std().detach()) == pytest.approx(expected, rel=0.1)
