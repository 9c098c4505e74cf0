"""Every source of documents, and what bad input gets."""

import gzip
import io
import json
import os
import threading
from collections import UserDict
from contextvars import copy_context
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from json_lines import write_lines

from longform.errors import ConfigurationError, DataError
from longform_text.data.files import ENCODING
from longform_text.data.places import input_files, opened_place, random_access
from longform_text.data.text import Document, ReadReport, count_documents, read_documents, text_of


def texts(*arguments: object, **options: object) -> list[str]:
    return [document.text for document in read_documents(*arguments, **options)]


def feed_stdin(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_folder_is_read_sorted_at_any_depth(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name in ("c.txt", "b/x.md", "a.txt", "picture.png"):
        (tmp_path / name).write_text(name)
    write_lines(tmp_path / "b" / "y.jsonl", [{"text": "first"}, {"text": "second"}])
    assert texts(tmp_path) == ["a.txt", "b/x.md", "first", "second", "c.txt"]


def test_sources_keep_their_order(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("b")
    (tmp_path / "a").write_text("a")
    assert texts([tmp_path / "b.txt", str(tmp_path / "a")]) == ["b", "a"]


def test_jsonl_fields_ids_and_pairs(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [{"key": 7, "body": "x", "more": "y", "label": "z"}])
    (document,) = read_documents(path, text_field="body", pair_field="more", id_field="key")
    assert document == Document("7", "x", {"key": 7, "more": "y", "label": "z"}, "y")
    (document,) = read_documents(path, text_field="body")
    assert document.id == f"{path}:1"
    assert document.pair is None


def test_jsonl_blank_lines_count_as_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}\n\n   \n{"text": "b"}\n')
    assert [document.id for document in read_documents(path)] == [f"{path}:1", f"{path}:4"]


def test_parquet(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    rows = [{"text": f"text {row}", "label": row} for row in range(600)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    documents = list(read_documents(tmp_path / "a.parquet"))
    assert [document.text for document in documents] == [row["text"] for row in rows]
    assert documents[599] == Document(f"{tmp_path / 'a.parquet'}:599", "text 599", {"label": 599})


def test_stdin_lines_keep_empty_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    feed_stdin(monkeypatch, b"one\r\n\ntwo")
    assert [(document.id, document.text) for document in read_documents("-")] == [
        ("-:1", "one"),
        ("-:2", ""),
        ("-:3", "two"),
    ]


def test_datasets_library_reads_a_local_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    write_lines(tmp_path / "train.jsonl", [{"text": "a"}, {"text": "b"}])
    write_lines(tmp_path / "test.jsonl", [{"text": "c"}])
    assert texts(f"hf:{tmp_path}:train") == ["a", "b"]
    with pytest.raises(DataError, match="several splits"):
        texts(f"hf:{tmp_path}")
    with pytest.raises(DataError, match="could not be loaded"):
        texts(f"hf:{tmp_path / 'nothing'}:train")


def test_reading_is_streamed(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}\nnot json\n')
    documents = read_documents(path)
    assert next(documents).text == "a"
    with pytest.raises(DataError, match=r"a\.jsonl, line 2: not valid JSON"):
        next(documents)


def test_characters_that_tokenizers_refuse_are_replaced_and_counted(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"nul \x00 here, and a true one: \xef\xbf\xbd")
    (tmp_path / "b.jsonl").write_bytes(b'{"text": "nul \\u0000 lone \\ud800"}\n')
    report = ReadReport()
    assert texts([tmp_path / "a.txt", tmp_path / "b.jsonl"], report=report) == [
        "nul   here, and a true one: �",
        "nul   lone �",
    ]
    assert report == ReadReport(documents=2, empty=0, replaced_characters=3)


def read_as(encoding: str, path: object) -> list[str]:
    context = copy_context()
    context.run(ENCODING.set, encoding)
    return context.run(texts, path)


LATIN = "text,label\nKäse,ä\nKöse,ö\n"


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("a.txt", "one\nKäse", 2),
        ("a.jsonl", '{"text": "one"}\n\n{"text": "Käse"}\n', 3),
        ("a.json", '["one",\n"Käse"]', 2),
        ("a.csv", LATIN, 2),
        ("a.tsv", LATIN.replace(",", "\t"), 2),
        ("a.csv.gz", LATIN, 2),
        ("-", "one\nKäse", 2),
    ],
)
def test_bytes_that_are_not_utf_8_are_an_error_with_their_line_unless_the_encoding_is_named(
    name: str, content: str, line: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for given in ("cp1252", "utf-16"):
        coded = content.encode(given)
        path = name if name == "-" else tmp_path / name
        if path == "-":
            feed_stdin(monkeypatch, coded)
        else:
            (tmp_path / name).write_bytes(gzip.compress(coded) if name.endswith("gz") else coded)
        if given == "cp1252":
            with pytest.raises(DataError, match=rf", line {line}: the byte 0xe4 is not UTF-8: name the .*--encoding"):
                texts(path)
            if path == "-":
                feed_stdin(monkeypatch, coded)
        assert "Käse" in "".join(read_as(given, path))
        if path == "-":
            feed_stdin(monkeypatch, coded)
        if given == "cp1252" or path == "-":  # the mark of UTF-16 in front of a file counts more than a name
            with pytest.raises(DataError, match="is not in ascii: "):
                read_as("ascii", path)


def test_an_encoding_that_there_is_not(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("near")
    for wrong in ("latin9000", "hex", ""):
        with pytest.raises(ConfigurationError, match=f'encoding is "{wrong}"; it is utf-8, cp1252'):
            read_as(wrong, tmp_path / "a.txt")


def test_links_inside_a_folder_are_read_once_and_loops_never(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    for folder in (inside / "2024", outside):
        folder.mkdir(parents=True)
        write_lines(folder / "a.jsonl", [{"text": folder.name}])
    links = {
        "1999": "2024", "self": ".", "up": "..", "2024/latest": "../2024", "b.jsonl": "2024/a.jsonl",
        "far": str(outside), "gone": "nowhere",
    }  # fmt: skip
    for name, target in links.items():
        (inside / name).symlink_to(target)
    (outside / "back").symlink_to(inside)
    read = [document.id for document in read_documents(inside)]
    assert read == [f"{inside}/2024/a.jsonl:1", f"{inside}/far/a.jsonl:1"]
    assert [file.name for file in input_files([inside])] == [name.removesuffix(":1") for name in read]
    assert [file.name for file in input_files([f"{inside}/**.jsonl"])] == [name.removesuffix(":1") for name in read]
    assert [file.name for file in input_files([f"{inside}/1*/*.jsonl"])] == [f"{inside}/1999/a.jsonl"]
    assert [file.name for file in input_files([f"{inside}/*.jsonl"])] == [f"{inside}/b.jsonl"]


def test_names_that_are_not_utf_8(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    folder.mkdir()
    rows = [{"text": "near", "n": 1}]
    (folder / "a.csv").write_text("text,n\nnear,1\n")
    write_lines(folder / "b.jsonl", rows)
    (folder / "c.jsonl.gz").write_bytes(gzip.compress((folder / "b.jsonl").read_bytes()))
    zstd = pyarrow.OSFile(os.fsencode(folder / "d.jsonl.zst"), "wb")
    with zstd, pyarrow.CompressedOutputStream(zstd, "zstd") as stream:
        stream.write((folder / "b.jsonl").read_bytes())
    with (folder / "e.parquet").open("wb") as file:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    assert texts(folder) == ["near"] * 5
    assert count_documents(folder) == 5
    lines, zipped, zst, table = input_files([folder])
    assert [opened_place(file).read() for file in (lines, zipped, zst)] == [b'{"text": "near", "n": 1}\n'] * 3
    assert random_access(table).size() == (folder / "e.parquet").stat().st_size


def test_empty_texts_are_kept_and_counted(tmp_path: Path) -> None:
    report = ReadReport()
    path = write_lines(tmp_path / "a.jsonl", [{"text": ""}, {"text": " \n\t"}, {"text": "x"}])
    assert texts(path, report=report) == ["", " \n\t", "x"]
    assert (report.documents, report.empty) == (3, 2)


def test_source_that_does_not_exist_is_refused_before_reading(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(DataError, match=r"missing\.txt\" does not exist"):
        read_documents([tmp_path / "a.txt", tmp_path / "missing.txt"])


def test_folder_without_documents(tmp_path: Path) -> None:
    (tmp_path / "picture.png").write_bytes(b"x")
    with pytest.raises(DataError, match="has no documents"):
        read_documents(tmp_path)


def test_no_source_and_no_document(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no source"):
        read_documents([])
    (tmp_path / "a.jsonl").write_text("\n")
    with pytest.raises(DataError, match="no documents in"):
        texts(tmp_path / "a.jsonl")


@pytest.mark.parametrize("name", ["text_field", "pair_field", "id_field"])
def test_a_field_is_a_name(tmp_path: Path, name: str) -> None:
    path = write_lines(tmp_path / "a.jsonl", [{"text": "near"}])
    with pytest.raises(ConfigurationError, match=f"{name} is {{'a': 1}}; it is the name of a field"):
        read_documents(path, **{name: {"a": 1}})


def test_what_is_read_of_a_text_is_bounded_and_the_rest_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "near ü " * 30_000
    (tmp_path / "a.txt").write_text(long)
    write_lines(tmp_path / "a.jsonl", [{"id": 7, "text": long, "label": "x"}, {"text": "far"}])
    (tmp_path / "a.json").write_text(json.dumps([{"text": long}, "far"], ensure_ascii=False))
    (tmp_path / "a.csv").write_text(f"text\n{long}\nfar\n")
    for name in ("a.txt", "a.jsonl", "a.json", "a.csv"):
        report = ReadReport()
        first, *others = read_documents(tmp_path / name, max_characters=1000, report=report)
        assert first.text == long[: len(first.text)]
        assert 200 <= len(first.text) <= 1000
        assert report.unread_characters == first.unread >= len(long) - len(first.text)
        assert [(document.text, document.unread) for document in others] in ([], [("far", 0)])
        assert first.fields in ({}, {"id": 7, "label": "x"})
    feed_stdin(monkeypatch, long.encode() + b"\r\nfar\r\n")
    assert [(document.text, document.unread) for document in read_documents("-", max_characters=1000)] == [
        (long[:1000], len(long) - 998), ("far", 0),
    ]  # fmt: skip
    with pytest.raises(ConfigurationError, match="max_characters is 0"):
        read_documents("-", max_characters=0)


def test_a_pipe_is_read_without_being_looked_at(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=("near",))
    writer.start()
    assert texts(tmp_path / "pipe") == ["near"]
    writer.join()


def test_unknown_stdin_format() -> None:
    with pytest.raises(ConfigurationError, match="stdin_format"):
        read_documents("-", stdin_format="csv")


def test_text_of_strings_documents_and_rows() -> None:
    for given in ("near", Document("1", "near", {}), {"text": "near", "label": 3}, UserDict(text="near")):
        assert text_of(given) == "near"
    for given, message in (
        ({"content": "near", "n": 3}, r'no field "text" .* are: content \(str\), n \(int\). Name .*rename_column'),
        ({"text": None}, r"are: text \(NoneType\)"),
        ({}, "are: none"),
        (["near"], 'list is no text: give strings, Documents, or rows with the field "text"'),
    ):
        with pytest.raises(DataError, match=message):
            text_of(given)
