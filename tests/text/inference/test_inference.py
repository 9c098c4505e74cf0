"""Prediction and embedding over files: in order, resumable, and never silent."""

import errno
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from json_lines import read_lines, write_lines
from tiny_models import save_bert, save_longform

from longform.errors import CheckpointError, ConfigurationError, DataError, InputError
from longform_text.data.text import written
from longform_text.inference import run as inference
from longform_text.inference.encoders import Encoder
from longform_text.inference.prepared import most_characters
from longform_text.inference.run import embed, predict
from longform_text.inference.settings import InferenceSettings
from tolerances import TOLERANCES

SETTINGS = InferenceSettings(progress=False, batch_tokens=400)
WORDS = ["the", "near", "far", "good", "bad", "long", "a", "it"]


def texts(count: int) -> list[str]:
    return [" ".join(WORDS[(number + place) % 8] for place in range(number * 7 % 40)) for number in range(count)]


def assert_same(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> None:
    """Equal up to the rounding that another composition of the batches brings."""
    tolerance = TOLERANCES["model"][torch.float32]
    assert [record["id"] for record in first] == [record["id"] for record in second]
    vectors = [np.array([record["embedding"] for record in records]) for records in (first, second)]
    np.testing.assert_allclose(*vectors, atol=tolerance.atol, rtol=tolerance.rtol)


def test_embed_in_order_with_counts(longform_folder: Path, tmp_path: Path) -> None:
    written = [*texts(300), " ", "nul \x00", "the " * 100]
    source = write_lines(tmp_path / "a.jsonl", written)
    summary = embed(longform_folder, source, tmp_path / "out.jsonl", SETTINGS)
    records = read_lines(tmp_path / "out.jsonl")
    assert [record["id"] for record in records] == [f"{source}:{number}" for number in range(1, 304)]
    expected = Encoder.from_pretrained(longform_folder).encode([text.replace("\x00", " ") for text in written])
    found = np.array([record["embedding"] for record in records], dtype=np.float32)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert (summary.documents, summary.resumed, summary.replaced_characters) == (303, 0, 1)
    assert summary.empty == 1 + sum(not text for text in texts(300))
    assert (summary.truncated, summary.truncated_tokens) == (1, 38)
    assert summary.tokens == sum(record["tokens"] for record in records)
    assert summary.tokens_per_second > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "out.jsonl"]


