"""ModernBERT, EuroBERT, NomicBERT, GTE and Jina embeddings v3: the source's result within the window, for every head
that transformers has a class of; names there and back; what is refused; long texts in linear time.
"""

import pytest
import torch
import transformers
from safetensors.torch import load_file
from tiny_models import make_sentence_transformer
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

import longform
from longform.conversion.families.registry import BY_MODEL_TYPE
from longform.conversion.weights import split_fused
from longform.errors import ConfigurationError

HEADS = {
    "encoder": "Model",
    "masked-lm": "ForMaskedLM",
    "sequence-classification": "ForSequenceClassification",
    "token-classification": "ForTokenClassification",
    "question-answering": "ForQuestionAnswering",
}
NAMES = ["ModernBert", "EuroBert", "NomicBert", "Gte", "JinaEmbeddingsV3"]
CASES = [(name, task) for name in NAMES for task in HEADS if hasattr(transformers, name + HEADS[task])]
ATTENTION = {"max_length": 96, "projected_length": 24, "attention_window": 12}  # a window over texts of 24 tokens
CLOSE = {"atol": 2e-6, "rtol": 2e-6}


def inputs_for() -> dict[str, torch.Tensor]:
    """Three texts of 21, 13 and 1 tokens, padded on the right."""
    ids = torch.randint(5, 167, (3, 21), generator=torch.Generator().manual_seed(3))
    mask = torch.arange(21) < torch.tensor([21, 13, 1])[:, None]
    return {"input_ids": ids, "attention_mask": mask.long()}


@torch.no_grad()
def compared(made, source, inputs) -> None:
    actual, expected = made(**inputs), source(**inputs)
    assert set(actual) == set(expected)
    for name, tensor in expected.items():
        whole = name not in ("pooler_output",) and tensor.shape[:2] == (3, 21)
        kept = inputs["attention_mask"].bool() if whole else ...
        assert tensor[kept].std() > 1e-3
        assert_close(actual[name][kept], tensor[kept], **CLOSE)


@pytest.mark.parametrize(("name", "task"), CASES)
def test_short_texts_get_the_sources_own_result_and_every_tensor_has_a_place(make_source, tmp_path, name, task):
    """The texts are longer than ModernBERT's local layers look."""
    source = make_source(name, HEADS[task])
    source.save_pretrained(tmp_path)
    for given in (tmp_path, source):
        result = longform.convert(given, **ATTENTION)
        assert result.report.task == task
        compared(result.model, source, inputs_for())
        assert {record.action for record in result.report.tensors} <= {"copied", "tied duplicate"}
    family = BY_MODEL_TYPE[source.config.model_type]
    rules = family.rules(task, bare_source=task == "encoder")
    for key in split_fused(load_file(tmp_path / "model.safetensors"), family):
        assert rules.restore(rules.rename(key)) == key


def test_the_angles_are_the_sources(make_source):
    """Another base of theirs in either kind of layer is another result."""
    source = make_source("ModernBert")
    made = longform.convert(source, **ATTENTION).model
    inputs, kept = inputs_for(), inputs_for()["attention_mask"].bool()
    with torch.no_grad():
        expected = made(**inputs).last_hidden_state[kept]
        for kind, rotary in made.encoder.rotary.items():
            before, rotary.frequencies = rotary.frequencies, tuple(2 * f for f in rotary.frequencies)
            assert (made(**inputs).last_hidden_state[kept] - expected).abs().max() > 1e-3, kind
            rotary.frequencies = before


@torch.no_grad()
def test_slots_of_one_token_each_are_the_source_beyond_the_window(make_source):
    """With all memory exact, keys in slots are turned as in the source, also where texts are formed in parts."""
    source = make_source("ModernBert", max_position_embeddings=320).double()
    made = longform.convert(source, max_length=320, projected_length=320, attention_window=16, memory_budget=None).model
    ids = torch.randint(5, 167, (2, 320), generator=torch.Generator().manual_seed(3))
    actual, expected = (model(ids).last_hidden_state for model in (made, source))
    assert_close(actual, expected, atol=1e-6, rtol=1e-6)  # ModernBERT turns queries and keys in float32


@torch.no_grad()
def test_linear_scaling_is_hugging_faces(make_source):
    scaled = {"rope_type": "linear", "factor": 4.0, "rope_theta": 60.0}
    source = make_source("Gte", rope_parameters=scaled)
    compared(longform.convert(source, **ATTENTION).model, source, inputs_for())
    yarn = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 60.0, "original_max_position_embeddings": 40}
    source = make_source("EuroBert", rope_parameters=yarn)
    compared(longform.convert(source, **ATTENTION).model, source, inputs_for())


