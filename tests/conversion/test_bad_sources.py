import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertLMHeadModel, GPT2Config, GPT2Model, T5Config

import longform
from longform.errors import ConversionError


def refused(source, *words: str, **options: object) -> None:
    with pytest.raises(ConversionError) as caught:
        longform.convert(source, **options)
    for word in words:
        assert word in str(caught.value)


def change_config(folder, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def change_weights(folder, change) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


@pytest.mark.parametrize("model_type", ["gpt2", "t5", "albert", "deberta-v2", "llama", "nonsense"])
def test_other_architectures(bert_folder, model_type):
    change_config(bert_folder, model_type=model_type)
    refused(bert_folder, repr(model_type), "bert, roberta, xlm-roberta, camembert, distilbert, electra, mpnet")


@pytest.mark.parametrize("model_type", ["deberta", "deberta-v2"])
def test_deberta_says_why_and_what_instead(bert_folder, model_type):
    change_config(bert_folder, model_type=model_type)
    refused(bert_folder, repr(model_type), "disentangled attention", "BERT, RoBERTa or MPNet kind in its place")


def test_a_longform_again(bert_folder, tmp_path):
    folder = longform.convert(bert_folder, max_length=96).save_pretrained(tmp_path / "out")
    asked = {"projection": "max", "attention_window": 8, "sink_tokens": 3, "task": "masked-lm", "num_labels": 7}
    for name, value in asked.items():
        refused(folder, "a Longform already", f"{name}={value!r}", "convert the original", **{name: value})


def test_a_longform_that_lacks_weights(bert_folder, tmp_path):
    folder = longform.convert(bert_folder, max_length=96).save_pretrained(tmp_path / "out")
    change_weights(folder, lambda tensors: tensors.pop("encoder.layers.1.attention.query.weight"))
    refused(folder, "it lacks encoder.layers.1.attention.query.weight")
    change_weights(folder, lambda tensors: tensors.update({"encoder.layers.0.attention.query.weight": torch.ones(2)}))
    refused(folder, "do not fit its configuration", "encoder.layers.0.attention.query.weight")


def test_loaded_models_of_other_architectures():
    gpt = GPT2Model(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=11, n_positions=16))
    refused(gpt, "'gpt2'", "distilbert")
    refused(T5Config(), "T5Config")
    refused(17, "not a int")


def test_decoders(bert_folder, make_source):
    refused(make_source("Bert", is_decoder=True), "decoder", "is_decoder=True")
    refused(make_source("Bert", is_decoder=True, add_cross_attention=True), "decoder")
    lm = BertLMHeadModel(BertConfig(**make_source("Bert").config.to_dict() | {"is_decoder": False}))
    refused(lm, "decoder", "BertLMHeadModel")
    change_config(bert_folder, architectures=["BertLMHeadModel"])
    refused(bert_folder, "decoder", "BertLMHeadModel")


@pytest.mark.parametrize("kind", ["relative_key", "relative_key_query"])
def test_relative_positions(bert_folder, kind):
    change_config(bert_folder, position_embedding_type=kind)
    refused(bert_folder, f"position_embedding_type='{kind}'")


def test_no_such_folder(tmp_path):
    refused(tmp_path / "nowhere", "there is no folder")
    refused(str(tmp_path / "nowhere"), "there is no folder")
    refused("no-such-model-anywhere", "'no-such-model-anywhere' is neither a folder here nor a model")


def test_a_file_in_place_of_a_folder(bert_folder):
    refused(bert_folder / "model.safetensors", "is a file")


def test_a_folder_without_configuration(bert_folder):
    (bert_folder / "config.json").unlink()
    refused(bert_folder, "no config.json")


@pytest.mark.parametrize("content", ["", "{", '{"model_type": "ber', "[1]", "\x00"])
def test_a_broken_configuration(bert_folder, content):
    (bert_folder / "config.json").write_text(content)
    refused(bert_folder, "config.json")


@pytest.mark.parametrize("architectures", [True, "BertModel", [3]])
def test_architectures_that_are_no_list_of_names(bert_folder, architectures):
    change_config(bert_folder, architectures=architectures)
    refused(bert_folder, "config.json", "architectures")


def test_a_configuration_of_wrong_types(bert_folder):
    change_config(bert_folder, hidden_size="wide")
    refused(bert_folder, "config.json", "hidden_size")


def test_no_model_type(bert_folder):
    (bert_folder / "config.json").write_text('{"hidden_size": 24}')
    refused(bert_folder, "no model_type")


def test_a_model_type_that_is_no_name(bert_folder):
    (bert_folder / "config.json").write_text('{"model_type": ["bert"]}')
    refused(bert_folder, "model_type ['bert']")


