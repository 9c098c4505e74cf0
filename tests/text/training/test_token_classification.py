"""Token classification: words of long documents, labels at first tokens, entities, prediction and its graph."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, Features, List, Value
from json_lines import read_lines, write_lines

from longform.errors import DataError
from longform_text.cli.main import main
from longform_text.data.entities import entities
from longform_text.evaluation.token_labels import token_scores
from longform_text.export.run import export_model
from longform_text.inference.token_classifiers import TokenClassifier
from longform_text.training.finetuning.run import finetune
from longform_text.training.finetuning.settings import FinetuningSettings
from longform_text.training.finetuning.tokens import IGNORED, TokenTask, words_of
from longform_text.training.labels import Examples

FIELDS = {"text_field": "text", "label_field": "label", "pair_field": None}
SETTINGS = FinetuningSettings(
    num_train_epochs=10, per_device_train_batch_size=8, learning_rate=1e-2, validation_fraction=0.25, bf16=False
)


def _rows(count: int = 160) -> list[dict[str, Any]]:
    """ "good far" is an entity."""
    draw, rows = random.Random(2), []
    for _ in range(count):
        words, tags = [], []
        while len(words) < draw.randint(4, 20):
            if draw.random() < 0.25:
                words += ["good", "far."]
                tags += ["B-T", "I-T"]
            else:
                words.append(draw.choice(["the", "of", "bad", "text."]))
                tags.append("O")
        rows.append({"text": words, "label": tags})
    return rows


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["O", "B-P", "I-P", "O"], [("P", 1, 3)]),
        (["B-P", "B-P", "I-L", "I-L"], [("P", 0, 1), ("P", 1, 2), ("L", 2, 4)]),
        (["I-P", "O", "I-P"], [("P", 0, 1), ("P", 2, 3)]),
        (["S-P", "B-P", "E-P", "U-P", "L-P"], [("P", 0, 1), ("P", 1, 3), ("P", 3, 5)]),
        (["noun", "noun", "verb", "O"], [("noun", 0, 2), ("verb", 2, 3)]),
        (["O", "X-ray"], [("X-ray", 1, 2)]),
        ([], []),
    ],
)
def test_entities(labels: list[str], expected: list[tuple[str, int, int]]) -> None:
    assert entities(labels) == expected


def test_scores_are_of_whole_entities() -> None:
    truth = [["B-P", "I-P", "O", "B-L"], ["O", "B-P"]]
    found = token_scores([["B-P", "O", "O", "B-L"], ["B-P", "B-P"]], truth)
    assert found == pytest.approx({"precision": 2 / 4, "recall": 2 / 3, "f1": 4 / 7, "accuracy": 4 / 6})
    assert token_scores(truth, truth)["f1"] == 1
    with pytest.raises(DataError, match="words must be as many"):
        token_scores([["O"]], [["O", "O"]])


def test_labels_stand_at_the_first_token_of_each_word(tiny_tokenizer: Any) -> None:
    words = [["the", "xyz", "good"], ["of"] * 9], [["O", "B-T", "I-T"], ["O"] * 9]
    part, _ = TokenTask(words, words, SETTINGS, FIELDS).parts(tiny_tokenizer, 8)
    assert part.rows[0]["labels"] == [IGNORED, 0, 1, IGNORED, IGNORED, 2, IGNORED]
    assert [len(row["input_ids"]) for row in part.rows] == [7, 8]
    assert part.truncated == 1


def test_readers_know_class_labels_and_name_the_row(tmp_path: Path) -> None:
    features = Features({"tokens": List(Value("string")), "tags": List(ClassLabel(names=["O", "B-T"]))})
    given = Dataset.from_list([{"tokens": ["a", "b"], "tags": [0, 1]}], features=features)
    assert words_of(given, text_field="tokens", label_field="tags") == Examples([["a", "b"]], [["O", "B-T"]])
    assert words_of(given, text_field="tokens", label_field="tags").labels.names == ["O", "B-T"]
    rows = [{"text": ["a"], "label": ["O"]}, {"text": ["a", "b"], "label": ["O"]}]
    with pytest.raises(DataError, match=r'a\.jsonl:2: the field "label" has 1 labels for 2 words'):
        words_of(write_lines(tmp_path / "a.jsonl", rows))
    with pytest.raises(DataError, match="not a list of words"):
        words_of([{"text": "a b", "label": ["O"]}])


def test_it_is_learned_saved_used_and_exported(
    longform_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, folder = _rows(), tmp_path / "out"
    result = finetune(longform_folder, rows, SETTINGS, output=folder, progress=False)
    assert (result.task, result.labels) == ("token-classification", ["O", "B-T", "I-T"])
    assert result.metrics["f1"] > 0.8
    assert "f1 " in result.report
    classifier = TokenClassifier.from_pretrained(folder)
    text = "the good far of bad"
    (entity,) = classifier.predict(text)["entities"]
    assert (entity["entity_group"], entity["start"], entity["end"], entity["word"]) == ("T", 4, 12, "good far")
    found = classifier.predict([rows[0]["text"], ["the"]])
    assert len(found[0]["labels"]) == len(rows[0]["text"])
    np.testing.assert_allclose(found[1]["scores"], classifier.predict([["the"]])[0]["scores"], atol=1e-5)
    write_lines(tmp_path / "texts.jsonl", [text, "of the"])
    assert main(["predict", str(folder), str(tmp_path / "texts.jsonl"), "--output", str(tmp_path / "l.jsonl")]) == 0
    records = read_lines(tmp_path / "l.jsonl")
    assert [each["word"] for each in records[0]["entities"]] == ["good far"]
    assert (records[1]["entities"], records[0]["truncated"]) == ([], 0)
    export_model(folder, tmp_path / "graph")
    exported = TokenClassifier.from_pretrained(tmp_path / "graph", backend="onnx").predict(text)["entities"]
    assert exported[0]["score"] == pytest.approx(entity["score"], abs=1e-4)
    assert json.loads((folder / "metrics.json").read_text())["f1"] == result.metrics["f1"]


def test_labels_that_are_not_in_the_training_part(longform_folder: Path) -> None:
    held = [{"text": ["a"], "label": ["B-X"]}]
    with pytest.raises(DataError, match="the label 'B-X' does not occur in the training part"):
        finetune(longform_folder, _rows(4), SETTINGS, validation=held, progress=False)
    with pytest.raises(DataError, match='all words have the label "O"'):
        finetune(longform_folder, [{"text": ["a"], "label": ["O"]}] * 9, SETTINGS, progress=False)