@pytest.mark.parametrize("pooling", ["late", "bos"])
def test_eurobert_has_poolings_of_its_own(make_source, pooling, tmp_path):
    source = make_source("EuroBert", "ForSequenceClassification", classifier_pooling=pooling)
    result = longform.convert(source, **ATTENTION)
    compared(result.model, source, inputs_for())
    loaded = transformers.AutoModelForSequenceClassification.from_pretrained(result.save_pretrained(tmp_path / "out"))
    compared(loaded, source, inputs_for())


def test_a_source_of_8192_tokens_takes_131072(make_source):
    source = make_source("ModernBert", max_position_embeddings=8192, local_attention=128)
    result = longform.convert(source, max_length=131_072)
    config = result.model.config
    assert config.layer_types == ["full_attention", "sliding_attention", "sliding_attention"]
    assert (config.attention_window, config.sliding_window, config.memory_budget) == (64, 64, 8192)
    assert config.rope_parameters == source.config.rope_parameters
    assert "beyond the source's 8192 tokens their angles go on, with rope_theta as it is" in result.report.summary()
    with torch.no_grad():
        assert torch.isfinite(result.model(torch.randint(5, 167, (1, 20_000))).last_hidden_state).all()


@torch.no_grad()
def test_time_is_linear(make_source):
    """Products of twice as many tokens are twice as many."""
    made = longform.convert(make_source("ModernBert"), max_length=16_384, projected_length=256).model
    counts = []
    for length in (8192, 16_384):
        with FlopCounterMode(display=False) as counter:
            made(torch.full((1, length), 7))
        counts.append(counter.get_total_flops())
    assert counts[0] > 10**8
    assert counts[1] < 2.1 * counts[0]


def test_a_new_head_and_a_longer_model_still(make_source, tmp_path):
    result = longform.convert(make_source("EuroBert"), **ATTENTION, task="token-classification", num_labels=3)
    assert {x.name for x in result.report.new if "head" in x.reason} == {"classifier.bias", "classifier.weight"}
    folder = result.save_pretrained(tmp_path / "out")
    longer = longform.convert(folder, max_length=192).model
    with torch.no_grad():
        assert_close(longer(**inputs_for()).logits, result.model(**inputs_for()).logits, **CLOSE)


def test_a_sentence_transformers_folder(make_source, tiny_tokenizer, tmp_path):
    from sentence_transformers import SentenceTransformer

    source = make_source("ModernBert", vocab_size=len(tiny_tokenizer), max_position_embeddings=64)
    source.save_pretrained(tmp_path / "source")
    tiny_tokenizer.save_pretrained(tmp_path / "source")
    make_sentence_transformer(tmp_path / "source", pooling={"pooling_mode_mean_tokens": True}, normalise=True)
    folder = longform.convert(tmp_path / "source", max_length=512).save_pretrained(tmp_path / "out")
    texts = ["a b c", "b"]
    expected, actual = (SentenceTransformer(str(path)).encode(texts) for path in (tmp_path / "source", folder))
    assert_close(torch.tensor(actual), torch.tensor(expected), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["EuroBert", "NomicBert", "Gte", "JinaEmbeddingsV3"])
@pytest.mark.parametrize("head_dim", [6, 12])
def test_heads_may_be_narrower_or_wider_together_than_the_hidden_states(make_source, name, head_dim):
    source = make_source(name, head_dim=head_dim)
    made = longform.convert(source, **ATTENTION).model
    assert made.config.head_dim == head_dim
    compared(made, source, inputs_for())


@pytest.mark.parametrize(
    ("name", "changes", "options", "message"),
    [
        ("Gte", {}, {"positions": "interpolate"}, "a model with rotary positions has none"),
        ("Gte", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 9.0}}, {},
         "rope_type of full_attention='dynamic' is not known; choose one of 'default'"),
    ],
)  # fmt: skip
def test_what_is_refused(make_source, name, changes, options, message):
    with pytest.raises(ConfigurationError, match=message):
        longform.convert(make_source(name, **changes), **ATTENTION, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rope_theta": 1.0}, "rope_theta=1.0 of full_attention must be a number above 1"),
        ({"rope_theta": 9.0, "num_attention_heads": 8}, "gives 3 to turn: make them an even number"),
        ({"num_key_value_heads": 2}, "num_key_value_heads=2 does not divide num_attention_heads=3"),
        ({"layer_types": ["sliding_attention", "full_attention"]}, "sliding_window=None must be 1 or more"),
        ({"layer_types": ["full_attention"]}, "layer_types lists 1 layers, the model has num_hidden_layers=2"),
        ({"layer_types": ["full_attention", "moe"]}, "layer_types='moe' is not known"),
        ({"rope_theta": 9.0, "relative_attention_num_buckets": 8}, "goes neither with rope_parameters"),
        ({"norm_type": "batch"}, "norm_type='batch' is not known"),
    ],
)  # fmt: skip
def test_configurations_that_cannot_be(options, message):
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40}
    with pytest.raises(ConfigurationError, match=message):
        longform.LinformerConfig(**sizes | {"attention_window": 512} | options)