def test_no_weights(bert_folder):
    (bert_folder / "model.safetensors").unlink()
    refused(bert_folder, "no model.safetensors")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "tf_model.h5", "flax_model.msgpack"])
def test_weights_of_another_kind_are_never_opened(bert_folder, name):
    weights = bert_folder / "model.safetensors"
    torch.save(load_file(weights), bert_folder / name)
    weights.unlink()
    refused(bert_folder, name, "never unpickles", "save_pretrained")


@pytest.mark.parametrize("kept", [0, 4, 100, 0.5, 0.999])
def test_a_truncated_checkpoint(bert_folder, kept):
    path = bert_folder / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[: kept if isinstance(kept, int) else int(len(content) * kept)])
    refused(bert_folder, "model.safetensors", "truncated")


def test_a_missing_shard(make_source, tmp_path):
    make_source("Bert").save_pretrained(tmp_path / "sharded", max_shard_size="20KB")
    shards = sorted((tmp_path / "sharded").glob("model-*.safetensors"))
    assert len(shards) > 1
    longform.convert(tmp_path / "sharded", max_length=96)
    shards[-1].unlink()
    refused(tmp_path / "sharded", shards[-1].name, "missing")


def test_a_tensor_that_no_rule_knows(bert_folder):
    change_weights(bert_folder, lambda tensors: tensors.update({"encoder.layer.0.adapter.weight": torch.zeros(3)}))
    refused(bert_folder, "1 tensors that a BERT does not have", "encoder.layer.0.adapter.weight")


def test_a_tensor_twice_under_two_names(bert_folder):
    name = "embeddings.LayerNorm.bias"
    change_weights(bert_folder, lambda tensors: tensors.update({f"bert.{name}": tensors[name].clone()}))
    refused(bert_folder, "one tensor twice", name)


def test_tensors_that_are_missing(bert_folder):
    change_weights(bert_folder, lambda tensors: tensors.pop("encoder.layer.1.output.dense.weight"))
    refused(bert_folder, "lacks 1 tensors", "encoder.layers.1.feed_forward.output.weight")


def test_a_head_that_is_half_there(make_source, tmp_path):
    make_source("Bert", "ForMaskedLM").save_pretrained(tmp_path / "source")
    change_weights(tmp_path / "source", lambda tensors: tensors.pop("cls.predictions.transform.dense.bias"))
    refused(tmp_path / "source", "lm_head.dense.bias", "incomplete")


def test_no_positions(bert_folder):
    change_weights(bert_folder, lambda tensors: tensors.pop("embeddings.position_embeddings.weight"))
    refused(bert_folder, "positions", "incomplete")


def test_more_layers_than_the_configuration_says(bert_folder):
    change_config(bert_folder, num_hidden_layers=1)
    refused(bert_folder, "more layers than config.json says", "encoder.layer.1")


def test_weights_of_another_shape(bert_folder):
    change_config(bert_folder, vocab_size=168)
    refused(bert_folder, "embeddings.word_embeddings.weight is (167, 24)", "(168, 24)")


def test_quantised_weights(bert_folder):
    key = "encoder.layer.0.output.dense.weight"
    change_weights(bert_folder, lambda tensors: tensors.update({key: tensors[key].to(torch.int8)}))
    refused(bert_folder, key, "quantised")


def test_a_head_with_another_activation(make_source):
    refused(make_source("Roberta", "ForMaskedLM", hidden_act="relu"), "hidden_act='relu'", "task='encoder'")
    longform.convert(make_source("Roberta", "ForMaskedLM", hidden_act="relu"), task="encoder", max_length=96)


def test_a_broken_tokenizer(bert_folder):
    (bert_folder / "tokenizer.json").write_text("{")
    refused(bert_folder, "tokenizer")


def test_a_folder_without_tokenizer(bert_folder, tmp_path):
    for path in bert_folder.glob("tokenizer*"):
        path.unlink()
    result = longform.convert(bert_folder, max_length=96)
    assert result.tokenizer is None
    assert "no tokenizer" in result.report.summary()
    folder = result.save_pretrained(tmp_path / "out")
    assert not list(folder.glob("tokenizer*"))


def test_buffers_and_old_names_of_a_checkpoint_from_2019(bert_folder, tmp_path):
    expected = longform.convert(bert_folder, max_length=96).model.state_dict()

    def age(tensors: dict[str, torch.Tensor]) -> None:
        for key in list(tensors):
            old = key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
            tensors["bert." + old] = tensors.pop(key)
        tensors["bert.embeddings.position_ids"] = torch.arange(40)[None]

    old = tmp_path / "old"
    shutil.copytree(bert_folder, old)
    change_weights(old, age)
    result = longform.convert(old, max_length=96)
    assert result.report.counts()["buffer"] == 1
    assert all(torch.equal(tensor, expected[key]) for key, tensor in result.model.state_dict().items())
