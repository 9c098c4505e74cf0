"""``embed`` with a record a chunk: every document once, whole, in order, also after an interruption."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from json_lines import read_lines, write_lines

from longform.errors import ConfigurationError, DataError
from longform_text.inference.chunks import encode_chunks
from longform_text.inference.encoders import Encoder
from longform_text.inference.run import InferenceSettings, embed

SETTINGS = InferenceSettings(progress=False, batch_tokens=400)
WORDS = ["the", "near", "far", "good", "bad", "long", "a", "it"]
TEXTS = [" ".join(WORDS[(number + place) % 8] for place in range(number * 17 % 190)) for number in range(700)]


def test_a_record_a_chunk(longform_folder: Path, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.jsonl", [{"text": text} for text in TEXTS[:40]])
    summary = embed(longform_folder, source, tmp_path / "out.jsonl", SETTINGS, chunk_tokens=24)
    rows = read_lines(tmp_path / "out.jsonl")
    expected = list(encode_chunks(Encoder.from_pretrained(longform_folder), TEXTS[:40], chunk_tokens=24))
    vectors = np.concatenate([each.vectors for each in expected])
    np.testing.assert_allclose([row["embedding"] for row in rows], vectors, rtol=0, atol=2e-5)
    assert [(row["id"], row["chunk"], [row["start"], row["end"]]) for row in rows] == [
        (f"{source}:{place}", number, span)
        for place, each in enumerate(expected, start=1) for number, span in enumerate(each.spans.tolist())
    ]  # fmt: skip
    assert (summary.documents, summary.records, summary.truncated) == (40, len(rows), 0)
    assert max(row["tokens"] for row in rows) == 24
    assert summary.tokens == sum(len(text.split()) for text in TEXTS[:40])  # each word is a token; nothing is cut off
    embed(longform_folder, source, tmp_path / "out.parquet", SETTINGS, chunk_tokens=24)
    columns = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert [(row["id"], row["chunk"], row["end"]) for row in columns] == [
        (row["id"], row["chunk"], row["end"]) for row in rows
    ]


def test_an_interrupted_run_goes_on_with_whole_documents(longform_folder: Path, tmp_path: Path) -> None:
    rows = [{"text": text} for text in TEXTS]
    source, output = write_lines(tmp_path / "a.jsonl", [*rows, {"body": ""}]), tmp_path / "out.jsonl"
    with pytest.raises(DataError, match="body"):
        embed(longform_folder, source, output, SETTINGS, chunk_tokens=24)
    write_lines(source, rows)
    with pytest.raises(ConfigurationError, match="chunk_tokens: 24 there, 30 now"):
        embed(longform_folder, source, output, SETTINGS, chunk_tokens=30)
    embed(longform_folder, source, tmp_path / "whole.jsonl", SETTINGS, chunk_tokens=24)
    whole = read_lines(tmp_path / "whole.jsonl")
    left = {path: path.read_bytes() for path in tmp_path.glob("out.jsonl*")}
    for lost in (0, 1, 5_000):
        output.unlink(missing_ok=True)
        for path, content in left.items():
            cut = lost if path.suffix == ".partial" else 0
            path.write_bytes(content[: len(content) - cut])
        summary = embed(longform_folder, source, output, SETTINGS, chunk_tokens=24)
        assert 0 < summary.resumed < summary.documents == len(TEXTS)
        found = read_lines(output)
        assert [(row["id"], row["chunk"]) for row in found] == [(row["id"], row["chunk"]) for row in whole]
        np.testing.assert_allclose(
            [row["embedding"] for row in found], [row["embedding"] for row in whole], rtol=0, atol=2e-5
        )
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "out.jsonl", "whole.jsonl"]


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", ""])
def test_weight_and_title_of_documents(longform_folder: Path, tmp_path: Path, suffix: str) -> None:
    rows = [{"text": text, "title": f"far {number}"} for number, text in enumerate(TEXTS[:20])]
    source, output = write_lines(tmp_path / "a.jsonl", rows), tmp_path / f"out{suffix}"
    how: Any = {"chunk_tokens": 24, "document_weight": 0.5, "title_field": "title"}
    embed(longform_folder, source, output, SETTINGS, **how)
    expected = np.concatenate(
        [each.vectors for each in Encoder.from_pretrained(longform_folder).encode_chunks(rows, **how)]
    )
    found = embed(longform_folder, rows, settings=SETTINGS, **how).vectors
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)
    if suffix == ".jsonl":
        written = [row["embedding"] for row in read_lines(output)]
    else:
        written = pyarrow.parquet.read_table(output, columns=["embedding"])["embedding"].to_pylist()
    np.testing.assert_allclose(written, expected, rtol=0, atol=2e-5)


def test_another_weight_or_title_is_another_run(longform_folder: Path, tmp_path: Path) -> None:
    rows = [{"text": text, "title": "far"} for text in TEXTS]
    source, output = write_lines(tmp_path / "a.jsonl", [*rows, {"title": "far"}]), tmp_path / "out.jsonl"
    how: Any = {"chunk_tokens": 24, "document_weight": 0.5, "title_field": "title"}
    with pytest.raises(DataError, match="text"):
        embed(longform_folder, source, output, SETTINGS, **how)
    write_lines(source, rows)
    with pytest.raises(ConfigurationError, match=r"document_weight: 0.5 there, 1.0 now"):
        embed(longform_folder, source, output, SETTINGS, **how | {"document_weight": 1.0})
    write_lines(source, [rows[0] | {"title": "near"}, *rows[1:]])
    with pytest.raises(DataError, match="number 1 is another one"):
        embed(longform_folder, source, output, SETTINGS, **how)
    write_lines(source, rows)
    resumed = embed(longform_folder, source, output, SETTINGS, **how)
    whole = embed(longform_folder, source, settings=SETTINGS, **how)
    assert 0 < resumed.resumed < len(TEXTS)
    np.testing.assert_allclose([row["embedding"] for row in read_lines(output)], whole.vectors, rtol=0, atol=2e-5)


def test_what_does_not_go_with_chunks(longform_folder: Path, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.jsonl", [{"text": "near far", "more": "x"}])
    for only_chunks in ({"document_weight": 0.5}, {"title_field": "more"}):
        with pytest.raises(ConfigurationError, match="document_weight and title_field go with chunks"):
            embed(longform_folder, source, tmp_path / "out.jsonl", SETTINGS, **only_chunks)
    with pytest.raises(ConfigurationError, match="document_weight is -1"):
        embed(longform_folder, source, tmp_path / "out.jsonl", SETTINGS, chunk_tokens=8, document_weight=-1)
    with pytest.raises(DataError, match="title"):
        embed(longform_folder, source, tmp_path / "out.jsonl", SETTINGS, chunk_tokens=8, title_field="title")
    averaged = InferenceSettings(progress=False, strategy="chunk-average")
    with pytest.raises(ConfigurationError, match=r'chunk_tokens=8 .* strategy="chunk-average"'):
        embed(longform_folder, source, tmp_path / "out.jsonl", averaged, chunk_tokens=8)
    with pytest.raises(ConfigurationError, match='boundaries is "words"; it is tokens, sentences, paragraphs'):
        embed(longform_folder, source, tmp_path / "out.jsonl", SETTINGS, chunk_tokens=8, boundaries="words")
    pairs = InferenceSettings(progress=False, pair_field="more")
    with pytest.raises(ConfigurationError, match="pair of texts has no chunks"):
        embed(longform_folder, source, tmp_path / "out.jsonl", pairs, chunk_tokens=8)
