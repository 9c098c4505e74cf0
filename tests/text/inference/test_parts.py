"""Output in parts: the same records as in one file, once each, whatever ends the command in between."""

import errno
import gzip
import json
import os
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas
import pyarrow
import pyarrow.parquet
import pytest
from json_lines import read_lines, write_lines
from pyarrow import fs

import longform
from longform.digests import file_key
from longform.errors import ConfigurationError, DataError, InputError
from longform_text.data.files import ENCODING
from longform_text.data.parts import parts_of
from longform_text.data.places import input_files
from longform_text.inference import prepared
from longform_text.inference.parts import worker as part_worker
from longform_text.inference.settings import InferenceSettings

SETTINGS = InferenceSettings(progress=False, part_rows=7)
TEXTS = [f"the {'near ' * (place % 9)}{'far ' * (place % 4)}{place}" for place in range(30)]


def rows(texts: list[Any] = TEXTS) -> list[dict[str, Any]]:
    return [{"text": text, "id": f"doc {place}", "year": place} for place, text in enumerate(texts)]


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """A folder with one file of each kind."""
    folder = tmp_path / "given"
    lines = write_lines(folder / "a.jsonl", rows())
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(b"\n" + lines.read_bytes()[:-1]))  # a blank line, no end
    frame = pandas.DataFrame(rows())
    frame.to_parquet(folder / "c.parquet", row_group_size=4)
    (folder / "_SUCCESS").write_text("")
    (folder / "about.txt").write_text("is passed over")
    return folder


def vectors(folder: Path) -> np.ndarray:
    return np.stack(list(pandas.read_parquet(folder)["embedding"]))


def parts(folder: Path) -> dict[str, str]:
    return {path.name: file_key(path) for path in sorted(folder.glob("part-*.parquet"))}


def manifest(folder: Path) -> list[dict[str, Any]]:
    return read_lines(folder / "_manifest.jsonl")


def test_the_parts_are_the_records_of_one_file(longform_folder: Path, given: Path, tmp_path: Path) -> None:
    names = [given / name for name in ("a.jsonl", "b.jsonl.gz", "c.parquet")]
    how: dict[str, Any] = {"settings": SETTINGS, "keep": ["year", "known=text"]}
    one = longform.embed(longform_folder, names, tmp_path / "out.parquet", **how)
    found = longform.embed(longform_folder, given, tmp_path / "out", **how)
    assert (found.documents, found.records, found.tokens) == (one.documents, one.records, one.tokens)
    assert (found.failed, found.resumed, found.output) == (0, 0, str(tmp_path / "out"))
    wanted, made = pandas.read_parquet(tmp_path / "out.parquet"), pandas.read_parquet(tmp_path / "out")
    np.testing.assert_allclose(np.stack(list(made["embedding"])), np.stack(list(wanted["embedding"])), atol=1e-6)
    others = [name for name in wanted if name not in ("embedding", "year")]
    pandas.testing.assert_frame_equal(made[others], wanted[others])
    assert [json.loads(each) for each in made["year"]] == list(wanted["year"])  # in parts kept fields are texts
    for path in (tmp_path / "out.parquet", tmp_path / "out" / "part-000001-000000.parquet"):
        kind = pyarrow.parquet.read_schema(path).field("embedding").type
        assert kind == pyarrow.list_(pyarrow.float32(), 24)
    lines = manifest(tmp_path / "out")
    assert [(line["part"][5:], line["first"], line["rows"]) for line in lines[:6]] == [
        ("000000-000000", 0, 7), ("000000-000001", 7, 7), ("000000-000002", 14, 7), ("000000-000003", 21, 7),
        ("000000-000004", 28, 2), ("000001-000000", 0, 7),
    ]  # fmt: skip
    assert {f"{line['part']}.parquet": line["digest"] for line in lines} == parts(tmp_path / "out")


