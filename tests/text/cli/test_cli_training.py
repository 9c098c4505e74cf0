"""The commands that train: their options, files of options, and errors in one line."""

import inspect
import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from json_lines import write_lines
from tiny_models import save_bert
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSequenceClassification

from longform_text.cli import align
from longform_text.cli.arguments import field_helps, parse
from longform_text.cli.main import main
from longform_text.data.tokenizer_training import TokenizerSettings
from longform_text.training.alignment.settings import AlignmentSettings, AlignmentSource
from longform_text.training.distillation.settings import DistillationSettings
from longform_text.training.finetuning.settings import FinetuningSettings
from longform_text.training.pretraining.settings import PretrainingSettings

TEXTS = ["the good text is long " * 9, "a bad text is short " * 8] * 12
SETTINGS = [
    AlignmentSettings, AlignmentSource, DistillationSettings, FinetuningSettings, PretrainingSettings,
    TokenizerSettings,
]  # fmt: skip


@pytest.mark.parametrize("settings", SETTINGS)
def test_every_setting_has_its_help_however_the_docstring_is_indented(
    settings: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    helps = field_helps(settings)
    assert helps.keys() >= {field.name for field in fields(settings)}
    assert all(len(text) > 20 for text in helps.values())
    monkeypatch.setattr(settings, "__doc__", inspect.cleandoc(settings.__doc__))  # as Python 3.13 compiles it
    assert field_helps(settings) == helps


@pytest.fixture
def files(tiny_tokenizer: Any, tmp_path: Path) -> Path:
    save_bert(tmp_path / "original", tiny_tokenizer)
    rows = [{"text": text, "label": text.split()[1]} for text in TEXTS]
    write_lines(tmp_path / "texts.jsonl", rows)
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
        (["--length", "9999"], "length is 9,999, but the student takes 64 tokens"),
        (["--length", "48"], "min_length=128 is more than length=48"),
    ],
)
def test_errors_of_distill_are_one_line(
    options: list[str], named: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = [str(files / name) for name in ("long", "original", "texts.jsonl")]
    assert main(["distill", *places, "--output", str(files / "out"), *options]) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert named in said


def test_standard_input_cannot_be_read_twice(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = [str(files / name) for name in ("long", "original")]
    assert main(["distill", *places, "-", "--output", str(files / "out")]) == 2
    assert "cannot be read again" in capsys.readouterr().err


SMALL = [
    "--hidden-size", "16", "--num-attention-heads", "2", "--num-hidden-layers", "1", "--intermediate-size", "24",
    "--max-position-embeddings", "16", "--projected-length", "4", "--tokenizer-kind", "wordpiece",
    "--tokenizer-vocab-size", "60", "--tokens-per-step", "64", "--eval_strategy", "no",
]  # fmt: skip


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    rows = [{"body": f"{word} rain falls on the hill and the river {word} runs to the sea " * 3} for word in "abcd" * 5]
    return write_lines(tmp_path / "texts.jsonl", rows)


def test_pretrain_in_both_kinds_of_attention(texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    modern = ["--rope-theta", "100", "--is-gated-act", "true", "--norm-type", "rms_norm", "--num-key-value-heads", "1"]
    for attention, others in {"linformer": modern, "full": []}.items():
        output = tmp_path / attention
        arguments = ["pretrain", str(texts), "--output", str(output), "--text-field", "body", "--max-steps", "2"]
        assert main([*arguments, *others, "--attention", attention, "--cache", str(tmp_path / "cache"), *SMALL]) == 0
        assert "trained  2 steps, 128 tokens" in capsys.readouterr().out
    config = AutoModelForMaskedLM.from_pretrained(tmp_path / "full").config
    assert config.attention_window == config.max_position_embeddings == 16
    assert config.rope_parameters is None
    config = AutoModelForMaskedLM.from_pretrained(tmp_path / "linformer").config
    assert config.rope_parameters == {"rope_theta": 100.0, "rope_type": "default"}
    assert (config.is_gated_act, config.norm_type, config.num_key_value_heads) == (True, "rms_norm", 1)
    tokenizer, tokens = sorted((tmp_path / "cache").iterdir())  # one of each for both, and blocks beside the tokens
    assert (tokenizer / "tokenizer.json").exists()
    assert len(list(tokens.glob("*.arrow"))) == 2


def test_a_causal_model_generates(texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["pretrain", str(texts), "--output", str(tmp_path / "out"), "--text-field", "body", "--max-steps", "2"]
    assert main([*given, "--objective", "causal", "--projection", "mean", "--attention-window", "4", *SMALL]) == 0
    assert "LinformerForCausalLM.from_pretrained" in capsys.readouterr().out
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert model.generate(torch.tensor([[2, 7]]), max_new_tokens=4).shape[1] > 2


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--objective", "causal"], "each slot of projection='linear' is made"),
        (["--preset", "huge"], 'there is no preset "huge"; there are tiny, small, base'),
        (["--attention", "sparse"], '--attention is "sparse"; it is one of linformer, full'),
        (["--lr_scheduler_type", "steps"], "TrainingArguments: steps is not a valid SchedulerType"),
        (["--learning_rate", "fast"], '--learning_rate is "fast"; it is a number'),
        (["--text-field", "text"], 'no field "text"; the fields there are: body'),
        (["--validation", "[nowhere.jsonl,neither.txt]"], "nowhere.jsonl"),
        (["--validation", "-"], "cannot be read again"),
        (
            ["--tokenizer", "folder", "--tokenizer-vocab-size", "99"],
            "--tokenizer is trained already: leave out --tokenizer-kind, --tokenizer-vocab-size",
        ),
    ],
)
def test_errors_of_pretrain_are_one_line(
    options: list[str], named: str, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["pretrain", str(texts), "--output", str(tmp_path / "out"), "--text-field", "body", *SMALL, *options]
    assert main(given) == 2
    assert named in capsys.readouterr().err.strip().splitlines()[-1]


def test_a_name_that_is_no_file_is_no_text(texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for names in (["nowhere.jsonl"], [str(texts), "nowhere.jsonl"]):
        given = ["pretrain", *names, "--output", str(tmp_path / "out"), "--text-field", "body", "--max-steps", "2"]
        assert main([*given, *SMALL]) == 2
        assert '"nowhere.jsonl"' in capsys.readouterr().err


@pytest.mark.parametrize("name", ["README.md", "model.safetensors", "checkpoint-7/weights"])
def test_files_of_others_are_not_replaced(name: str, texts: Path, tmp_path: Path, capsys) -> None:
    own = tmp_path / "out" / name
    own.parent.mkdir(parents=True)
    own.write_text("mine")
    given = ["pretrain", str(texts), "--output", str(tmp_path / "out"), "--text-field", "body", "--max-steps", "2"]
    for restart in ([], ["--restart"]):
        assert main([*given, *restart, *SMALL]) == 2
        said = capsys.readouterr().err
        assert name.split("/")[0] in said
        assert "give another output folder" in said
    assert own.read_text() == "mine"


def test_the_records_say_what_was_computed_with(texts: Path, tmp_path: Path) -> None:
    given = ["pretrain", str(texts), "--output", str(tmp_path / "out"), "--text-field", "body", "--max-steps", "2"]
    assert main([*given, "--bf16", "false", *SMALL]) == 0
    told = json.loads((tmp_path / "out" / "data.json").read_text())
    assert told["environment"]["matrix products"] == "float32"


EXAMPLE = Path(__file__).parents[3] / "examples" / "align.yaml"


def align_sources(*options: str) -> list[AlignmentSource]:
    return align._sources(parse(align.parser(), ["model", *options, "--output", "out"]))


def test_pairs_queries_and_texts() -> None:
    assert align_sources("a", "b") == [AlignmentSource(pairs="a"), AlignmentSource(pairs="b")]
    assert align_sources("a", "--query-field", "q") == [AlignmentSource(pairs="a", query_field="q")]
    given = align_sources("a", "--documents", "d", "--relevant-field", "doc", "--first", "9")
    assert given == [AlignmentSource(queries="a", documents="d", relevant_field="doc", first=9)]
    assert align_sources("a", "--make", "[title, halves]") == [AlignmentSource(texts="a", make=["title", "halves"])]


def test_a_recipe_of_align() -> None:
    first, second = align_sources("--config", str(EXAMPLE))
    assert first == AlignmentSource(
        queries="queries.jsonl", documents="documents.jsonl", relevant_field="doc", weight=2
    )
    assert (second.texts, list(second.make), second.weight) == ("papers.parquet", ["title", "passage"], 1)
    assert parse(align.parser(), ["model", "--output", "out", "--config", str(EXAMPLE)]).documents_per_step == 8


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], 'give PAIRS, or a recipe: --config FILE.yaml with a list "sources"'),
        (["a", "--config", str(EXAMPLE)], "give PAIRS, or a recipe"),
        (["a", "--documents", "d", "--make", "[title]"], "--documents goes with queries, --make with texts alone"),
        (["a", "--make", "[titel]"], 'make="titel"; .*did you mean "title"'),
        (["a", "--documents-per-step", "1"], "documents_per_step=1 must be at least 2"),
    ],
)
def test_errors_of_align_are_one_line(
    options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["align", "model", *options, "--output", str(tmp_path / "out")]) == 2
    assert re.search(said, capsys.readouterr().err)


