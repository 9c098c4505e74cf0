import json
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch.testing import assert_close
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification, AutoTokenizer

import longform
from longform.conversion import defaults
from longform.errors import ConfigurationError, ConversionError

HEADS = {
    "encoder": "Model",
    "masked-lm": "ForMaskedLM",
    "sequence-classification": "ForSequenceClassification",
    "token-classification": "ForTokenClassification",
    "question-answering": "ForQuestionAnswering",
}
NAMES = ["Bert", "Roberta", "XLMRoberta", "Camembert", "DistilBert", "Electra", "MPNet"]
ATTENTION = {"max_length": 96, "projected_length": 24, "attention_window": 12}
ATTENTION_OF = dict.fromkeys(NAMES, ATTENTION) | {"MPNet": ATTENTION | {"max_length": 288, "attention_window": 96}}
EXACT = {"atol": 1e-5, "rtol": 1e-5}


def inputs_for(config) -> dict[str, torch.Tensor]:
    """Three texts of 21, 13 and 1 tokens, padded on the right."""
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(5, config.vocab_size, (3, 21), generator=generator)
    lengths = torch.tensor([21, 13, 1])
    mask = (torch.arange(21) < lengths[:, None]).long()
    ids = ids.where(mask.bool(), torch.tensor(config.pad_token_id))
    inputs = {"input_ids": ids, "attention_mask": mask}
    if getattr(config, "type_vocab_size", 0) > 1:
        inputs["token_type_ids"] = mask * (torch.arange(21) > 6)
    return inputs


def outputs_of(model, inputs) -> dict[str, torch.Tensor]:
    """Every tensor that the model returns, padding blanked where there is a state or a score a token."""
    with torch.no_grad():
        out = model(**inputs)
    mask = inputs["attention_mask"].bool()
    per_token = ("last_hidden_state", "start_logits", "end_logits")
    results = {}
    for name, tensor in out.items():
        if tensor is None:
            continue
        whole = name in per_token or (name == "logits" and tensor.shape[:2] == mask.shape and tensor.dim() == 3)
        results[name] = tensor[mask] if whole else tensor
    return results


@pytest.mark.parametrize("task", HEADS)
@pytest.mark.parametrize("name", NAMES)
def test_short_texts_get_the_sources_own_result(make_source, tmp_path, name, task):
    source = make_source(name, HEADS[task])
    source.save_pretrained(tmp_path / "source")
    result = longform.convert(tmp_path / "source", **ATTENTION_OF[name])
    assert result.report.task == task
    inputs = inputs_for(source.config)
    expected, actual = outputs_of(source, inputs), outputs_of(result.model, inputs)
    assert set(expected) == set(actual)
    for key, tensor in expected.items():
        assert_close(actual[key], tensor, **EXACT)


@pytest.mark.parametrize(
    ("options", "exact"),
    [
        ({"attention_window": 4, "projected_length": 24}, 24),
        ({"attention_window": 4, "projected_length": 24, "projection": "max"}, 24),
        ({"attention_window": 4, "projected_length": 24, "memory_budget": 12}, 12),
        ({"attention_window": 12, "projected_length": 16}, 24),
        ({"attention_window": None, "projection": "mean", "projected_length": [12, 20], "sink_tokens": 4}, 12),
        ({"attention_window": 12, "projection": "convolution", "projected_length": 28}, 24),
        ({"attention_window": 4, "projected_length": 24, "selected_slots": 10}, 28),
        ({"attention_window": 4, "projected_length": 24, "memory_budget": 12, "selected_slots": 3}, 12),
        ({"attention_window": 4, "projection": "convolution", "projected_length": 24, "selected_slots": 4}, 24),
    ],
)
def test_the_card_says_up_to_which_length_nothing_changes(make_source, options, exact):
    source = make_source("Bert", max_position_embeddings=32)
    made = longform.convert(source, max_length=96, **{"selected_slots": 0, **options})
    said = re.search(r"Texts of up to (\d+) tokens get the source's own hidden states", card_of(made))
    assert said is not None
    assert int(said[1]) == exact
    ids = torch.arange(7, 7 + 31)[None]
    differences = []
    for length in (exact, exact + 1):
        with torch.no_grad():
            here, there = (model(ids[:, :length]).last_hidden_state for model in (made.model, source))
        differences.append(float((here - there).abs().max()))
    assert differences[0] < 1e-5
    assert differences[1] > 1e-5 or "memory_budget" in options  # which tokens in the window do not use up


def test_the_card_promises_nothing_where_nothing_is_exact(make_source):
    card = card_of(longform.convert(make_source("Bert"), max_length=96, projection="linear", projected_length=24))
    assert "own hidden states" not in card
    assert "Conversion trains nothing" in card


