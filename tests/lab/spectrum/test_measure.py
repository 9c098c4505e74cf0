"""Means over texts, heads beside each other, and an interrupted measurement."""

import pytest
import torch
from reference.spectrum import (
    reference_cumulative_spectrum,
    reference_effective_rank,
    reference_map_cosine,
    reference_singular_values,
)
from tiny_families import FAMILIES
from transformers import AutoConfig, AutoModel

from longform.errors import CheckpointError, ConfigurationError, DataError, InputError
from longform_lab.spectrum.heads import head_similarity, inside_and_across
from longform_lab.spectrum.measure import measure_spectrum
from longform_lab.spectrum.running_sums import SumsFile
from longform_lab.spectrum.settings import SpectrumSettings, SpectrumView


def one_by_one(opened, texts, length):
    """Mean curves and ranks (L, h, ...) from float64 SVDs of unpadded texts."""
    curves, ranks = [], []
    for text in texts:
        ids = torch.tensor([opened.tokenizer(text)["input_ids"][:length]])
        ids[0, -1] = opened.tokenizer.sep_token_id  # as truncation leaves it
        maps = torch.cat(opened.model(input_ids=ids, output_attentions=True).attentions).detach()
        values = [reference_singular_values(each) for each in maps.flatten(0, 1)]
        rest = [1.0] * (length - ids.shape[1])
        curves.append([reference_cumulative_spectrum(each) + rest for each in values])
        ranks.append([reference_effective_rank(each) for each in values])
    shape = (len(opened.model.encoder.layer), -1)
    mean = [torch.tensor(each, dtype=torch.float64).mean(0).unflatten(0, shape) for each in (curves, ranks)]
    return mean[0], mean[1], torch.tensor(curves, dtype=torch.float64).std(0, correction=0).unflatten(0, shape)


def test_means_are_those_of_texts_alone(opened, texts):
    settings = SpectrumSettings(max_length=11, texts=None, head_texts=2)
    spectrum, kept = measure_spectrum(opened, texts, settings)
    curves, ranks, deviation = one_by_one(opened, texts, 11)
    torch.testing.assert_close(spectrum.cumulative, curves, rtol=0, atol=1e-5)
    torch.testing.assert_close(spectrum.deviation, deviation, rtol=0, atol=1e-5)
    torch.testing.assert_close(spectrum.effective_rank, ranks, rtol=1e-4, atol=0)
    assert (spectrum.texts, spectrum.longest, spectrum.shortest, spectrum.cut) == (5, 11, 5, 1)
    assert [len(ids) for ids in kept] == [11, 11]


def test_only_the_asked_texts_are_read_and_short_ones_passed_over(opened, texts):
    settings = SpectrumSettings(max_length=16, texts=3, min_tokens=8, head_texts=0)

    def endless():
        yield from texts
        raise AssertionError("read on")

    spectrum, kept = measure_spectrum(opened, endless(), settings)
    assert (spectrum.texts, spectrum.passed_over, kept) == (3, 2, [])
    assert spectrum.shortest >= 8


def test_what_is_kept_does_not_grow_with_the_texts(opened, texts, monkeypatch):
    """Every map and its singular values can be freed before the next layer is made."""
    import weakref

    from longform_lab.spectrum import measure

    alive, most = [], 0
    compute = measure.singular_values

    def watched(maps):
        nonlocal most
        values = compute(maps)
        alive.append(weakref.ref(values))
        most = max(most, sum(reference() is not None for reference in alive))
        return values

    monkeypatch.setattr(measure, "singular_values", watched)
    measure_spectrum(opened, texts * 3, SpectrumSettings(max_length=11, head_texts=0))
    assert len(alive) == 2 * 15
    assert most == 1


