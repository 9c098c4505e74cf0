"""Longer models: tables of positions, and what a conversion of a longer length does."""

import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from model_kinds import KINDS, LONGEST, model, text
from tiny_models import make_sentence_transformer, save_longform
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

import longform
from longform.errors import ConfigurationError
from longform.functional.positions.tables import extend_positions, tiled_positions
from longform_text.cli.main import main
from longform_text.inference.encoders import Encoder
from tolerances import assert_close

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # at import only, in the packages that sentence-transformers imports
    from sentence_transformers import SentenceTransformer
LONG_TEXT = "a " * 500


@pytest.fixture
def sentence_longform(tiny_tokenizer, tmp_path):
    """A Longform of 64 tokens in a sentence-transformers folder."""
    folder = save_longform(tmp_path / "short", tiny_tokenizer, attention_window=8, use_pooler=False)
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 64, "do_lower_case": false}')
    return make_sentence_transformer(folder, pooling={"pooling_mode_mean_tokens": True,
                                                      "word_embedding_dimension": 24}, normalise=True)  # fmt: skip


@pytest.mark.parametrize("length", [128, 40])
def test_one_command_changes_all_three(sentence_longform, tmp_path, length, capsys):
    out = tmp_path / "other"
    assert main(["convert", str(sentence_longform), str(out), "--max-length", str(length)]) == 0
    assert f"{length} tokens instead of 64" in capsys.readouterr().out
    assert AutoConfig.from_pretrained(out).max_position_embeddings == length
    assert AutoTokenizer.from_pretrained(out).model_max_length == length
    sentences = SentenceTransformer(str(out), device="cpu")
    assert sentences.max_seq_length == length
    assert sentences.preprocess([LONG_TEXT])["input_ids"].shape == (1, length)
    assert Encoder.from_pretrained(out).limit == length
    vectors = [Encoder.from_pretrained(folder).encode(["a short one"]) for folder in (sentence_longform, out)]
    torch.testing.assert_close(*map(torch.from_numpy, vectors))


def test_one_call_in_python_keeps_a_trained_head(classifier_folder, tmp_path):
    result = longform.convert(classifier_folder, max_length=100)
    folder = result.save_pretrained(tmp_path / "out")
    assert result.tokenizer.model_max_length == result.model.config.max_position_embeddings == 100
    old, new = (AutoModelForSequenceClassification.from_pretrained(path) for path in (classifier_folder, folder))
    assert new.config.id2label == {0: "bad", 1: "good", 2: "odd"}
    given = {"input_ids": torch.randint(5, 90, (2, 8))}
    assert_close(new(**given).logits, old(**given).logits, scope="model")


@pytest.mark.parametrize("length", [64, 16])
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_what_resizing_gives_and_every_tensor_is_accounted_for(kind, length):
    made, given = model(kind), text(2, length)
    before = {name: x.clone() for name, x in made.state_dict().items()}
    result = longform.convert(made, max_length=length)
    assert all(torch.equal(x, before[name]) for name, x in made.state_dict().items())
    report = result.report
    assert (report.source_length, report.max_length, report.family) == (LONGEST, length, "Longform")
    assert {record.source for record in report.tensors} == set(before)
    kept = {record.target for record in report.tensors} | {tensor.name for tensor in report.new}
    assert kept - {None} == set(result.model.state_dict())
    if kind != "random":  # new columns are new draws
        made.resize_sequence_length(length)
        assert_close(result.model(**given).last_hidden_state, made.eval()(**given).last_hidden_state, scope="model")


def test_k_and_positions_may_be_given(longform_folder):
    made = longform.convert(longform_folder, max_length=128, projected_length=[4, 32], positions="interpolate").model
    assert made.config.projected_length == [4, 32]
    table = made.embeddings.position_embeddings.weight
    assert len(table.unique(dim=0)) == 128  # none is repeated


def test_a_masked_language_model_stays_tied(masked_lm_folder, tmp_path):
    folder = longform.convert(masked_lm_folder, max_length=64).save_pretrained(tmp_path / "first")
    again = longform.convert(folder, max_length=96)
    assert again.report.task == "masked-lm"
    assert again.model.lm_head.decoder.weight is again.model.get_input_embeddings().weight
    assert again.model(torch.full((1, 96), 7)).logits.shape[:2] == (1, 96)


@pytest.mark.parametrize("method", ["tile", "interpolate"])
@pytest.mark.parametrize("offset", [0, 2])
@pytest.mark.parametrize("length", [5, 11])
def test_the_same_or_a_shorter_length_cuts(method, offset, length):
    table = torch.randn(11 + offset, 3)
    assert torch.equal(extend_positions(table, length=length, offset=offset, method=method), table[: offset + length])


def test_tiling_repeats_the_inner_positions():
    known = torch.arange(7.0)[:, None]
    longer = extend_positions(known, length=19, method="tile")[:, 0].tolist()
    assert longer == [0, 1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 2]


@given(known=st.integers(1, 30), length=st.integers(1, 100))
def test_tiling_takes_known_rows_and_keeps_the_first(known, length):
    rows = tiled_positions(known=known, length=length)
    assert rows[:known].tolist() == list(range(min(known, length)))
    assert rows.min() >= 0
    assert rows.max() < known


def test_the_offset_stays_in_front():
    table = torch.randn(9, 3)
    for method in ("tile", "interpolate"):
        assert torch.equal(extend_positions(table, length=20, offset=2, method=method)[:2], table[:2])


def test_interpolation_is_linear_between_the_same_ends():
    table = torch.tensor([[0.0], [2.0], [6.0]], dtype=torch.float64)
    stretched = extend_positions(table, length=5, method="interpolate")
    assert stretched.dtype == torch.float64
    assert stretched[:, 0].tolist() == [0.0, 1.0, 2.0, 4.0, 6.0]


def test_an_unknown_method_is_refused():
    with pytest.raises(
        ConfigurationError, match="positions='repeat' is not known; choose one of 'tile', 'interpolate'"
    ):
        extend_positions(torch.zeros(3, 2), length=4, method="repeat")