def card_of(made):
    return made.report.card(made.model.config.to_dict(), auto="AutoModel", loader=None)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_padding_tokens_inside_a_text_have_the_sources_positions(make_source, name, masked):
    """Without a mask they are text; RoBERTas count their positions without them, before and inside a text too."""
    source = make_source(name, pad_token_id=1)
    made = longform.convert(source, **ATTENTION_OF[name]).model
    torch.manual_seed(0)
    ids = torch.randint(5, 167, (8, 21))
    inside = torch.rand(8, 21) < 0.3
    # The others have no right result for padding on the left.
    inside[:, 0] &= "oberta" in name or name in ("Camembert", "MPNet")
    ids = ids.masked_fill(inside, 1)
    mask = (~inside).long() if masked else None
    with torch.no_grad():
        actual, expected = (model(ids, attention_mask=mask).last_hidden_state for model in (made, source))
    kept = torch.ones_like(inside) if mask is None else ~inside
    assert_close(actual[kept], expected[kept], **EXACT)


@pytest.mark.parametrize("task", HEADS)
@pytest.mark.parametrize("name", NAMES)
def test_every_tensor_is_accounted_for(make_source, tmp_path, name, task):
    make_source(name, HEADS[task]).save_pretrained(tmp_path / "source")
    result = longform.convert(tmp_path / "source", **ATTENTION_OF[name])
    written = load_file(tmp_path / "source" / "model.safetensors")
    assert [record.source for record in result.report.tensors] == sorted(written)
    own = result.model.state_dict()
    for record in result.report.tensors:
        assert record.shape == tuple(written[record.source].shape)
        if record.action == "copied":
            assert torch.equal(own[record.target], written[record.source])
    assert result.report.counts()["extended"] == 1
    assert result.report.counts()["dropped"] == 0
    assert all(tensor.name.endswith(("memory_bias", "scores.weight")) for tensor in result.report.new)


@pytest.mark.parametrize("name", NAMES)
def test_a_loaded_model_gives_what_its_folder_gives(make_source, tmp_path, name):
    source = make_source(name, "ForMaskedLM")
    source.save_pretrained(tmp_path / "source")
    options = ATTENTION_OF[name]
    from_folder, from_memory = longform.convert(tmp_path / "source", **options), longform.convert(source, **options)
    for key, tensor in from_folder.model.state_dict().items():
        assert torch.equal(tensor, from_memory.model.state_dict()[key]), key
    tied = [r for r in from_memory.report.tensors if r.action == "tied duplicate"]
    assert tied, "a model in memory lists its tied tensors twice"
    decoder, words = from_memory.model.lm_head.decoder, from_memory.model.get_input_embeddings()
    assert decoder.weight is words.weight


def test_the_source_is_left_alone(make_source):
    source = make_source("Bert")
    before = {key: tensor.clone() for key, tensor in source.state_dict().items()}
    result = longform.convert(source, max_length=96)
    with torch.no_grad():
        for parameter in result.model.parameters():
            parameter.zero_()
    assert all(torch.equal(tensor, before[key]) for key, tensor in source.state_dict().items())


def test_a_saved_result_loads_again(make_source, tiny_tokenizer, tmp_path):
    labels = {0: "a", 1: "b", 2: "c"}
    options = {"num_labels": 3, "problem_type": "multi_label_classification", "id2label": labels}
    source = make_source("Roberta", "ForSequenceClassification", **options)
    result = longform.convert(source, max_length=96, tokenizer=tiny_tokenizer)
    folder = result.save_pretrained(tmp_path / "result")
    loaded = AutoModelForSequenceClassification.from_pretrained(folder)
    assert loaded.config.id2label == labels
    assert loaded.config.problem_type == "multi_label_classification"
    for names, kept in (({0: "x", 1: "y", 2: "z"}, "multi_label_classification"), ({0: "x", 1: "y"}, None)):
        renamed = longform.convert(source, max_length=96, tokenizer=tiny_tokenizer, id2label=names).model.config
        assert (renamed.id2label, renamed.problem_type) == (names, kept)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.model_max_length == 96
    assert "token_type_ids" not in tokenizer("a b", "c")
    assert tiny_tokenizer.model_max_length == 64, "the caller's tokenizer was changed"
    inputs = inputs_for(source.config)
    assert_close(outputs_of(loaded, inputs)["logits"], outputs_of(source, inputs)["logits"], **EXACT)
    written = json.loads((folder / "conversion_report.json").read_text())
    assert written["counts"] == result.report.counts()
    assert len(written["tensors"]) == len(source.state_dict())