def test_align_trains_and_says_what_came_of_it(
    sentence_transformer_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"query": f"the {word} one", "document": f"a {word} text. " * 9} for word in "abcdefghij"]
    write_lines(tmp_path / "pairs.jsonl", rows)
    given = [str(sentence_transformer_folder), str(tmp_path / "pairs.jsonl"), "--output", str(tmp_path / "out")]
    assert main(["align", *given, "--max-steps", "2", "--documents-per-step", "4", "--max-length", "20"]) == 0
    said = capsys.readouterr()
    assert re.search(r"^before +held-out documents: nDCG@10 [01]\.\d{4}, short texts: ", said.out)
    assert "trained  2 steps of 8 documents in all" in said.out
    assert said.out.splitlines()[-1].endswith(f"--model {tmp_path / 'out'}")
    assert "aligning, step 2: ndcg" in said.err
    assert json.loads((tmp_path / "out" / "run.json").read_text())["status"] == "complete"


@pytest.mark.parametrize("command", ["finetune", "align", "distill", "pretrain"])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("--lr", 'did you mean "--learning_rate"?'),
        ("--resume", 'did you mean "--resume_from_checkpoint"? (an interrupted run goes on by itself'),
        ("--restrat", "there is no option"),
        ("--report", 'did you mean "--report_to"?'),
        ("--learning-rat", 'did you mean "--learning'),
    ],
)
def test_options_of_elsewhere_are_led_to_ours_and_never_to_one_that_forgets(
    command: str, given: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "a", "b", "c", "--output", "out", given, "1"]) == 2
    found = " ".join(capsys.readouterr().err.split())
    assert f'there is no option "{given}"' in found
    assert said in found
    assert "--restart" not in found


def test_fields_of_training_arguments_and_names_of_before(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["finetune", str(files / "long"), str(files / "texts.jsonl"), "--output", str(files / "out")]
    config = files / "recipe.yaml"
    config.write_text("learning_rate: 3.0e-4\nsave_total_limit: 2\n")
    with pytest.warns(FutureWarning, match="batch_size is called per_device_train_batch_size now"):
        assert (
            main([*given, "--config", str(config), "--batch-size", "8", "--max-steps", "2", "--report_to", "none"]) == 0
        )
    settings = json.loads((files / "out" / "run.json").read_text())["settings"]
    assert (settings["learning_rate"], settings["per_device_train_batch_size"], settings["max_steps"]) == (3e-4, 8, 2)
    assert "save_total_limit" not in settings  # which changes nothing of the result
    assert main([*given[:-1], str(files / "other"), "--eval-file", "x.jsonl"]) == 2
    assert 'did you mean "--validation"' in capsys.readouterr().err
