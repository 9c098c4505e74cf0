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


def unpickled(name: str):
    def change(folder) -> None:
        weights = folder / "model.safetensors"
        torch.save(load_file(weights), folder / name)
        weights.unlink()

    return change


def cut(kept: float):
    def change(folder) -> None:
        path = folder / "model.safetensors"
        content = path.read_bytes()
        path.write_bytes(content[: kept if isinstance(kept, int) else int(len(content) * kept)])

    return change


KNOWN = "bert, roberta, xlm-roberta, camembert, distilbert, electra, mpnet"
WHY_NOT_DEBERTA = ("disentangled attention", "BERT, RoBERTa or MPNet kind in its place")
NORM, DENSE = "embeddings.LayerNorm.bias", "encoder.layer.0.output.dense.weight"
FAULTS = [  # what is changed, and words of the refusal
    *(({"model_type": name}, (repr(name), KNOWN)) for name in ("gpt2", "t5", "albert", "llama", "nonsense")),
    ({"model_type": "deberta-v2"}, ("'deberta-v2'", KNOWN, *WHY_NOT_DEBERTA)),
    ({"model_type": "deberta"}, ("'deberta'", *WHY_NOT_DEBERTA)),
    *(({"position_embedding_type": kind}, (f"position_embedding_type='{kind}'",))
      for kind in ("relative_key", "relative_key_query")),
    *(({"architectures": wrong}, ("config.json", "architectures")) for wrong in (True, "BertModel", [3])),
    ({"hidden_size": "wide"}, ("config.json", "hidden_size")),
    ({"num_hidden_layers": 1}, ("more layers than config.json says", "encoder.layer.1")),
    ({"vocab_size": 168}, ("embeddings.word_embeddings.weight is (167, 24)", "(168, 24)")),
]  # fmt: skip
BROKEN = [
    (lambda at: (at / "config.json").unlink(), ("no config.json",)),
    *((lambda at, said=said: (at / "config.json").write_text(said), ("config.json",))
      for said in ("", "{", '{"model_type": "ber', "[1]", "\x00")),
    (lambda at: (at / "config.json").write_text('{"hidden_size": 24}'), ("no model_type",)),
    (lambda at: (at / "config.json").write_text('{"model_type": ["bert"]}'), ("model_type ['bert']",)),
    (lambda at: (at / "tokenizer.json").write_text("{"), ("tokenizer",)),
    (lambda at: (at / "model.safetensors").unlink(), ("no model.safetensors",)),
    *((unpickled(name), (name, "never unpickles", "save_pretrained"))
      for name in ("pytorch_model.bin", "tf_model.h5", "flax_model.msgpack")),
    *((cut(kept), ("model.safetensors", "truncated")) for kept in (0, 4, 100, 0.5, 0.999)),
]  # fmt: skip
TENSORS = [
    (lambda x: x.update({"encoder.layer.0.adapter.weight": torch.zeros(3)}),
     ("1 tensors that a BERT does not have", "encoder.layer.0.adapter.weight")),
    (lambda x: x.update({f"bert.{NORM}": x[NORM].clone()}), ("one tensor twice", NORM)),
    (lambda x: x.pop("encoder.layer.1.output.dense.weight"),
     ("lacks 1 tensors", "encoder.layers.1.feed_forward.output.weight")),
    (lambda x: x.pop("embeddings.position_embeddings.weight"), ("positions", "incomplete")),
    (lambda x: x.update({DENSE: x[DENSE].to(torch.int8)}), (DENSE, "quantised")),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "words"), FAULTS, ids=str)
def test_configurations_that_cannot_be_converted(bert_folder, changes, words):
    change_config(bert_folder, **changes)
    refused(bert_folder, *words)


@pytest.mark.parametrize(("change", "words"), BROKEN)
def test_files_that_are_missing_or_broken(bert_folder, change, words):
    change(bert_folder)
    refused(bert_folder, *words)


@pytest.mark.parametrize(("change", "words"), TENSORS)
def test_tensors_that_are_not_the_family_s(bert_folder, change, words):
    change_weights(bert_folder, change)
    refused(bert_folder, *words)


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


def test_no_such_folder(tmp_path):
    refused(tmp_path / "nowhere", "there is no folder")
    refused(str(tmp_path / "nowhere"), "there is no folder")
    refused("no-such-model-anywhere", "'no-such-model-anywhere' is neither a folder here nor a model")


def test_a_file_in_place_of_a_folder(bert_folder):
    refused(bert_folder / "model.safetensors", "is a file")


def test_a_missing_shard(make_source, tmp_path):
    make_source("Bert").save_pretrained(tmp_path / "sharded", max_shard_size="20KB")
    shards = sorted((tmp_path / "sharded").glob("model-*.safetensors"))
    assert len(shards) > 1
    longform.convert(tmp_path / "sharded", max_length=96)
    shards[-1].unlink()
    refused(tmp_path / "sharded", shards[-1].name, "missing")


def test_a_head_that_is_half_there(make_source, tmp_path):
    make_source("Bert", "ForMaskedLM").save_pretrained(tmp_path / "source")
    change_weights(tmp_path / "source", lambda tensors: tensors.pop("cls.predictions.transform.dense.bias"))
    refused(tmp_path / "source", "lm_head.dense.bias", "incomplete")


def test_a_head_with_another_activation(make_source):
    refused(make_source("Roberta", "ForMaskedLM", hidden_act="relu"), "hidden_act='relu'", "task='encoder'")
    longform.convert(make_source("Roberta", "ForMaskedLM", hidden_act="relu"), task="encoder", max_length=96)


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