def test_the_position_table_keeps_what_is_known(make_source):
    source = make_source("Roberta")
    table = source.embeddings.position_embeddings.weight
    result = longform.convert(source, max_length=100)
    longer = result.model.embeddings.position_embeddings.weight
    assert longer.shape == (102, 24)
    assert torch.equal(longer[:42], table)
    assert torch.equal(longer[42:80], table[3:41])
    [record] = [record for record in result.report.tensors if record.action == "extended"]
    assert record.note == "40 -> 100 positions, tile"
    assert result.report.source_length == 40
    assert result.model.config.memory_budget == 40


def test_a_shorter_length_cuts_the_table(make_source):
    source = make_source("Bert")
    result = longform.convert(source, max_length=30, attention_window=8)
    assert result.report.counts()["cut"] == 1
    assert torch.equal(
        result.model.embeddings.position_embeddings.weight, source.embeddings.position_embeddings.weight[:30]
    )


def test_weights_keep_their_dtype(make_source, tmp_path):
    make_source("Bert").double().save_pretrained(tmp_path / "source")
    result = longform.convert(tmp_path / "source", max_length=96)
    assert {p.dtype for p in result.model.parameters()} == {torch.float64}
    assert result.report.dtype == "float64"
    assert AutoModel.from_pretrained(result.save_pretrained(tmp_path / "out")).dtype == torch.float64


@pytest.mark.parametrize(
    ("name", "head", "task", "dropped"),
    [
        ("Electra", "ForPreTraining", "encoder", "replaced-token detection"),
        ("Bert", "ForPreTraining", "masked-lm", "next-sentence prediction"),
        ("Bert", "ForNextSentencePrediction", "encoder", "next-sentence prediction"),
    ],
)
def test_pretraining_heads_are_dropped_with_a_reason(make_source, name, head, task, dropped):
    result = longform.convert(make_source(name, head), max_length=96)
    assert result.report.task == task
    reasons = {record.note for record in result.report.tensors if record.action == "dropped"}
    assert any(dropped in reason for reason in reasons)
    assert not any("head" in tensor.reason for tensor in result.report.new)
    assert dropped in result.report.summary()


def test_the_pretraining_model_of_bert_keeps_its_language_model(make_source):
    source = make_source("Bert", "ForPreTraining")
    result = longform.convert(source, max_length=96)
    inputs = inputs_for(source.config)
    with torch.no_grad():
        expected = source(**inputs).prediction_logits[inputs["attention_mask"].bool()]
    assert_close(outputs_of(result.model, inputs)["logits"], expected, **EXACT)


@pytest.mark.parametrize("name", NAMES)
def test_a_decoder_of_its_own_stays_untied(make_source, tmp_path, name):
    source = make_source(name, "ForMaskedLM", tie_word_embeddings=False)
    decoder = source.get_output_embeddings()
    with torch.no_grad():
        decoder.weight.normal_()
    result = longform.convert(source, max_length=96)
    assert not result.model.config.tie_word_embeddings
    inputs = inputs_for(source.config)
    expected = outputs_of(source, inputs)["logits"]
    assert_close(outputs_of(result.model, inputs)["logits"], expected, **EXACT)
    loaded = AutoModelForMaskedLM.from_pretrained(result.save_pretrained(tmp_path / "out"))
    assert_close(outputs_of(loaded, inputs)["logits"], expected, **EXACT)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("task", [task for task in HEADS if task != "encoder"])
def test_an_encoder_gets_a_new_head_that_the_report_names(make_source, name, task):
    result = longform.convert(make_source(name), max_length=96, task=task)
    fresh = [tensor.name for tensor in result.report.new if "new head" in tensor.reason]
    heads = {key for key in result.model.state_dict() if not key.startswith("linformer.")} - {"lm_head.decoder.weight"}
    pooled = {"classifier.dense.weight", "classifier.dense.bias"} if name == "Bert" else set()
    assert set(fresh) == (heads - pooled if task == "sequence-classification" else heads)


@pytest.mark.parametrize("name", NAMES)
def test_of_a_source_for_multiple_choice_the_encoder_is_kept(make_source, name):
    source = make_source(name, "ForMultipleChoice")
    result = longform.convert(source, **ATTENTION_OF[name])
    assert result.report.task == "encoder"
    assert "classifier.weight" in {record.source for record in result.report.tensors if record.action == "dropped"}
    inputs = inputs_for(source.config)
    encoder, kept = getattr(source, source.base_model_prefix), inputs["attention_mask"].bool()
    with torch.no_grad():
        actual, expected = (model(**inputs).last_hidden_state[kept] for model in (result.model, encoder))
    assert_close(actual, expected, **EXACT)


