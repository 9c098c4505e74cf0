"""Labels come back in the type that they were trained in; settings are given by name, and misspelled ones refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow.parquet
import pytest

import longform
from longform.errors import ConfigurationError
from longform.training.labels import learn_scheme
from longform.training.pretraining.run import pretrain
from longform.training.pretraining.settings import PretrainingSettings

TEXTS = [f"the {kind} text {number}" for kind in ("good", "bad") for number in range(8)]
LABELS: dict[str, tuple[Any, type]] = {
    "whole numbers": ([0] * 8 + [1] * 8, int),
    "truths": ([False] * 8 + [True] * 8, bool),
    "names": (["good"] * 8 + ["bad"] * 8, str),
}


@pytest.mark.parametrize(("labels", "kind"), LABELS.values(), ids=LABELS)
def test_predictions_have_the_type_of_the_labels(
    labels: list[Any], kind: type, longform_folder: Path, tmp_path: Path
) -> None:
    table = pandas.DataFrame({"text": TEXTS, "label": labels})
    longform.finetune(longform_folder, table, max_steps=1, output=tmp_path / "out", progress=False)
    classifier = longform.Classifier.from_pretrained(tmp_path / "out")
    assert classifier.classes_ == sorted(set(labels))
    for each in (
        *classifier.predict(TEXTS),
        *(longform.predict(tmp_path / "out", TEXTS, progress=False).results or ()),
    ):
        assert type(each["label"]) is kind
        assert each["scores"][each["label"]] == each["score"]
    assert type(classifier(TEXTS)[0]["label"]) is kind
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    for name in ("a.parquet", "b.jsonl"):  # files have names
        longform.predict(tmp_path / "out", tmp_path / "a.jsonl", tmp_path / name, progress=False)
    rows = pyarrow.parquet.read_table(tmp_path / "a.parquet").to_pylist()
    assert rows == [json.loads(line) for line in (tmp_path / "b.jsonl").read_text().splitlines()]
    assert {row["label"] for row in rows} <= set(map(str, labels))


def test_renamed_labels_are_names(longform_folder: Path, tmp_path: Path) -> None:
    longform.finetune(longform_folder, (TEXTS, [0, 1] * 8), max_steps=1, output=tmp_path / "out", progress=False)
    config = json.loads((tmp_path / "out/config.json").read_text())
    config |= {"id2label": {"0": "bad", "1": "good"}, "label2id": {"bad": 0, "good": 1}}
    (tmp_path / "out/config.json").write_text(json.dumps(config))
    assert longform.Classifier.from_pretrained(tmp_path / "out").classes_ == ["bad", "good"]


@pytest.mark.parametrize(
    ("labels", "task", "expected"),
    [
        ([1, 2], "auto", "int"),
        (np.array([1, 2], dtype=np.uint8), "auto", "int"),
        (np.array([True, False]), "auto", "bool"),
        ([1.0, 2.0], "single-label", "float"),
        (["1", "2"], "auto", "str"),
        ([1, True], "auto", "str"),
        ([[1], [2, 3], []], "auto", "int"),
        ([["a"], []], "auto", "str"),
        (["1;2", "3"], "multi-label", "str"),
    ],
)
def test_the_type_is_that_of_all_labels(labels: Any, task: str, expected: str) -> None:
    assert learn_scheme(labels, task).label_type == expected


def test_settings_by_name(longform_folder: Path) -> None:
    data = (TEXTS, [0, 1] * 8)
    result = longform.finetune(longform_folder, data, longform.FinetuningSettings(epochs=3), epochs=1, batch_size=4,
                               progress=False)  # fmt: skip
    assert result.steps == 4  # 14 texts


MISSPELT: dict[str, Any] = {
    "finetune": lambda: longform.finetune("a folder", (TEXTS, TEXTS), epoch=1),
    "distill": lambda: longform.distill("a folder", "another", TEXTS, max_step=1),
    "align": lambda: longform.align("a folder", TEXTS, max_stepz=1),
    "pretrain": lambda: pretrain(TEXTS, max_step=1),
    "embed": lambda: longform.embed("a folder", TEXTS, batch_token=1),
    "predict": lambda: longform.predict("a folder", TEXTS, batch_token=1),
    "FinetuningSettings": lambda: longform.FinetuningSettings(epoch=1),  # ty: ignore[unknown-argument]
    "PretrainingSettings": lambda: PretrainingSettings(max_step=1),  # ty: ignore[unknown-argument]
}


@pytest.mark.parametrize("call", MISSPELT.values(), ids=MISSPELT)
def test_a_misspelled_setting_is_refused_at_once(call: Any) -> None:
    with pytest.raises(ConfigurationError, match=r'there is no setting "\w+" in \w+Settings; did you mean "\w+"\?'):
        call()
    with pytest.raises(ConfigurationError, match=r'no setting "zzz" in FinetuningSettings; there are .*epochs, '):
        longform.finetune("a folder", (TEXTS, TEXTS), zzz=1)
