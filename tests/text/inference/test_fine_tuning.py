"""What a classifier was fine-tuned with is taken up by prediction and evaluation, which say where they differ."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from json_lines import read_lines, write_lines
from tiny_models import save_longform
from transformers import AutoModelForSequenceClassification

from longform import convert
from longform.errors import DataError
from longform_lab.evaluation.comparison import Contender, RunSettings, compare_classification
from longform_text.inference.classifiers import Classifier, FineTuning, of_config
from longform_text.inference.run import InferenceSettings, predict
from longform_text.training.finetuning.run import finetune
from longform_text.training.finetuning.settings import FinetuningSettings
from longform_text.training.labels import Examples

QUICK = FinetuningSettings(max_steps=1, max_length=12, validation_fraction=0.25, bf16=False)
SETTINGS = InferenceSettings(progress=False)
ROWS = [{"body": f"the {kind} text " * 9, "more": "near", "kind": kind} for kind in ("good", "bad") * 6]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "a.jsonl", ROWS)


def _tuned(longform_folder: Path, data: Any, output: Path, **options: Any) -> Path:
    fields = {} if isinstance(data, Examples) else {"text_field": "body", "label_field": "kind"}
    finetune(longform_folder, data, QUICK, output=output, progress=False, **fields, **options)
    return output


def _evaluated(model: Path, data: Path, strategy: str = "whole", **fields: Any) -> list[dict[str, Any]]:
    models = [Contender("one", str(model), strategy)]
    return compare_classification(models, data, RunSettings(progress=False), **fields)


def test_length_and_fields_are_taken_up(longform_folder: Path, data: Path, tmp_path: Path) -> None:
    model = _tuned(longform_folder, data, tmp_path / "model")
    assert Classifier.from_pretrained(model).limit == 12
    predict(model, data, tmp_path / "out.jsonl", SETTINGS)
    assert [record["tokens"] for record in read_lines(tmp_path / "out.jsonl")] == [12] * len(ROWS)
    assert _evaluated(model, data)[0]["truncated"] == len(ROWS)
    saved = json.loads((model / "config.json").read_text())["fine_tuning"]
    assert saved == {
        "task": "single-label", "label_type": "str", "max_length": 12, "pairs": False, "text_field": "body",
        "label_field": "kind", "pair_field": None,
    }  # fmt: skip


def test_what_differs_is_said(longform_folder: Path, data: Path, tmp_path: Path) -> None:
    model = _tuned(longform_folder, data, tmp_path / "model")
    with pytest.warns(UserWarning, match="was fine-tuned with max_length=12 and is run here with max_length=20"):
        assert Classifier.from_pretrained(model, max_length=20).limit == 20
    with pytest.warns(UserWarning, match="fine-tuned with text_field='body' and is run here with text_field='more'"):
        predict(model, data, tmp_path / "out.jsonl", InferenceSettings(text_field="more", progress=False))
    with pytest.warns(UserWarning, match="with label_field='kind' and is run here with label_field='more'"):  # noqa: SIM117
        with pytest.raises(DataError, match="the model has no label"):
            _evaluated(model, data, label_field="more")


def test_a_model_of_pairs_takes_no_single_text(longform_folder: Path, data: Path, tmp_path: Path) -> None:
    model = _tuned(longform_folder, data, tmp_path / "model", pair_field="more")
    predict(model, data, tmp_path / "out.jsonl", SETTINGS)
    assert len(_evaluated(model, data)) == 1
    assert _evaluated(model, data, "chunk-average") == []
    (tmp_path / "a.txt").write_text("one text")
    with pytest.raises(DataError, match=r"a\.txt is a single text, and the model was fine-tuned on pairs.*'more'"):
        predict(model, tmp_path / "a.txt", tmp_path / "single.jsonl", SETTINGS)
    with pytest.raises(DataError, match="text 1 is a single text"):
        Classifier.from_pretrained(model).logits([("one", "two"), "three"])


def test_pairs_from_memory_are_remembered_without_a_field(longform_folder: Path, data: Path, tmp_path: Path) -> None:
    examples = Examples(["the text"] * 12, ["good", "bad"] * 6, ["near"] * 12)
    model = _tuned(longform_folder, examples, tmp_path / "model")
    chosen = InferenceSettings(text_field="body", progress=False)
    with pytest.raises(DataError, match=r"a\.jsonl:1 is a single text"):
        predict(model, data, tmp_path / "out.jsonl", chosen)
    predict(
        model, data, tmp_path / "pairs.jsonl", InferenceSettings(text_field="body", pair_field="more", progress=False)
    )


def test_a_model_that_remembers_nothing_is_run_as_before(classifier_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "the text", "label": "good"}\n')
    assert Classifier.from_pretrained(classifier_folder).limit == 64
    predict(classifier_folder, tmp_path / "a.jsonl", tmp_path / "out.jsonl", SETTINGS)
    assert _evaluated(classifier_folder, tmp_path / "a.jsonl")[0]["items"] == 1


def test_equal_names_of_labels_are_told_apart(tiny_tokenizer: Any, tmp_path: Path) -> None:
    names = {0: "same", 1: "other", 2: "same"}
    model = save_longform(tmp_path / "model", tiny_tokenizer, head="classification", id2label=names)
    (tmp_path / "a.jsonl").write_text('{"text": "the text", "label": "other"}\n')
    predict(model, tmp_path / "a.jsonl", tmp_path / "out.jsonl", SETTINGS)
    record = read_lines(tmp_path / "out.jsonl")[0]
    assert list(record["scores"]) == ["same (0)", "other", "same (2)"]
    assert sum(record["scores"].values()) == pytest.approx(1)
    (tmp_path / "b.jsonl").write_text('{"text": "the text", "label": "same"}\n')
    with pytest.raises(DataError, match="the model has no label 'same'"):
        _evaluated(model, tmp_path / "b.jsonl")


@pytest.mark.parametrize("kind", ["longform", "reranker", "reranker, saved today"])
def test_a_regression_is_a_cross_encoder_without_sigmoid(
    kind: str, longform_folder: Path, bert_folder: Path, tmp_path: Path
) -> None:
    from sentence_transformers import CrossEncoder

    source: Any = longform_folder
    if kind.startswith("reranker"):  # whose folder asks for a sigmoid
        model = AutoModelForSequenceClassification.from_pretrained(bert_folder, num_labels=1)
        model.config.sentence_transformers = {"activation_fn": "torch.nn.modules.activation.Sigmoid"}
        model.save_pretrained(source := tmp_path / "reranker")
        for file in bert_folder.glob("tokenizer*"):
            (source / file.name).write_bytes(file.read_bytes())
    if kind == "reranker, saved today":  # in a file of its own
        CrossEncoder(str(source), device="cpu").save_pretrained(str(tmp_path / "saved"))
        convert(tmp_path / "saved", max_length=64).save_pretrained(source := tmp_path / "converted")
    examples = Examples(["near text", "far text"] * 6, [-30.5, 40.5] * 6, ["it is good", "it is bad"] * 6)
    _tuned(source, examples, tmp_path / "model")
    pairs = list(zip(examples.texts[:2], examples.pairs[:2], strict=True))
    expected = Classifier.from_pretrained(tmp_path / "model").logits(pairs)[:, 0]
    found = CrossEncoder(str(tmp_path / "model"), device="cpu").predict(pairs)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("converted", [False, True])
def test_a_classifier_keeps_the_activation_of_a_cross_encoder_with_as_many_labels(
    converted: bool, bert_folder: Path, tmp_path: Path
) -> None:
    from sentence_transformers import CrossEncoder

    options: dict[str, Any] = {"num_labels": 3, "activation_fn": torch.nn.Sigmoid(), "device": "cpu"}
    CrossEncoder(str(bert_folder), **options).save_pretrained(str(source := tmp_path / "reranker"))
    if converted:
        convert(source, max_length=64).save_pretrained(source := tmp_path / "converted")
    for labels, expected in ((("no", "maybe", "yes"), "Sigmoid"), (("no", "yes"), "Identity")):
        named = [labels[i % len(labels)] for i in range(12)]
        examples = Examples([f"{label} text" for label in named], named, ["it is good"] * 12)
        tuned = CrossEncoder(str(_tuned(source, examples, tmp_path / expected)), device="cpu")
        assert (tuned.num_labels, type(tuned.activation_fn).__name__) == (len(labels), expected)
        assert not (tmp_path / expected / "modules.json").exists()


@pytest.mark.parametrize("found", [3, "x", [1], {"max_length": "12", "pairs": 1, "text_field": 3}, {"new": 1}, None])
def test_what_no_fine_tuning_wrote_says_nothing(found: Any) -> None:
    assert of_config({"fine_tuning": found}) == FineTuning()