def test_an_encoder_with_another_pooling_takes_no_pooler(make_source, tmp_path):
    result = longform.convert(make_source("Bert"), max_length=64, classifier_pooling="mean")
    assert result.model.pooler is None
    lost = [record.source for record in result.report.tensors if record.action == "dropped"]
    assert lost == ["pooler.dense.bias", "pooler.dense.weight"]
    ids = torch.tensor([[2, 7, 8, 3]])
    out = AutoModel.from_pretrained(result.save_pretrained(tmp_path / "out"))(ids)
    torch.testing.assert_close(out.pooler_output, out.last_hidden_state.mean(dim=1))


@pytest.mark.parametrize(("pooling", "width"), [("mean", 1), ("cls_lead", 2)])
def test_a_new_head_over_the_mean_takes_no_pooler(make_source, tmp_path, pooling, width):
    result = longform.convert(
        make_source("Bert"), max_length=96, task="sequence-classification", id2label={0: "x", 1: "y", 2: "z"},
        classifier_pooling=pooling,
    )  # fmt: skip
    assert result.model.config.classifier_pooling == pooling
    assert result.model.classifier.dense.in_features == width * result.model.config.hidden_size
    result.save_pretrained(tmp_path)
    saved = longform.LinformerForSequenceClassification.from_pretrained(tmp_path)
    assert all(torch.equal(value, result.model.state_dict()[key]) for key, value in saved.state_dict().items())
    assert result.model.config.label2id == {"x": 0, "y": 1, "z": 2}
    assert result.model.classifier.out_proj.out_features == 3
    assert "classifier.dense.weight" in [tensor.name for tensor in result.report.new]
    assert [r.source for r in result.report.tensors if r.action == "dropped"] == [
        "pooler.dense.bias", "pooler.dense.weight"]  # fmt: skip


def test_a_windowed_model_has_no_dropout_on_attention(make_source):
    source = make_source("Bert", attention_probs_dropout_prob=0.25)
    windowed = longform.convert(source, max_length=96, attention_window=4, projected_length=24)
    pure = longform.convert(source, max_length=96, attention_window=None, projected_length=24)
    assert windowed.model.config.attention_probs_dropout_prob == 0.0
    assert pure.model.config.attention_probs_dropout_prob == 0.25
    assert "is 0 instead of 0.25" in windowed.report.summary() == str(windowed.report)
    assert "instead of" not in "".join(pure.report.notes)


@pytest.mark.parametrize("name", NAMES)
def test_other_labels_make_a_new_head(make_source, name):
    source = make_source(name, "ForSequenceClassification", num_labels=2)
    same = longform.convert(source, max_length=96, num_labels=2)
    assert not any("head" in tensor.reason for tensor in same.report.new)
    other = longform.convert(source, max_length=96, num_labels=5)
    assert other.model.config.num_labels == 5
    assert any("new one" in record.note for record in other.report.tensors)
    assert "classifier.out_proj.weight" in [tensor.name for tensor in other.report.new]


def test_a_file_that_holds_the_tied_table_under_the_heads_name(make_source, tmp_path):
    source = make_source("Bert", "ForMaskedLM")
    source.save_pretrained(tmp_path / "source")
    path = tmp_path / "source" / "model.safetensors"
    tensors = load_file(path)
    tensors["cls.predictions.decoder.weight"] = tensors.pop("bert.embeddings.word_embeddings.weight")
    save_file(tensors, path)
    result = longform.convert(tmp_path / "source", max_length=96)
    assert torch.equal(result.model.get_input_embeddings().weight, source.get_input_embeddings().weight)
    assert result.model.lm_head.decoder.weight is result.model.get_input_embeddings().weight