def test_what_is_cut_or_passed_over_is_named(longform_folder: Path, given: Path, tmp_path: Path) -> None:
    write_lines(given / "z.jsonl", [{"id": number, "text": "near " * 99 * (number % 2)} for number in range(30)])
    odd = [str(number) for number in range(1, 30, 2)]
    for output in (tmp_path / "out", tmp_path / "out.parquet", None):
        found = longform.embed(longform_folder, given, output, SETTINGS)
        assert (found.truncated, found.truncated_documents) == (len(odd), odd[:10])
        assert [Path(name).name for name in found.passed_over] == (
            ["_SUCCESS"] if output != tmp_path / "out" else ["about.txt"]
        )
        assert "passed over          /" in found.report
        assert "truncated documents  1, 3, 5, ..." in found.report


def test_vectors_in_half_the_size(longform_folder: Path, given: Path, tmp_path: Path) -> None:
    wanted = longform.embed(longform_folder, given / "a.jsonl", progress=False).vectors.astype(np.float16)
    outputs = [tmp_path / name for name in ("out", "out.parquet", "out.jsonl")]
    for output in outputs:
        longform.embed(longform_folder, given / "a.jsonl", output, SETTINGS, vector_dtype="float16")
    for path in (outputs[0] / "part-000000-000000.parquet", outputs[1]):
        kind = pyarrow.parquet.read_schema(path).field("embedding").type
        assert kind == pyarrow.list_(pyarrow.float16(), 24)
    lines = [json.loads(line)["embedding"] for line in outputs[2].read_text().splitlines()]
    for found in (*map(vectors, outputs[:2]), np.array(lines, dtype=np.float16)):
        np.testing.assert_allclose(found, wanted, atol=1e-3)  # batches differ
    np.testing.assert_array_equal(vectors(outputs[1]), np.array(lines, dtype=np.float16))


def test_labels_and_chunks_in_parts(
    classifier_folder: Path, longform_folder: Path, given: Path, tmp_path: Path
) -> None:
    for name, run in (
        ("labels", lambda out: longform.predict(classifier_folder, given / "a.jsonl", out, SETTINGS)),
        ("chunks", lambda out: longform.embed(longform_folder, given / "a.jsonl", out, SETTINGS, chunk_tokens=5)),
    ):
        assert run(tmp_path / name).records == run(tmp_path / f"{name}.parquet").records
        made, wanted = pandas.read_parquet(tmp_path / name), pandas.read_parquet(tmp_path / f"{name}.parquet")
        same = [each for each in wanted if each not in ("embedding", "score", "scores")]
        pandas.testing.assert_frame_equal(made[same], wanted[same])


