import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

from longform.cli import pretrain as pretrain_command
from longform.cli.main import main

SMALL = [
    "--hidden-size", "16", "--num-attention-heads", "2", "--num-hidden-layers", "1", "--intermediate-size", "24",
    "--max-position-embeddings", "16", "--projected-length", "4", "--tokenizer-kind", "wordpiece",
    "--tokenizer-vocab-size", "60", "--tokens-per-step", "64", "--evaluations", "0",
]  # fmt: skip


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    rows = [{"body": f"{word} rain falls on the hill and the river {word} runs to the sea " * 3} for word in "abcd" * 5]
    place = tmp_path / "texts.jsonl"
    place.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return place


def test_help_has_units() -> None:
    text = pretrain_command.parser().format_help()
    assert all(unit in text for unit in ("tokens", "steps"))
    assert "torchrun" in text


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
    assert len(list((tmp_path / "cache").iterdir())) == 2  # one tokenizer and one token file for both


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
        (["--schedule", "steps"], '--schedule is "steps"; it is one of cosine, linear,'),
        (["--text-field", "text"], 'no field "text"; the fields there are: body'),
        (["--seed", "-1"], "seed=-1 must be between 0 and"),
        (["--validation", "[nowhere.jsonl,neither.txt]"], "nowhere.jsonl"),
        (["--validation", "-"], "cannot be read again"),
        (
            ["--tokenizer", "folder", "--tokenizer-vocab-size", "99"],
            "--tokenizer is trained already: leave out --tokenizer-kind, --tokenizer-vocab-size",
        ),
    ],
)
def test_errors_are_one_line(
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
    assert main([*given, "--dtype", "float32", *SMALL]) == 0
    rows = [json.loads(line) for line in (tmp_path / "out" / "records.jsonl").read_text().splitlines()]
    assert rows[0]["environment"]["matrix products"] == "float32"
