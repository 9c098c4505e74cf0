import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from tiny_models import save_bert
from transformers import AutoModelForSequenceClassification

from longform.cli import align as align_command
from longform.cli import distill as distill_command
from longform.cli import finetune as finetune_command
from longform.cli.arguments import field_helps
from longform.cli.main import main
from longform.training.alignment.settings import AlignmentSettings, AlignmentSource
from longform.training.engine.settings import DistillationSettings, FinetuningSettings

TEXTS = ["the good text is long " * 9, "a bad text is short " * 8] * 12


@pytest.mark.parametrize("settings", [DistillationSettings, FinetuningSettings, AlignmentSettings, AlignmentSource])
def test_every_setting_is_explained(settings: type) -> None:
    helps = field_helps(settings)
    assert list(helps) == [field.name for field in fields(settings)]
    assert all(len(text) > 20 for text in helps.values())


@pytest.mark.parametrize("command", [distill_command, finetune_command, align_command])
def test_help_has_units(command: Any) -> None:
    text = command.parser().format_help()
    assert all(unit in text for unit in ("tokens", "steps"))


@pytest.fixture
def files(tiny_tokenizer: Any, tmp_path: Path) -> Path:
    save_bert(tmp_path / "original", tiny_tokenizer)
    rows = [{"text": text, "label": text.split()[1]} for text in TEXTS]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["convert", str(tmp_path / "original"), str(tmp_path / "long"), "--max-length", "64"]) == 0
    return tmp_path


def test_distill_then_finetune(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    distilled = [
        "distill", str(files / "long"), str(files / "original"), str(files / "texts.jsonl"), "--output",
        str(files / "healed"), "--length", "48", "--min-length", "16", "--max-steps", "2", "--tokens-per-step", "200",
        "--heldout_documents", "4",
    ]  # fmt: skip
    assert main(distilled) == 0
    said = capsys.readouterr().out
    assert "before   cosine to the teacher" in said
    assert "2 steps" in said
    tuned = ["finetune", str(files / "healed"), str(files / "texts.jsonl"), "--output", str(files / "classifier")]
    assert main([*tuned, "--max-steps", "2", "--validation-fraction", "0.25", "--classifier-pooling", "lead"]) == 0
    said = capsys.readouterr().out
    assert "macro_f1" in said
    assert said.splitlines()[-1] == f"next  longform predict {files / 'classifier'} texts.jsonl --output labels.jsonl"
    model = AutoModelForSequenceClassification.from_pretrained(files / "classifier")
    assert sorted(model.config.id2label.values()) == ["bad", "good"]
    assert model.config.classifier_pooling == "lead"


def test_distill_says_where_it_did_harm(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = [str(files / name) for name in ("long", "original", "texts.jsonl")]
    options = ["--max-steps", "2", "--learning-rate", "0.5", "--heldout-documents", "4", "--tokens-per-step", "200"]
    assert main(["distill", *places, "--output", str(files / "out"), *options]) == 0
    said = capsys.readouterr().out.splitlines()
    assert "tokens in crops of up to 64; measured on 4 documents" in said[-4]
    assert said[-2].startswith("worse    the cosine and the error of the layers after training is worse than before")
    assert said[-1].startswith(f"next  longform finetune {files / 'long'} labelled.jsonl")
    assert main(["distill", places[1], places[0], places[2], "--output", str(files / "swapped")]) == 2
    assert "student and teacher are swapped" in capsys.readouterr().err
    assert not (files / "swapped").exists()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--length", "9999"], "length=9999 is more than the 64 tokens"),
        (["--length", "48"], "min_length=128 is more than length=48"),
    ],
)
def test_errors_are_one_line(options: list[str], named: str, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = [str(files / name) for name in ("long", "original", "texts.jsonl")]
    assert main(["distill", *places, "--output", str(files / "out"), *options]) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert named in said


def test_standard_input_cannot_be_read_twice(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = [str(files / name) for name in ("long", "original")]
    assert main(["distill", *places, "-", "--output", str(files / "out")]) == 2
    assert "cannot be read again" in capsys.readouterr().err
