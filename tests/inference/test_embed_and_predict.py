"""longform.embed and longform.predict on texts in memory, with a file or without one: the command's own records."""

import json
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas
import pytest

import longform
from longform.cli.main import main
from longform.errors import ConfigurationError, DataError

TEXTS = ["the near text", " ", "a " * 90, "x", "good bad long short"]
TABLE = pandas.DataFrame({"body": TEXTS, "key": list("abcde")})


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in TABLE.to_dict("records")))
    return path


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def counts(report: str) -> list[str]:
    """Lines of a report without those that differ: where the output is, and times."""
    return [line for line in report.splitlines() if not line.startswith(("output", "seconds", "tokens per"))]


def test_vectors_are_those_that_the_command_writes(
    longform_folder: Path, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out.jsonl"
    options = ["--text-field", "body", "--id-field", "key"]
    assert main(["embed", str(longform_folder), str(source), "--output", str(output), *options]) == 0
    printed, records = capsys.readouterr().out, read(output)
    written = np.array([record["embedding"] for record in records], dtype=np.float32)
    np.testing.assert_array_equal(
        longform.Encoder.from_pretrained(longform_folder).encode(TABLE, text_field="body"), written
    )
    for given in (TABLE, datasets.Dataset.from_pandas(TABLE), source):
        result = longform.embed(longform_folder, given, text_field="body", id_field="key", progress=False)
        np.testing.assert_array_equal(result.vectors, written)
        assert [each["id"] for each in result.results or []] == [record["id"] for record in records]
        assert set(counts(result.report)) <= set(printed.splitlines())
        assert (result.documents, result.empty, result.truncated) == (5, 1, 1)


@pytest.mark.parametrize("made", [list, iter, tuple, pandas.Series])
def test_plain_texts_have_their_places_as_ids(longform_folder: Path, tmp_path: Path, made: Any) -> None:
    kept = longform.embed(longform_folder, made(TEXTS), progress=False)
    result = longform.embed(longform_folder, made(TEXTS), tmp_path / "out.jsonl", progress=False)
    records = read(tmp_path / "out.jsonl")
    assert [record["id"] for record in records] == [f"texts:{place}" for place in range(5)]
    np.testing.assert_array_equal(np.array([each["embedding"] for each in records], dtype=np.float32), kept.vectors)
    assert (result.results, result.output) == (None, str(tmp_path / "out.jsonl"))
    with pytest.raises(ConfigurationError, match=r'the results are in ".*out\.jsonl"'):
        _ = result.vectors


def test_chunks_in_memory(longform_folder: Path) -> None:
    result = longform.embed(longform_folder, TEXTS, chunk_tokens=30, progress=False)
    assert [(each["id"], each["chunk"]) for each in result.results or []][2:6] == [
        ("texts:2", 0),
        ("texts:2", 1),
        ("texts:2", 2),
        ("texts:3", 0),
    ]
    assert result.vectors.shape == (7, 24)


def test_predictions_in_memory_are_those_of_a_file(classifier_folder: Path, source: Path, tmp_path: Path) -> None:
    settings = longform.InferenceSettings(progress=False, text_field="body")
    longform.predict(classifier_folder, source, tmp_path / "out.jsonl", settings, id_field="key")
    result = longform.predict(classifier_folder, TABLE, settings=settings, id_field="key")
    assert result.results == read(tmp_path / "out.jsonl")
    assert result.output is None
    with pytest.raises(ConfigurationError, match="labels were predicted"):
        _ = result.vectors


def test_an_interrupted_run_over_texts_in_memory_goes_on(longform_folder: Path, tmp_path: Path) -> None:
    output, texts = tmp_path / "out.jsonl", TEXTS * 120
    with pytest.raises(DataError, match=r"text number 600 is int"):
        longform.embed(longform_folder, [*texts, 3], output, progress=False)
    done = len(read(tmp_path / "out.jsonl.partial"))
    assert 0 < done < 600
    with pytest.raises(DataError, match=r"number 1 is another one \(texts:0\)"):
        longform.embed(longform_folder, ["other", *texts], output, progress=False)
    assert longform.embed(longform_folder, texts, output, progress=False).resumed == done


def test_what_cannot_be_embedded(longform_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r'no field "text"; the fields there are: body, key'):
        longform.embed(longform_folder, TABLE, progress=False)
    with pytest.raises(DataError, match="no documents in the list of texts"):
        longform.embed(longform_folder, [], progress=False)
    with pytest.raises(DataError, match=r'missing\.jsonl" does not exist'):
        longform.embed(longform_folder, tmp_path / "missing.jsonl", progress=False)
    with pytest.raises(ConfigurationError, match='no setting "text_column" in InferenceSettings; there are text_field'):
        longform.embed(longform_folder, TABLE, text_column="body")
