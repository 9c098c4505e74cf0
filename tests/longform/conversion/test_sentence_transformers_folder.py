import json
import warnings

import pytest
import torch

import longform
from longform.errors import ConversionError
from longform_text.inference.encoders import Encoder
from longform_text.training.distillation.run import distill
from longform_text.training.distillation.settings import DistillationSettings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # at import only, in the packages that sentence-transformers imports
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer

TEXTS = ["a long text", "the near and the far of it in good and bad", "x"]


@pytest.fixture
def sentence_folder(bert_folder, tmp_path):
    """Transformer -> Pooling (mean) -> Dense -> Normalize, saved by sentence-transformers; 16 tokens at most."""
    encoder = Transformer(str(bert_folder), processor_kwargs={"model_max_length": 16})
    modules = [encoder, Pooling(24, pooling_mode="mean"), Dense(24, 10), Normalize()]
    SentenceTransformer(modules=modules, device="cpu", prompts={"query": "is it "}).save(str(tmp_path / "sentences"))
    return tmp_path / "sentences"


def test_the_result_is_a_sentence_transformers_folder_again(sentence_folder, tmp_path):
    original = SentenceTransformer(str(sentence_folder), device="cpu")
    result = longform.convert(sentence_folder, max_length=96, attention_window=24)
    converted = SentenceTransformer(str(result.save_pretrained(tmp_path / "out")), device="cpu")
    assert [type(module).__name__ for module in converted] == ["Transformer", "Pooling", "Dense", "Normalize"]
    assert (original.max_seq_length, converted.max_seq_length) == (16, 96)
    assert converted.tokenizer.model_max_length == 96
    assert type(converted[0].auto_model).__name__ == "LinformerModel"
    for prompt in (None, "query"):
        expected = original.encode(TEXTS, prompt_name=prompt, convert_to_tensor=True)
        actual = converted.encode(TEXTS, prompt_name=prompt, convert_to_tensor=True)
        assert actual.shape == (3, 10)
        torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)
    assert converted[0].preprocess(["a " * 500])["input_ids"].shape == (1, 96)


