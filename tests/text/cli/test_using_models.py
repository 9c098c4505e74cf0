"""predict, embed and evaluate as a user calls them."""

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from json_lines import read_lines, write_lines
from tiny_models import save_bert, save_longform

from longform_text.cli.main import main


@pytest.fixture(scope="module")
def encoder(tiny_tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_longform(tmp_path_factory.mktemp("encoder"), tiny_tokenizer))


@pytest.fixture(scope="module")
def original(tiny_tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_bert(tmp_path_factory.mktemp("original"), tiny_tokenizer))


@pytest.fixture(scope="module")
def classifier(tiny_tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    names = {0: "bad", 1: "good"}
    folder = tmp_path_factory.mktemp("classifier")
    return str(save_longform(folder, tiny_tokenizer, head="classification", id2label=names))


@pytest.fixture
def documents(tmp_path: Path) -> str:
    rows = [
        {"text": text, "label": label} for text, label in [("near far", "good"), ("", "bad"), ("the " * 90, "good")]
    ]
    return str(write_lines(tmp_path / "a.jsonl", rows))


def test_embed_prints_counts(encoder: str, documents: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["embed", encoder, documents, "--output", str(tmp_path / "o.jsonl"), "--normalise", "true"]) == 0
    records = read_lines(tmp_path / "o.jsonl")
    assert sum(value**2 for value in records[0]["embedding"]) == pytest.approx(1, abs=1e-5)
    shown = " ".join(capsys.readouterr().out.split())
    for count in ("documents 3", "empty 1", "truncated 1", "truncated tokens 28"):
        assert count in shown
    assert "replaced characters" not in shown  # of which there are none


def test_texts_in_another_encoding(
    encoder: str, classifier: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "a.csv"
    source.write_text("id,text,label\n\xe4,near,good\n\xf6,f\xe4r,bad\n", encoding="cp1252")
    commands = (
        ["embed", encoder, str(source), "--output", str(tmp_path / "o.jsonl")],
        ["evaluate", "classification", "--longform", classifier, "--data", str(source)],
    )
    for command in commands:
        assert main(command) == 2
        assert f"{source}, line 2: the byte 0xe4 is not UTF-8: name the file's" in capsys.readouterr().err
        assert main([*command, "--encoding", "latin9000"]) == 2
        assert 'encoding is "latin9000"; it is utf-8' in capsys.readouterr().err
        assert main([*command, "--encoding", "cp1252"]) == 0
    assert [record["id"] for record in read_lines(tmp_path / "o.jsonl")] == ["\xe4", "\xf6"]


def test_embed_standard_input(encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"near\nfar\n")))
    assert main(["embed", encoder, "-", "--output", str(tmp_path / "o.jsonl")]) == 0
    assert [record["id"] for record in read_lines(tmp_path / "o.jsonl")] == ["-:1", "-:2"]