def test_a_hub_name(bert_folder, monkeypatch):
    asked = []

    def download(name: str, **_: object) -> str:
        asked.append(name)
        return str(bert_folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    result = longform.convert("somebody/some-bert", max_length=96)
    assert asked == ["somebody/some-bert"]
    assert result.report.source == "somebody/some-bert"


def test_a_masked_language_model_as_a_bare_encoder(make_source):
    source = make_source("Roberta", "ForMaskedLM")
    result = longform.convert(source, max_length=96, task="encoder")
    assert type(result.model).__name__ == "LinformerModel"
    assert result.model.pooler is None
    inputs = inputs_for(source.config)
    expected = outputs_of(source.roberta, inputs)["last_hidden_state"]
    assert_close(outputs_of(result.model, inputs)["last_hidden_state"], expected, **EXACT)
    assert "head of another task" in result.report.summary()


def test_the_papers_attention_starts_from_block_means(make_source):
    result = longform.convert(make_source("Bert"), max_length=96, projection="linear", projected_length=8)
    config = result.model.config
    assert (config.attention_window, config.memory_budget, config.projection_init) == (None, None, "block_mean")
    names = {tensor.name.rsplit(".", 1)[-1] for tensor in result.report.new}
    assert names == {"matrix"}


def test_dropout_of_zero_may_be_a_whole_number(make_source):
    source = make_source("Bert", hidden_dropout_prob=0, attention_probs_dropout_prob=0)
    assert longform.convert(source, max_length=96).model.config.hidden_dropout_prob == 0


@given(st.integers(300, 5_000), st.integers(2, 70), st.integers(2, 100))
def test_the_advice_about_a_window_can_be_followed(max_length, window, slots):
    options = {"max_position_embeddings": max_length, "projection": "mean"}
    try:
        longform.LinformerConfig(**options, attention_window=window, projected_length=slots)
    except ConfigurationError as error:
        wider, fitting = followed(error, slots)
        longform.LinformerConfig(**options, attention_window=wider, projected_length=slots)
        longform.LinformerConfig(**options, attention_window=window, projected_length=fitting)


@given(st.integers(300, 5_000), st.integers(2, 70), st.lists(st.integers(2, 100), min_size=3, max_size=3))
def test_the_advice_about_a_window_holds_for_all_layers(max_length, window, slots):
    options = {"max_position_embeddings": max_length, "projection": "mean", "num_hidden_layers": 3}
    try:
        longform.LinformerConfig(**options, attention_window=window, projected_length=slots)
    except ConfigurationError as error:
        wider, fitting = followed(error, slots)
        longform.LinformerConfig(**options, attention_window=wider, projected_length=slots)
        longform.LinformerConfig(**options, attention_window=window, projected_length=fitting)
        assert min(new - old for new, old in zip(fitting, slots, strict=True)) >= 0


def followed(error, slots):
    """The window that the error names, and ``slots`` with the numbers that it names instead."""
    wider = re.search(r"use (?:attention_window=(\d+)|no window \(None\)),", str(error))[1]
    named = {int(small): int(k) for k, small in re.findall(r"(\d+) for (\d+)", str(error))}
    fitting = [named.get(k, k) for k in slots] if isinstance(slots, list) else named[slots]
    return None if wider is None else int(wider), fitting


@given(max_length=st.integers(3, 200_000), window=st.sampled_from([None, 16, 48, 64, 128, 512]))
def test_the_default_number_of_slots_always_fits(max_length, window):
    slots = defaults.default_slots(max_length=max_length, window=window)
    longform.LinformerConfig(
        max_position_embeddings=max_length, projected_length=slots, projection="mean", attention_window=window
    )
    assert slots <= max(defaults.SLOTS, 2 * -(-max_length // (window or max_length)))


def test_the_default_number_of_slots_at_round_lengths():
    chosen = [defaults.default_slots(max_length=n, window=64) for n in (512, 4096, 16384, 65536)]
    assert chosen == [256, 256, 256, 1024]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 0}, "max_length=0 must be a whole number of tokens from 3"),
        ({"max_length": 2.5}, "max_length=2.5 must be a whole number"),
        ({"max_length": 10**9}, "to 16777216"),
        ({"positions": "repeat"}, "positions='repeat' is not known"),
        ({"task": "translation"}, "task='translation' is not known; choose one of 'encoder', 'masked-lm'"),
        ({"num_labels": 3}, "num_labels and id2label are for sequence-classification and token-classification"),
        ({"task": "sequence-classification", "num_labels": 3, "id2label": {0: "a"}}, "id2label has 1 labels"),
    ],
)
def test_options_that_do_not_go_together(make_source, options, message):
    with pytest.raises(ConversionError, match=message):
        longform.convert(make_source("Bert"), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 32, "projected_length": 33, "attention_window": None}, "projected_length=33"),
        ({"max_length": 512, "projected_length": 32, "attention_window": 40}, "attention_window=40 is not a multiple"),
        ({"sharing": "layerwise"}, "no E and F to share"),
        ({"projection": "median"}, "projection='median' is not known"),
        ({"projection": "linear", "attention_window": 64}, "attention_window=64 needs slots"),
        ({"classifier_pooling": "max"}, "classifier_pooling='max' is not known"),
    ],
)
def test_options_that_the_model_refuses(make_source, options, message):
    with pytest.raises(ConfigurationError, match=message):
        longform.convert(make_source("Bert"), **options)