def test_an_interrupted_measurement_goes_on_with_the_same_numbers(opened, texts, tmp_path, monkeypatch):
    from longform_lab.spectrum import measure

    settings, measured = SpectrumSettings(max_length=16, head_texts=2), []
    whole, whole_kept = measure_spectrum(opened, texts * 3, settings)
    real = measure.add_batch

    def interrupted(model, batch, sums):
        measured.extend(batch.indices)
        if len(measured) > 9:
            raise KeyboardInterrupt
        real(model, batch, sums)

    def counted(model, batch, sums):
        measured.extend(batch.indices)
        real(model, batch, sums)

    subject = {"model": "tiny", "corpus_key": "a"}
    path = tmp_path / "sums.safetensors"
    monkeypatch.setattr(measure, "add_batch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        measure_spectrum(opened, texts * 3, settings, kept=SumsFile(path, subject, every=0.0))
    before = list(measured)
    measured.clear()
    monkeypatch.setattr(measure, "add_batch", counted)
    with pytest.raises(ConfigurationError, match="corpus_key: a there, b now"):
        measure_spectrum(opened, texts * 3, settings, kept=SumsFile(path, {**subject, "corpus_key": "b"}))
    found, found_kept = measure_spectrum(opened, texts * 3, settings, kept=SumsFile(path, subject))
    assert 0 < len(measured) < 15
    assert set(measured) | set(before) == set(range(15))
    for name in ("cumulative", "deviation", "effective_rank"):
        assert torch.equal(getattr(found, name), getattr(whole, name)), name
    assert (found.texts, found.tokens, found.cut) == (whole.texts, whole.tokens, whole.cut)
    assert all(map(torch.equal, found_kept, whole_kept))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CheckpointError, match="damaged"):
        measure_spectrum(opened, texts, settings, kept=SumsFile(path, subject))


@pytest.mark.parametrize(
    ("texts", "settings", "error", "message"),
    [
        (["the long text", "a"], {}, DataError, r"text 1 .* has 1 tokens of its own.*--min-tokens 4"),
        ([], {}, DataError, "no text"),
        (["the long text"], {"min_tokens": 10}, DataError, "shorter than min_tokens=10"),
        (["the long text"], {"max_length": 33}, ConfigurationError, "max_length is 33, but .* takes 32"),
    ],
)
def test_texts_and_lengths_that_do_not_do(opened, texts, settings, error, message):
    with pytest.raises(error, match=message):
        measure_spectrum(opened, texts, SpectrumSettings(**{"max_length": 16, **settings}))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SpectrumSettings(max_length=1), "max_length=1 must be at least 2"),
        (lambda: SpectrumSettings(texts=0), "texts=0 must be at least 1"),
        (lambda: SpectrumSettings(min_tokens=600), "min_tokens=600 is above max_length=512"),
        (lambda: SpectrumView(index=[4, 0]), "counted from 1|counts singular values, from 1"),
        (lambda: SpectrumView(keep=1.0), "keep is 1.0"),
    ],
)
def test_settings_that_mean_nothing(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()


TEXTS = [torch.arange(5, 12), torch.arange(20, 29)]


def test_similarity_is_the_mean_cosine_of_maps(opened):
    found = head_similarity(opened.model, TEXTS)
    expected = torch.zeros(6, 6)
    for ids in TEXTS:
        maps = torch.cat(opened.model(input_ids=ids[None], output_attentions=True).attentions, dim=1)[0].detach()
        expected += torch.tensor([[reference_map_cosine(a, b) for b in maps] for a in maps]) / 2
    torch.testing.assert_close(found, expected.double(), atol=1e-5, rtol=0)
    inside, across = inside_and_across(expected, 3)
    assert float(inside[1]) == pytest.approx(float(expected[3, 4] + expected[3, 5] + expected[4, 5]) / 3)
    assert across == pytest.approx(float(expected[:3, 3:].mean()))


@pytest.mark.parametrize("model_type", [*FAMILIES, "convbert"])
def test_heads_of_every_family_are_compared(model_type):
    sizes = FAMILIES.get(model_type, FAMILIES["bert"])
    model = AutoModel.from_config(AutoConfig.for_model(model_type, **sizes), attn_implementation="eager").eval()
    found = head_similarity(model, TEXTS)
    assert torch.equal(found, found.T)
    torch.testing.assert_close(found.diagonal(), torch.ones(len(found), dtype=torch.float64))


def test_no_text_to_compare_on(opened):
    with pytest.raises(InputError, match="no text"):
        head_similarity(opened.model, [])