@pytest.fixture
def old_folder(bert_folder, tmp_path):
    """Transformer in a subfolder -> Pooling (cls), as the first versions of sentence-transformers saved it."""
    old = tmp_path / "old"
    (old / "1_Pooling").mkdir(parents=True)
    bert_folder.rename(old / "0_Transformer")
    (old / "0_Transformer" / "sentence_roberta_config.json").write_text('{"max_seq_length": 20, "do_lower_case": true}')
    (old / "1_Pooling" / "config.json").write_text(
        '{"word_embedding_dimension": 24, "pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false, '
        '"pooling_mode_max_tokens": false, "pooling_mode_mean_sqrt_len_tokens": false}'
    )
    kinds = [("0", "0_Transformer", "Transformer"), ("1", "1_Pooling", "Pooling")]
    modules = [
        {"idx": i, "name": name, "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (name, path, kind) in enumerate(kinds)
    ]
    (old / "modules.json").write_text(json.dumps(modules))
    return old


def test_a_folder_of_the_first_versions(old_folder, tmp_path):
    folder = longform.convert(old_folder, max_length=96).save_pretrained(tmp_path / "out")
    options = json.loads((folder / "sentence_bert_config.json").read_text())
    assert options == {"max_seq_length": 96, "do_lower_case": True}
    assert (folder / "model.safetensors").is_file()
    assert [module["path"] for module in json.loads((folder / "modules.json").read_text())] == ["", "1_Pooling"]
    assert not (folder / "0_Transformer").exists()
    converted = SentenceTransformer(str(folder), device="cpu")
    original = SentenceTransformer(str(old_folder), device="cpu")
    torch.testing.assert_close(
        converted.encode(TEXTS, convert_to_tensor=True), original.encode(TEXTS, convert_to_tensor=True),
        atol=1e-5, rtol=1e-5,
    )  # fmt: skip


def test_a_converted_folder_of_the_first_versions_is_distilled_and_embeds(old_folder, tmp_path):
    folder = longform.convert(old_folder, max_length=96).save_pretrained(tmp_path / "out")
    settings = DistillationSettings(length=48, min_length=16, max_steps=1, tokens_per_step=200, heldout_documents=2)
    texts = ["the near and the far of it in good and bad " * 3] * 8
    distill(folder, old_folder / "0_Transformer", texts, settings, output=tmp_path / "healed", progress=False)
    for made in (folder, tmp_path / "healed"):
        expected = SentenceTransformer(str(made), device="cpu").encode(TEXTS, convert_to_tensor=True)
        encoder = Encoder.from_pretrained(made)
        assert encoder.pooling == "cls"
        torch.testing.assert_close(torch.from_numpy(encoder.encode(TEXTS)), expected, atol=1e-5, rtol=1e-5)


def test_the_folder_says_what_the_encoder_is_for(sentence_folder, make_source, tmp_path):
    make_source("Bert", "ForMaskedLM").save_pretrained(sentence_folder)  # whose head a SentenceTransformer leaves out
    result = longform.convert(sentence_folder, max_length=96)
    assert type(result.model).__name__ == "LinformerModel"
    converted = SentenceTransformer(str(result.save_pretrained(tmp_path / "out")), device="cpu")
    expected = SentenceTransformer(str(sentence_folder), device="cpu").encode(TEXTS, convert_to_tensor=True)
    torch.testing.assert_close(converted.encode(TEXTS, convert_to_tensor=True), expected, atol=1e-5, rtol=1e-5)


def test_another_task_leaves_the_modules_out(sentence_folder, tmp_path):
    result = longform.convert(sentence_folder, max_length=96, task="sequence-classification", num_labels=3)
    assert "not part of the result" in result.report.summary()
    assert not (result.save_pretrained(tmp_path / "out") / "modules.json").exists()


def change_modules(folder, change) -> None:
    modules = json.loads((folder / "modules.json").read_text())
    change(modules)
    (folder / "modules.json").write_text(json.dumps(modules))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.pop(0), "has the modules Pooling -> Dense"),
        (lambda m: m[1].update(type="sentence_transformers.models.Router"), "Router"),
        (lambda m: m[2].update(type="somebody.else.Dense"), "somebody.else.Dense"),
        (lambda m: m[1].update(path="../../etc"), "outside the folder"),
        (lambda m: m[0].update(path="/"), "outside the folder"),
        (lambda m: m[1].update(path="a" * 300), "is damaged .*too long"),
        (lambda m: m[1].update(path="a\0b"), "is damaged .*null"),
        (lambda m: m.clear(), "does not list modules"),
        (lambda m: m[1].pop("type"), "each with a type and a path"),
    ],
)
def test_modules_that_cannot_be_kept(sentence_folder, change, message):
    change_modules(sentence_folder, change)
    with pytest.raises(ConversionError, match=message):
        longform.convert(sentence_folder)


def test_pickled_modules_are_refused(sentence_folder):
    (sentence_folder / "2_Dense" / "model.safetensors").rename(sentence_folder / "2_Dense" / "pytorch_model.bin")
    with pytest.raises(ConversionError, match="is a pickle"):
        longform.convert(sentence_folder)


def test_broken_settings_of_the_encoder(sentence_folder):
    (sentence_folder / "sentence_bert_config.json").write_text("[3]")
    with pytest.raises(ConversionError, match=r"sentence_bert_config\.json\" is damaged \(it holds a list\)"):
        longform.convert(sentence_folder)


def test_broken_modules_json(sentence_folder):
    (sentence_folder / "modules.json").write_text("[{")
    with pytest.raises(ConversionError, match=r"modules\.json\" is damaged"):
        longform.convert(sentence_folder)