def test_predict_with_yaml(classifier: str, documents: str, tmp_path: Path) -> None:
    settings = {"model": classifier, "sources": [documents], "output": str(tmp_path / "o.jsonl"), "max_length": 16}
    (tmp_path / "run.yaml").write_text(json.dumps(settings))
    assert main(["predict", "--config", str(tmp_path / "run.yaml")]) == 0
    records = read_lines(tmp_path / "o.jsonl")
    assert [record["tokens"] for record in records] == [4, 2, 16]
    assert all(record["label"] in ("bad", "good") for record in records)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--on-long", "error"], "has 92 tokens, the limit is 64"),
        (["--max-length", "65"], "takes 64 tokens"),
        (["--max-length", "0"], "max_length=0 must be at least 1"),
        (["--max-length", "1"], "max_length=1 is less than the special tokens of a text: 2"),
        (["--text-field", "body"], 'no field "body"; the fields there are: text, label'),
        (["--dtype", "int4"], 'dtype is "int4"'),
        (["--threshold", "2"], "threshold=2.0 must be between 0 and 1"),
    ],
)
def test_predict_errors(
    options: list[str],
    message: str,
    classifier: str,
    documents: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["predict", classifier, documents, "--output", str(tmp_path / "o.jsonl"), *options]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("longform: error: ")
    assert message in error
    assert not (tmp_path / "o.jsonl").exists()


@pytest.mark.parametrize("text", ["text_field: {a: b}", "text_field: &a [*a]", "batch_tokens: " + "1" * 5000, "\ud800"])
def test_a_config_file_that_makes_no_sense_is_refused(
    text: str, encoder: str, documents: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.yaml").write_bytes(text.encode(errors="surrogatepass"))
    arguments = [encoder, documents, "--output", str(tmp_path / "o.jsonl"), "--config", str(tmp_path / "run.yaml")]
    assert main(["embed", *arguments]) == 2
    assert "error: " in capsys.readouterr().err
    assert not (tmp_path / "o.jsonl").exists()


def test_what_finetune_reads_predict_reads_too(classifier: str, tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.csv").write_text("label,text\ngood,near\nbad,far\n")
    arguments = [str(folder), "--output", str(tmp_path / "o.jsonl"), "--max-characters", "3"]
    assert main(["predict", classifier, *arguments]) == 0
    assert [record["id"] for record in read_lines(tmp_path / "o.jsonl")] == [f"{folder}/a.csv:{row}" for row in (2, 3)]


def test_predict_needs_a_trained_head(
    encoder: str, documents: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", encoder, documents, "--output", str(tmp_path / "o.jsonl")]) == 2
    assert "longform finetune" in capsys.readouterr().err


def test_evaluate_side_by_side(encoder: str, original: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"a": "near", "b": text, "gold": at} for at, text in enumerate(["far", "a long", "near"])]
    write_lines(tmp_path / "s.jsonl", rows)
    arguments = ["--data", str(tmp_path / "s.jsonl"), "--fields", '["a", "b", "gold"]']
    models = ["--longform", encoder, "--original", original, "--output", str(tmp_path / "records.jsonl")]
    assert main(["evaluate", "sts", *arguments, *models]) == 0
    shown = capsys.readouterr().out
    assert "first 64" in shown
    assert "spearman" in shown
    records = read_lines(tmp_path / "records.jsonl")
    assert [record["name"] for record in records] == [
        "longform",
        "original, cut",
        "original, chunks averaged",
    ]
    assert all(record["task"] == "sts" and record["items"] == 3 for record in records)


def test_evaluate_retrieval(original: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"id": name, "text": name, "relevant": name} for name in ("near", "far")]
    write_lines(tmp_path / "d.jsonl", rows)
    both = ["--queries", str(tmp_path / "d.jsonl"), "--documents", str(tmp_path / "d.jsonl")]
    assert main(["evaluate", "retrieval", *both, "--original", original, "--query-field", "text"]) == 0
    assert "100.0" in capsys.readouterr().out


@pytest.mark.nightly
def test_files_whose_names_are_not_utf8(encoder: str, documents: str, tmp_path: Path) -> None:
    source, output = (Path(os.fsdecode(bytes(tmp_path) + name)) for name in (b"/caf\xe9.jsonl", b"/vectors\xe9.jsonl"))
    shutil.copy(documents, source)
    command = [sys.executable, "-m", "longform", "embed", encoder, str(source), "--output", str(output)]
    as_in_a_terminal: Any = {"capture_output": True, "env": {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}}
    ended = subprocess.run(command, check=False, **as_in_a_terminal)
    assert (ended.returncode, b"Traceback" in ended.stderr) == (0, False), ended.stderr
    assert rb"vectors\udce9.jsonl" in ended.stdout
    assert [record["id"] for record in read_lines(output)] == [
        rf"{tmp_path}/caf\udce9.jsonl:{line}" for line in (1, 2, 3)
    ]
    source.write_text("{}")
    failed = subprocess.run([*command, "--restart"], check=False, **as_in_a_terminal)
    assert (failed.returncode, b"Traceback" in failed.stderr) == (2, False), failed.stderr
    assert rb"caf\udce9.jsonl:1: no field" in failed.stderr