def test_parquet_output_keeps_float32(longform_folder: Path, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.jsonl", texts(5))
    embed(longform_folder, source, tmp_path / "out.parquet", SETTINGS)
    embed(longform_folder, source, tmp_path / "out.jsonl", SETTINGS)
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    assert str(table.schema.field("embedding").type) == "fixed_size_list<element: float>[24]"
    lines = np.array([record["embedding"] for record in read_lines(tmp_path / "out.jsonl")], dtype=np.float32)
    np.testing.assert_array_equal(np.array(table["embedding"].to_pylist(), dtype=np.float32), lines)


def test_predict_single_label(classifier_folder: Path, tmp_path: Path) -> None:
    predict(classifier_folder, write_lines(tmp_path / "a.jsonl", texts(20)), tmp_path / "out.jsonl", SETTINGS)
    for record in read_lines(tmp_path / "out.jsonl"):
        assert list(record) == ["id", "label", "score", "scores", "tokens", "truncated"]
        assert list(record["scores"]) == ["bad", "good", "odd"]
        assert sum(record["scores"].values()) == pytest.approx(1)
        assert record["score"] == record["scores"][record["label"]] == max(record["scores"].values())
    predict(classifier_folder, tmp_path / "a.jsonl", tmp_path / "out.parquet", SETTINGS)
    assert pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pylist() == read_lines(tmp_path / "out.jsonl")


def test_predict_multi_label_and_regression(tiny_tokenizer: Any, tmp_path: Path) -> None:
    settings = {"problem_type": "multi_label_classification", "id2label": {0: "x", 1: "y"}}
    several = save_longform(tmp_path / "several", tiny_tokenizer, head="classification", **settings)
    source = write_lines(tmp_path / "a.jsonl", texts(12))
    predict(several, source, tmp_path / "several.parquet", SETTINGS, threshold=0.3)
    for record in pyarrow.parquet.read_table(tmp_path / "several.parquet").to_pylist():
        assert record["labels"] == [label for label, score in record["scores"].items() if score >= 0.3]
    one = save_bert(tmp_path / "one", tiny_tokenizer, head="classification", num_labels=1)
    predict(one, source, tmp_path / "one.jsonl", SETTINGS)
    assert all(
        isinstance(record["score"], float) and "label" not in record for record in read_lines(tmp_path / "one.jsonl")
    )


def test_predict_pairs(classifier_folder: Path, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.jsonl", [{"text": "the", "more": "far"}, {"text": "the", "more": "near"}])
    settings = InferenceSettings(progress=False, pair_field="more")
    predict(classifier_folder, source, tmp_path / "out.jsonl", settings)
    first, second = read_lines(tmp_path / "out.jsonl")
    assert first["tokens"] == 5
    assert first["scores"] != second["scores"]


def test_error_keeps_what_is_done_and_the_next_start_goes_on(longform_folder: Path, tmp_path: Path) -> None:
    good = texts(700)
    embed(longform_folder, write_lines(tmp_path / "a.jsonl", good), tmp_path / "whole.jsonl", SETTINGS)
    source, output = tmp_path / "a.jsonl", tmp_path / "out.jsonl"
    output.write_text("older result")
    write_lines(source, [*good[:600], {"body": "no text"}, *good[601:]])
    with pytest.raises(DataError, match=r"a\.jsonl:601"):
        embed(longform_folder, source, output, replace(SETTINGS, restart=True))
    assert output.read_text() == "older result"
    partial = tmp_path / "out.jsonl.partial"
    done = len(read_lines(partial))
    assert 0 < done < 600
    with partial.open("r+b") as file:  # as a kill in the middle of a line leaves it
        file.truncate(partial.stat().st_size - 30)
    write_lines(source, good)
    summary = embed(longform_folder, source, output, SETTINGS)
    assert summary.resumed == done - 1
    assert summary.documents == 700
    assert_same(read_lines(output), read_lines(tmp_path / "whole.jsonl"))
    assert summary.tokens == sum(record["tokens"] for record in read_lines(output))
    assert not partial.exists()


@pytest.mark.nightly
def test_kill_and_start_again(longform_folder: Path, tmp_path: Path) -> None:
    source, output = write_lines(tmp_path / "a.jsonl", texts(2000)), tmp_path / "out.jsonl"
    script = (
        "import sys, longform; from longform_text.inference.run import *; "
        "embed(*sys.argv[1:], InferenceSettings(progress=False, batch_tokens=100))"
    )
    arguments = [str(longform_folder), str(source), str(output)]
    process = subprocess.Popen([sys.executable, "-c", script, *arguments])
    partial = tmp_path / "out.jsonl.partial"
    while process.poll() is None and not (partial.exists() and partial.stat().st_size > 0):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not output.exists()
    summary = embed(longform_folder, str(source), output, SETTINGS)
    assert 0 < summary.resumed < 2000
    assert [record["id"] for record in read_lines(output)] == [f"{source}:{number}" for number in range(1, 2001)]


def interrupted(folder: Path, source: Path, output: Path, settings: InferenceSettings = SETTINGS) -> int:
    """Leave a partial file of as many documents."""
    write_lines(source, [*texts(600), {"body": ""}])
    with pytest.raises(DataError):
        embed(folder, source, output, settings)
    done = len(read_lines(output.with_name(output.name + ".partial")))
    assert 0 < done < 600
    return done


def test_what_an_unfinished_output_would_append_to_is_no_input(longform_folder: Path, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "out.jsonl.partial", texts(5))
    with pytest.raises(ConfigurationError, match="the input"):
        embed(longform_folder, source, tmp_path / "out.jsonl", SETTINGS)


def test_a_second_run_with_the_same_output_is_told_who_writes(longform_folder: Path, tmp_path: Path) -> None:
    source, outputs = write_lines(tmp_path / "a.jsonl", texts(5)), [tmp_path / "out.jsonl", tmp_path / "link.jsonl"]
    outputs[1].symlink_to("out.jsonl")
    read_documents = inference.read_documents

    def meanwhile(*arguments: Any, **options: Any) -> Any:
        for output in outputs:
            with pytest.raises(ConfigurationError, match="is being written by another process"):
                embed(longform_folder, source, output, SETTINGS)
        return read_documents(*arguments, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(inference, "read_documents", meanwhile)
        embed(longform_folder, source, outputs[0], SETTINGS)
    assert len(read_lines(outputs[0])) == 5


def test_a_linked_output_stays_a_link(longform_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    for name in ("out.jsonl", "out.parquet"):
        (tmp_path / name).symlink_to(f"disk/{name}")
        embed(longform_folder, write_lines(tmp_path / "a.jsonl", texts(5)), tmp_path / name, SETTINGS)
        assert (tmp_path / name).is_symlink()
    assert sorted(path.name for path in (tmp_path / "disk").iterdir()) == ["out.jsonl", "out.parquet"]


def test_changed_settings_are_refused_by_name(longform_folder: Path, bert_folder: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "a.jsonl", tmp_path / "out.jsonl"
    done = interrupted(longform_folder, source, output)
    write_lines(source, texts(600))
    shorter = InferenceSettings(progress=False, max_length=20)
    with pytest.raises(ConfigurationError, match=r"limit: 64 there, 20 now.*--restart"):
        embed(longform_folder, source, output, shorter)
    with pytest.raises(ConfigurationError, match="pooling: mean there, cls now"):
        embed(longform_folder, source, output, SETTINGS, pooling="cls")
    with pytest.raises(ConfigurationError, match="model: "):
        embed(bert_folder, source, output, SETTINGS)
    other_batches = InferenceSettings(progress=False, batch_tokens=77)
    assert embed(longform_folder, source, output, other_batches).resumed == done


def test_restart_begins_anew(longform_folder: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "a.jsonl", tmp_path / "out.jsonl"
    interrupted(longform_folder, source, output)
    write_lines(source, texts(600))
    settings = InferenceSettings(progress=False, max_length=20, restart=True)
    summary = embed(longform_folder, source, output, settings)
    assert (summary.resumed, summary.documents) == (0, 600)


CHANGES: dict[str, tuple[Callable[[dict[str, str]], dict[str, str]], int]] = {
    "first text": (lambda row: row | {"text": "far " + row["text"]}, 0),
    "text in the middle": (lambda row: row | {"text": row["text"] + " "}, 40),
    "pair": (lambda row: row | {"more": "good"}, 5),
    "id": (lambda row: row | {"name": row["name"] + "x"}, 5),
}


@pytest.mark.parametrize(("change", "place"), CHANGES.values(), ids=CHANGES)
def test_changed_documents_are_refused_though_the_last_is_the_same(
    classifier_folder: Path, tmp_path: Path, change: Callable[[dict[str, str]], dict[str, str]], place: int
) -> None:
    rows = [{"name": str(number), "text": text, "more": "the"} for number, text in enumerate(texts(600))]
    source, output = write_lines(tmp_path / "a.jsonl", [*rows, {"body": ""}]), tmp_path / "out.jsonl"
    settings = replace(SETTINGS, id_field="name", pair_field="more")
    with pytest.raises(DataError, match="body"):
        predict(classifier_folder, source, output, settings)
    kept = (tmp_path / "out.jsonl.partial").read_text()
    write_lines(source, [change(row) if number == place else row for number, row in enumerate(rows)])
    said = rf"number {place + 1} is another one \({place}x?\) in the sources: they have changed; begin anew"
    with pytest.raises(DataError, match=said):
        predict(classifier_folder, source, output, settings)
    assert (tmp_path / "out.jsonl.partial").read_text() == kept
    write_lines(source, rows)
    assert predict(classifier_folder, source, output, settings).resumed == len(kept.splitlines())
    assert not (tmp_path / "out.jsonl.documents").exists()


def test_settings_of_an_interrupted_run_that_are_a_list(longform_folder: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "a.jsonl", tmp_path / "out.jsonl"
    interrupted(longform_folder, source, output)
    (tmp_path / "out.jsonl.settings").write_text("[1]")
    with pytest.raises(CheckpointError, match=r"out\.jsonl\.settings\" is damaged \(it holds a list\)"):
        embed(longform_folder, source, output, SETTINGS)


def test_a_bad_file_of_a_folder_is_passed_over(longform_folder: Path, tmp_path: Path) -> None:
    write_lines(tmp_path / "texts/a.jsonl", ["near", "far"])
    (tmp_path / "texts/b.txt").write_bytes(b"Gr\xfc\xdfe")
    (tmp_path / "texts/c.txt").write_text("good")
    found = embed(longform_folder, tmp_path / "texts", tmp_path / "out.jsonl", SETTINGS)
    assert (found.documents, found.passed_over_files) == (3, 1)
    assert f"{tmp_path / 'texts/b.txt'}: " in found.report
    assert [Path(each["id"]).name for each in read_lines(tmp_path / "out.jsonl")] == ["a.jsonl:1", "a.jsonl:2", "c.txt"]


def test_what_is_read_of_a_document_is_bounded(longform_folder: Path, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.jsonl", ["the near " * 100, "far"])
    (tmp_path / "b.csv").write_text("text\n" + "the near " * 100)
    (tmp_path / "c.txt").write_text("the near " * 100)
    settings = InferenceSettings(progress=False, max_characters=90)
    summary = embed(longform_folder, [source, tmp_path / "b.csv", tmp_path / "c.txt"], tmp_path / "out.jsonl", settings)
    assert (summary.truncated, summary.unread_characters, summary.passed_over_files) == (3, 3 * 810, 0)
    assert (len(summary.truncated_documents), summary.passed_over) == (3, [])
    assert [(each["tokens"], each["truncated"]) for each in read_lines(tmp_path / "out.jsonl")] == [
        (22, 1), (3, 0), (22, 1), (22, 1),
    ]  # fmt: skip
    averaged = InferenceSettings(progress=False, strategy="chunk-average")
    assert embed(longform_folder, source, tmp_path / "averaged.jsonl", averaged).unread_characters == 0
    strict = InferenceSettings(progress=False, max_characters=90, on_long="error")
    with pytest.raises(
        DataError, match=r"a\.jsonl:1 has 23 tokens or more \(810 characters were not read\), the limit is 64"
    ):
        embed(longform_folder, source, tmp_path / "strict.jsonl", strict)


def test_more_is_read_of_a_document_where_more_tokens_are_taken() -> None:
    assert most_characters(SETTINGS, 1024) == 2**20
    assert most_characters(SETTINGS, 10**6) == 16 * 10**6


def test_a_shorter_source_is_refused(longform_folder: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "a.jsonl", tmp_path / "out.jsonl"
    interrupted(longform_folder, source, output)
    write_lines(source, texts(100))
    with pytest.raises(DataError, match=r"number 101 is missing in the sources: they have changed"):
        embed(longform_folder, source, output, SETTINGS)


def test_what_was_not_used_yet_may_change_and_grow(longform_folder: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "a.jsonl", tmp_path / "out.jsonl"
    done = interrupted(longform_folder, source, output)
    write_lines(source, [*texts(done), *["other text"] * 300, *texts(200)])
    assert embed(longform_folder, source, output, SETTINGS).resumed == done
    embed(longform_folder, source, tmp_path / "whole.jsonl", SETTINGS)
    assert_same(read_lines(output), read_lines(tmp_path / "whole.jsonl"))


def test_standard_input_is_gone_on_with_and_compared(
    longform_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def give(*rows: Any) -> None:
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))

    output, settings = tmp_path / "out.jsonl", replace(SETTINGS, stdin_format="jsonl")
    rows = [{"text": text} for text in texts(600)]
    give(*rows, {"body": ""})
    with pytest.raises(DataError, match="standard input:601"):
        embed(longform_folder, "-", output, settings)
    give({"text": "other"}, *rows[1:])
    with pytest.raises(DataError, match=r"number 1 is another one \(standard input:1\)"):
        embed(longform_folder, "-", output, settings)
    give(*rows)
    assert embed(longform_folder, "-", output, settings).resumed > 0
    assert len(read_lines(output)) == 600


@pytest.mark.parametrize("suffix", [".partial", ".documents"])
@pytest.mark.parametrize("lost", [1, 5, 1_000])
def test_files_of_an_unfinished_output_that_lost_their_end(
    longform_folder: Path, tmp_path: Path, suffix: str, lost: int
) -> None:
    source, output = tmp_path / "a.jsonl", tmp_path / "out.jsonl"
    done = interrupted(longform_folder, source, output)
    write_lines(source, texts(600))
    with output.with_name(output.name + suffix).open("r+b") as file:
        file.truncate(file.seek(0, 2) - lost)
    assert 0 < embed(longform_folder, source, output, SETTINGS).resumed < done
    embed(longform_folder, source, tmp_path / "whole.jsonl", SETTINGS)
    assert_same(read_lines(output), read_lines(tmp_path / "whole.jsonl"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "out.jsonl", "whole.jsonl"]


def test_a_changed_model_is_refused(tiny_tokenizer: Any, tmp_path: Path) -> None:
    folder = save_longform(tmp_path / "model", tiny_tokenizer)
    source, output = tmp_path / "a.jsonl", tmp_path / "out.jsonl"
    interrupted(folder, source, output)
    write_lines(source, texts(600))
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x00")
    with pytest.raises(ConfigurationError, match="weights_key: "):
        embed(folder, source, output, SETTINGS)


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_names_that_are_not_utf8_are_written_each_as_its_own(
    classifier_folder: Path, tmp_path: Path, suffix: str
) -> None:
    folder = tmp_path / "documents"
    folder.mkdir()
    names = [b"caf\xe9.txt", b"caf\xe8.txt", b"caf\\udce9.txt", b"caf\\\xe9.txt", "café.txt".encode(), b"a\\b.txt"]
    for name in names:
        Path(os.fsdecode(bytes(folder) + b"/" + name)).write_text("the near text")
    output = tmp_path / f"out{suffix}"
    predict(classifier_folder, [folder, folder], output, SETTINGS)
    records = read_lines(output) if suffix == ".jsonl" else pyarrow.parquet.read_table(output).to_pylist()
    found = [record["id"].removeprefix(f"{folder}/") for record in records]
    assert found[: len(names)] == found[len(names) :]
    assert set(found) == {
        "caf\\udce9.txt", "caf\\udce8.txt", "caf\\\\udce9.txt", "caf\\\\\\udce9.txt", "café.txt", "a\\b.txt"
    }  # fmt: skip


def test_a_run_on_names_that_are_not_utf8_is_gone_on_with(longform_folder: Path, tmp_path: Path) -> None:
    source = Path(os.fsdecode(bytes(tmp_path) + b"/caf\xe9.jsonl"))
    output = tmp_path / "out.jsonl"
    done = interrupted(longform_folder, source, output)
    write_lines(source, texts(600))
    assert embed(longform_folder, source, output, SETTINGS).resumed == done


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_an_id_and_a_label_with_lone_surrogates(tiny_tokenizer: Any, tmp_path: Path, suffix: str) -> None:
    labels = {"id2label": {0: "\ud800", 1: "good"}}
    folder = save_longform(tmp_path / "model", tiny_tokenizer, head="classification", **labels)
    source = tmp_path / "a.jsonl"
    source.write_text('{"text": "a", "name": "x\\ud83d"}\n{"text": "a", "name": "x"}\n')
    output = tmp_path / f"out{suffix}"
    predict(folder, source, output, replace(SETTINGS, id_field="name"))
    records = read_lines(output) if suffix == ".jsonl" else pyarrow.parquet.read_table(output).to_pylist()
    assert [record["id"] for record in records] == ["x\\ud83d", "x"]
    assert list(records[0]["scores"]) == ["\\ud800", "good"]


@given(st.lists(st.text("\\ud8\ud8ff\udce9ea", max_size=8), unique=True))
def test_written_names_are_utf8_and_stay_apart(names: list[str]) -> None:
    found = [written(name) for name in names]
    assert len(set(found)) == len(names)
    assert all(name.encode() for name in found if name)
    assert written("C:\\texts\\a.txt") == "C:\\texts\\a.txt"


def test_full_disk_in_the_end_loses_nothing(
    longform_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, output = write_lines(tmp_path / "a.jsonl", texts(20)), tmp_path / "out.parquet"
    embed(longform_folder, source, tmp_path / "begin.jsonl", SETTINGS)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("longform_text.inference.resumable.write_parquet", full)
    with pytest.raises(OSError, match="No space left on device"):
        embed(longform_folder, source, output, SETTINGS)
    assert not output.exists()
    monkeypatch.undo()
    assert embed(longform_folder, source, output, SETTINGS).resumed == 20
    assert len(pyarrow.parquet.read_table(output)) == 20


def test_nan_names_the_document(bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = Encoder.from_pretrained(bert_folder)
    with torch.no_grad():
        encoder.model.embeddings.word_embeddings.weight[encoder.tokenizer.convert_tokens_to_ids("bad")] = float("nan")
    monkeypatch.setattr(Encoder, "from_pretrained", lambda *_, **__: encoder)
    source = write_lines(tmp_path / "a.jsonl", ["good", "bad", "far"])
    with pytest.raises(InputError, match=r"document .*a\.jsonl:2: the model's result is NaN"):
        embed(bert_folder, source, tmp_path / "out.jsonl", SETTINGS)
    assert len(read_lines(tmp_path / "out.jsonl.partial")) == 1


def test_failure_of_the_model_names_the_documents(
    bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = Encoder.from_pretrained(bert_folder)
    encoder.model.embeddings.position_embeddings.weight = torch.nn.Parameter(torch.zeros(4, 24))
    monkeypatch.setattr(Encoder, "from_pretrained", lambda *_, **__: encoder)
    source = write_lines(tmp_path / "a.jsonl", ["good " * 20, "far"])
    with pytest.raises(InputError, match=r"one of the 2 documents from .*a\.jsonl:1 to .*a\.jsonl:2 failed"):
        embed(bert_folder, source, tmp_path / "out.jsonl", SETTINGS)
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


@pytest.mark.parametrize(
    ("output", "settings", "error", "message"),
    [
        ("out.csv", {}, ConfigurationError, "suffix"),
        ("out.jsonl", {"on_long": "error"}, DataError, "has 102 tokens"),
        ("out.jsonl", {"on_long": "cut"}, ConfigurationError, "on_long"),
        ("out.jsonl", {"max_length": 0}, ConfigurationError, "max_length=0 must be at least 1"),
        ("out.jsonl", {"max_characters": 0}, ConfigurationError, "max_characters=0 must be at least 1"),
        ("out.jsonl", {"strategy": "odd"}, ConfigurationError, "strategy"),
        ("out.jsonl", {"max_length": 65}, ConfigurationError, "takes 64 tokens"),
    ],
)
def test_bad_options_leave_nothing_behind(
    longform_folder: Path,
    tmp_path: Path,
    output: str,
    settings: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    source = write_lines(tmp_path / "a.jsonl", ["the " * 100])
    with pytest.raises(error, match=message):
        embed(longform_folder, source, tmp_path / output, InferenceSettings(**settings, progress=False))
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]