def test_what_is_broken_off_goes_on(
    longform_folder: Path, given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unbroken, output = tmp_path / "unbroken", tmp_path / "out"
    longform.embed(longform_folder, given, unbroken, SETTINGS)
    real, made = part_worker.write_parquet, []

    def failing(records: Any, file: Any, **options: Any) -> None:
        if len(made) == 4:
            raise KeyboardInterrupt
        made.append(real(records, file, **options))

    monkeypatch.setattr(part_worker, "write_parquet", failing)
    with pytest.raises(KeyboardInterrupt):
        longform.embed(longform_folder, given, output, SETTINGS)
    assert len(parts(output)) == len(manifest(output)) == 4
    monkeypatch.undo()
    lines = (output / "_manifest.jsonl").read_text().splitlines()
    lines[3] = lines[3].replace('"part"', "")  # a line that a disk damaged
    (output / "_manifest.jsonl").write_text("\n".join([*lines, '{"part": "part-000']))  # and one that a kill cut off
    (output / "part-000000-000001.parquet").unlink()  # and a part that somebody took away
    result = longform.embed(longform_folder, given, output, SETTINGS)
    assert (result.resumed, result.documents) == (14, 90)
    assert parts(output) == parts(unbroken)
    assert len(manifest(output)) == len({line["part"] for line in manifest(output)}) == len(parts(unbroken))
    with pytest.raises(ConfigurationError, match=r"finished already: give restart=True \(--restart\)"):
        longform.embed(longform_folder, given, output, SETTINGS)
    (output / "mine.txt").write_text("stays")
    assert longform.embed(longform_folder, given / "a.jsonl", output, SETTINGS, restart=True).documents == 30
    assert (len(parts(output)), (output / "mine.txt").read_text()) == (5, "stays")


def test_a_full_disk_is_no_fault_of_a_row(
    longform_folder: Path, given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(records: Any, file: Any, **options: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    output = tmp_path / "out"
    monkeypatch.setattr(part_worker, "write_parquet", full)
    with pytest.raises(OSError, match=r"No space left on device: .*part-000000-000000\.parquet"):
        longform.embed(longform_folder, given, output, SETTINGS, on_error="skip")
    monkeypatch.undo()
    assert (parts(output), manifest(output)) == ({}, [])
    assert longform.embed(longform_folder, given, output, SETTINGS, on_error="skip").records == 90


def test_changed_inputs_are_noticed(longform_folder: Path, given: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    write_lines(given / "z.jsonl", [{"text": "the"}, {"none": "the"}])
    with pytest.raises(DataError, match=r'z\.jsonl:2: no field "text"'):
        longform.embed(longform_folder, given, output, SETTINGS)
    write_lines(given / "a.jsonl", rows([*TEXTS[:-1], "changed"]))
    with pytest.raises(DataError, match=r'a\.jsonl" has changed since parts of it were written .*--restart'):
        longform.embed(longform_folder, given, output, SETTINGS)
    for name, change in (("files", lambda: (given / "b.jsonl.gz").unlink()), ("part_rows", lambda: None)):
        change()
        with pytest.raises(ConfigurationError, match=f"{name}: .* there, .* now"):
            longform.embed(longform_folder, given, output, SETTINGS, part_rows=8)


def test_rows_that_fail_are_left_out_and_listed(longform_folder: Path, tmp_path: Path) -> None:
    texts: list[Any] = [*TEXTS]
    texts[3], texts[11] = None, 7
    source = write_lines(tmp_path / "given" / "a.jsonl", rows(texts))
    with source.open("a") as file:
        file.write('{"text": "cut of\n{"text": "good"}\n')
    (tmp_path / "given" / "b.parquet").write_bytes(b"no parquet")
    twice = [pyarrow.array(["a"]), pyarrow.array(["b"])]
    names = ["text", "text"]
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays(twice, names=names), tmp_path / "given" / "c.parquet")
    with pytest.raises(DataError, match=r'a\.jsonl:4: the field "text" is NoneType'):
        longform.embed(longform_folder, source, tmp_path / "strict", SETTINGS)
    with pytest.raises(DataError, match=r'b\.parquet" is not readable as parquet: .*--on-error skip'):
        longform.embed(longform_folder, source.with_name("b.parquet"), tmp_path / "other", SETTINGS)
    result = longform.embed(longform_folder, source.parent, tmp_path / "out", SETTINGS, on_error="skip")
    assert (result.documents, result.records, result.failed) == (29, 29, 5)
    failed = read_lines(tmp_path / "out" / "_failed.jsonl")
    assert [Path(each["row"]).name for each in failed] == [
        "a.jsonl:4",
        "a.jsonl:12",
        "a.jsonl:31",
        "b.parquet",
        "c.parquet",
    ]
    said_of = ("is NoneType", "is int", "JSON", "not readable as parquet", '"text" stands there more than once')
    for each, said in zip(failed, said_of, strict=True):
        assert said.lower() in each["reason"].lower()


def test_bytes_that_are_not_utf_8_fail_with_their_row_unless_the_encoding_is_named(
    longform_folder: Path, tmp_path: Path
) -> None:
    texts = ["nah", "f\xfcr", "gut"]
    lines = "".join(json.dumps({"id": text, "text": text}, ensure_ascii=False) + "\n" for text in texts)
    folder = tmp_path / "given"
    folder.mkdir()
    (folder / "a.jsonl").write_text(lines, encoding="cp1252")
    with pytest.raises(DataError, match=r"a\.jsonl, line 2: the byte 0xfc is not UTF-8: name .* --encoding cp1252"):
        longform.embed(longform_folder, folder, tmp_path / "strict", SETTINGS)
    result = longform.embed(longform_folder, folder, tmp_path / "skip", SETTINGS, on_error="skip")
    assert (result.records, result.failed) == (2, 1)
    for name in ("cp1252", "utf-16"):
        (folder / "a.jsonl").write_text(lines, encoding=name)
        context = copy_context()
        context.run(ENCODING.set, name)
        context.run(longform.embed, longform_folder, folder, tmp_path / name, replace(SETTINGS, part_rows=2))
        assert list(pandas.read_parquet(tmp_path / name)["id"]) == texts
        (tmp_path / name / "_finished.json").unlink()
        with pytest.raises(ConfigurationError, match=f"encoding: {name} there, None now"):
            longform.embed(longform_folder, folder, tmp_path / name, replace(SETTINGS, part_rows=2))


def test_a_field_that_cannot_be_kept_is_refused_before_its_part_is_computed(
    longform_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_lines(tmp_path / "given" / "a.jsonl", rows()[:3])
    monkeypatch.setattr(longform.Encoder, "forward", None)
    with pytest.raises(DataError, match=r'a\.jsonl:1: no field "title"; the fields there are: text, id'):
        longform.embed(longform_folder, source, tmp_path / "out", replace(SETTINGS, keep=["title"]))


def test_a_document_that_a_model_fails_on(
    longform_folder: Path, given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = prepared.Encoder.forward

    def failing(self: Any, batch: Any) -> Any:
        if (batch.input_ids == self.tokenizer.convert_tokens_to_ids("##7")).any():
            raise RuntimeError("out of memory\nby much")
        return real(self, batch)

    monkeypatch.setattr(prepared.Encoder, "forward", failing)
    with pytest.raises(
        InputError, match=r"one of the 7 documents from doc 14 to doc 20 failed: out of memory; on_error"
    ):
        longform.embed(longform_folder, given / "a.jsonl", tmp_path / "out", SETTINGS)
    result = longform.embed(longform_folder, given / "a.jsonl", tmp_path / "out", SETTINGS, on_error="skip")
    assert (result.resumed, result.records, result.failed) == (14, 28, 2)
    failed = (tmp_path / "out" / "_failed.jsonl").read_text().splitlines()
    assert [(line["row"], line["reason"]) for line in map(json.loads, failed)] == [
        ("doc 17", "out of memory"), ("doc 27", "out of memory"),
    ]  # fmt: skip


def test_parquet_that_is_broken_inside(longform_folder: Path, given: Path, tmp_path: Path) -> None:
    path = given / "c.parquet"
    column = pyarrow.parquet.read_metadata(path).row_group(5).column(0)  # rows 20 to 23
    content = bytearray(path.read_bytes())
    content[column.data_page_offset : column.data_page_offset + column.total_compressed_size // 2] = bytes(
        column.total_compressed_size // 2
    )
    path.write_bytes(content)
    result = longform.embed(longform_folder, path, tmp_path / "out", SETTINGS, on_error="skip")
    assert 14 <= result.records < 30
    assert result.failed
    ids = list(pandas.read_parquet(tmp_path / "out")["id"])
    assert ids[:14] == [f"doc {place}" for place in range(14)]
    assert ids[-2:] == ["doc 28", "doc 29"]  # other parts are read


def test_two_jobs_do_not_share_a_folder(longform_folder: Path, given: Path, tmp_path: Path) -> None:
    from longform.files import only_writer

    with only_writer(tmp_path / "out"), pytest.raises(ConfigurationError, match="is being written by another process"):
        longform.embed(longform_folder, given, tmp_path / "out", SETTINGS)


@pytest.mark.parametrize(
    ("output", "options", "message"),
    [
        ("out.jsonl", {"engine": "ray"}, "engine=ray and on_error=fail are of an output in parts: give a folder"),
        ("out.parquet", {"on_error": "skip"}, "engine=local and on_error=skip are of an output in parts"),
        ("out", {"engine": "spark"}, 'engine="spark"; it is one of local, ray'),
        ("out", {"on_error": "stop"}, 'on_error="stop"; it is one of fail, skip'),
        ("out", {"vector_dtype": "int8"}, 'vector_dtype="int8"; it is one of float32, float16'),
        ("out", {"part_rows": 0}, "part_rows=0 must be at least 1"),
        ("out", {"actors": 0}, "actors=0 must be at least 1"),
    ],
)
def test_options_that_cannot_be(
    output: str, options: dict[str, Any], message: str, longform_folder: Path, given: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        longform.embed(longform_folder, given, tmp_path / output, progress=False, **options)


def test_sources_that_cannot_be(longform_folder: Path, given: Path, tmp_path: Path) -> None:
    for source, message in (
        (given / "about.txt", r"has no \.jsonl"),
        (given / "*.csv", r"has no \.jsonl"),
        (given / "none", "does not exist"),
        ("odd://bucket/a.jsonl", '"odd://bucket/" cannot be opened'),
    ):
        with pytest.raises(DataError, match=message):
            longform.embed(longform_folder, source, tmp_path / "out", SETTINGS)
    for stream, named in ((["the"], "the list of texts"), ("-", "-"), ("hf:somewhere:train", "hf:somewhere:train")):
        with pytest.raises(ConfigurationError, match=f"made of files, not of {named}"):
            longform.embed(longform_folder, stream, tmp_path / "out", SETTINGS)
    write_lines(given / "empty" / "a.jsonl", [])
    with pytest.raises(DataError, match=r"no documents in .*empty"):
        longform.embed(longform_folder, given / "empty", tmp_path / "out", SETTINGS)


def test_names_of_files(given: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lines(given / "more" / "a.jsonl", rows())
    write_lines(given / "_temporary" / "a.jsonl", rows())
    monkeypatch.chdir(given.parent)
    names = ["a.jsonl", "b.jsonl.gz", "c.parquet", "more/a.jsonl"]
    for source, head, found in (
        ("given/", "given/", names),
        ("given/*.jsonl", "given/", names[:1]),
        ("given/**.jsonl", "given/", ["a.jsonl", "more/a.jsonl"]),
        (f"file://{given}", f"file://{given}/", names),
        (f"file://{given}/*/a.jsonl", f"file://{given}/", ["more/a.jsonl"]),
    ):
        files = input_files([source])
        assert [file.name for file in files] == [head + name for name in found]
        assert all(Path(file.path).is_absolute() for file in files)
        assert "a.jsonl" not in found or parts_of(0, files[0], 7)[0].digest == file_key(given / "a.jsonl")


def test_other_file_systems_are_read(
    longform_folder: Path, given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def from_uri(uri: str) -> tuple[Any, str]:
        assert uri == "s3://bucket/?region=north"
        return fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), "given"

    monkeypatch.setattr(fs, "FileSystem", SimpleNamespace(from_uri=from_uri))
    found = longform.embed(longform_folder, "s3://bucket/*.parquet?region=north", tmp_path / "out", SETTINGS)
    assert found.records == 30
    assert manifest(tmp_path / "out")[0]["file"] == "s3://bucket/c.parquet?region=north"


def test_a_part_is_bounded_in_bytes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longform_text.data.parts.PART_BYTES", 1000)
    texts = ["a" * 10] * 3 + ["b" * 5000] + ["c" * 300] * 9
    write_lines(tmp_path / "a.jsonl", [{"text": text} for text in texts])
    pandas.DataFrame({"text": texts}).to_parquet(tmp_path / "b.parquet", compression=None, index=False)
    lines, table = (parts_of(0, file, 100) for file in input_files([tmp_path]))
    assert [(part.first, part.rows) for part in lines] == [(0, 4), (4, 4), (8, 4), (12, 1)]
    assert sum(part.rows for part in table) == 13
    assert len(table) > 1
