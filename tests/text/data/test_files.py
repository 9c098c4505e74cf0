"""Kinds of file: each is read, compressed or not, and what is none of them is refused by name."""

import gzip
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longform.errors import DataError
from longform_text.data.files import KINDS, PARQUET
from longform_text.data.records import read_records
from longform_text.data.text import Document, ReadReport, look, read_documents
from longform_text.training.labels import examples_of

ROWS = [{"text": "near", "label": "a"}, {"text": 'far "and"\tgood, ü', "label": "b"}]
LINES = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)
CONTENTS = {
    ".jsonl": LINES,
    ".ndjson": LINES,
    ".json": json.dumps(ROWS, indent=1).encode(),
    ".csv": 'label,text\r\na,near\r\nb,"far ""and""\tgood, ü"\r\n'.encode(),
    ".tsv": 'label\ttext\na\tnear\nb\t"far ""and""\tgood, ü"\n'.encode(),
}


def zst(content: bytes) -> bytes:
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


def gz(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)


COMPRESSIONS = {"": bytes, ".gz": gz, ".zst": zst}


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("kind", CONTENTS)
def test_records_of_every_kind_are_read_alike_by_all_readers(tmp_path: Path, kind: str, compression: str) -> None:
    path = write(tmp_path / f"A{kind.upper()}{compression}", COMPRESSIONS[compression](CONTENTS[kind]))
    assert [record.values for record in read_records(path)] == ROWS
    for source in (path, tmp_path):
        found = list(read_documents(source, max_characters=100))
        assert [document.text for document in found] == [row["text"] for row in ROWS]
        assert [document.fields for document in found] == [{"label": "a"}, {"label": "b"}]
    examples = examples_of(path)
    assert (examples.texts, examples.labels) == ([row["text"] for row in ROWS], ["a", "b"])


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.text", "a"])
def test_texts_are_one_document(tmp_path: Path, name: str, compression: str) -> None:
    content = b"\xef\xbb\xbfone\r\ntwo \xf0\x9f\x98\x80"
    path = write(tmp_path / f"{name}{compression}", COMPRESSIONS[compression](content))
    assert list(read_documents(path)) == [Document(str(path), "one\r\ntwo 😀", {})]


def test_several_parts_of_a_compressed_file_are_one(tmp_path: Path) -> None:
    for suffix in (".gz", ".zst"):
        parts = [COMPRESSIONS[suffix](part) for part in (b"one ", b"two")]
        (document,) = read_documents(write(tmp_path / f"a.txt{suffix}", b"".join(parts)))
        assert document.text == "one two"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.png", b"\x89PNG\r\n\x1a\n\x00", r'a\.png" is binary'),
        ("a.pdf", b"%PDF-1.7\n%\xe2\xe3\xcf\xd3", "is binary"),
        ("a.safetensors", b"\x08\x00\x00", "is binary"),
        ("binary", b"text\x00", "is binary"),
        ("latin", "Grüße".encode("latin-1"), "is binary, not text in UTF-8"),
        ("a.xml", b"<a>text</a>", r'has the suffix "\.xml"; what is read is \.txt, .*\.csv.*\.gz.*\.parquet'),
        ("a.xml.gz", gz(b"<a>text</a>"), r'has the suffix "\.xml"'),
        ("a.parquet.gz", gz(b"PAR1\x00"), "is binary"),
        ("a.json", b'{"text": "near"}', "is no JSON array"),
        ("a.json", b"", "is no JSON array"),
        ("a.txt.gz", b"not gzip", r"a\.txt\.gz\" cannot be decompressed"),
        ("a.txt.gz", gz(b"near " * 1000)[:30], "cannot be decompressed"),
        ("a.txt.gz", gz(b"near " * 1000)[:-9] + b"123456789", "cannot be decompressed"),
        ("a.txt.zst", b"not zst", "cannot be decompressed"),
        ("a.jsonl.zst", zst(LINES * 9)[:-5], "cannot be decompressed"),
    ],
    ids=map(str, range(15)),
)
def test_files_that_are_not_read_are_refused_by_name(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(read_documents(write(tmp_path / name, content)))


def test_a_folder_reads_what_it_can_and_counts_the_rest(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", b"near")
    write(tmp_path / "b.csv", b"text\nfar\n")
    for name in ("picture.png", "settings.json", "LICENSE", "a.parquet.gz"):
        write(tmp_path / name, b"{}")
    report = ReadReport()
    assert [document.text for document in read_documents(tmp_path, report=report)] == ["near", "far"]
    names = [str(tmp_path / name) for name in ("LICENSE", "a.parquet.gz", "picture.png", "settings.json")]
    assert report == ReadReport(documents=2, passed_over_files=4, passed_over=names)


BAD = {  # none of them can be read, the last one not to its end
    "a.txt": ("Grüße".encode("latin-1"), "is not UTF-8"),
    "b.csv": (b"body\nnear\n", 'no field "text"'),
    "c.json.gz": (b"not gzip", "cannot be decompressed"),
    "d.parquet": (b"PAR1", "not a readable parquet file"),
    "e.jsonl": (LINES + b"{", "line 3: not valid JSON"),
}


def test_a_bad_file_of_a_folder_is_passed_over_and_named(tmp_path: Path) -> None:
    for name, (content, _) in BAD.items():
        write(tmp_path / name, content)
    write(tmp_path / "good.txt", b"good")
    report = ReadReport()
    found = [document.text for document in read_documents(tmp_path, report=report, pass_over=True)]
    assert found == [*(row["text"] for row in ROWS), "good"]
    assert (report.documents, report.passed_over_files, len(report.passed_over)) == (3, len(BAD), len(BAD))
    for (name, (_, reason)), said in zip(BAD.items(), report.passed_over, strict=True):
        assert said.startswith(f"{tmp_path / name}: ")
        assert reason in said
    look([tmp_path], "text")
    for name, (_, reason) in BAD.items():
        with pytest.raises(DataError, match=reason):  # named itself
            list(read_documents(tmp_path / name, pass_over=True))
    with pytest.raises(DataError, match="is not UTF-8"):  # nobody takes the names
        list(read_documents(tmp_path))


def test_a_folder_of_bad_files_is_refused_with_a_reason(tmp_path: Path) -> None:
    for name in ("a.txt", "b.csv", "c.json.gz"):
        write(tmp_path / name, BAD[name][0])
    with pytest.raises(DataError, match=r"no documents in .*; .*a\.txt.* is not UTF-8"):
        list(read_documents(tmp_path, pass_over=True))
    with pytest.raises(DataError, match="is not UTF-8"):
        look([tmp_path], "text")


def test_a_text_file_holds_no_records(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is one text"):
        read_records(write(tmp_path / "a.txt", b"near"))
    with pytest.raises(DataError, match="is not a file"):
        read_records(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"text,label\nnear\n", r"a\.csv:2: not as many fields"),
        ("a.csv", b'text,label\n"near"x,a\n', r"a\.csv:2: not readable as csv"),
        ("a.csv", b'text,label\n"near,a\n', r"a\.csv:2: not readable as csv"),
        ("a.csv", b"body\nnear\n", 'no field "text"; the fields there are: body'),
        ("a.json", b'[{"text": "near"}, 3]', r"a\.json, element 1: a JSON object or a text is needed, this is int"),
        ("a.json", b'[{"text": "near"} {"text": "far"}]', r"a\.json: not valid JSON \(Expecting ',' delim.* column 19"),
        ("a.json", b'["near",]', "a.json: not valid JSON"),
        ("a.json", b'[,"near"]', "a.json: not valid JSON"),
        ("a.json", b'["near"', "a.json: not valid JSON"),
        ("a.json", b'["near", {"text": tru}]', "a.json: not valid JSON"),
        ("a.json", b'["near"]["far"]', r"not valid JSON \(Extra data at column 9\)"),
        ("a.json", b"[" * 100_000, "a.json: JSON nested too deeply"),
        ("a.json", b"[" + b"1" * 5000 + b"]", "a.json: not valid JSON .*4300 digits"),
        ("a.jsonl", b'{"text": "near", "n": ' + b"1" * 5000 + b"}\n", "line 1: not valid JSON .*4300 digits"),
        ("a.jsonl", b'{"body": "x", "label": 1}', r'a\.jsonl:1: no field "text"; the fields there are: body, label'),
        ("a.NdJson", b"{}", "the fields there are: none"),
        ("a.jsonl", b'{"text": 3}', r'a\.jsonl:1: the field "text" is int'),
        ("a.jsonl", b'{"text": null}', 'the field "text" is NoneType'),
        ("a.jsonl", b'{"text": ["x"]}', 'the field "text" is list'),
        ("a.jsonl", b'["x"]', "line 1: a JSON object is needed, this is list"),
        ("a.jsonl", b'{"text": "x"', "line 1: not valid JSON"),
        ("a.jsonl", b"[" * 100_000, "line 1: JSON nested too deeply"),
        ("a.Parquet", b"not parquet", "not a readable parquet file"),
    ],
    ids=map(str, range(23)),
)
def test_records_that_cannot_be_read(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(read_documents(write(tmp_path / name, content)))


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.csv.gz", "a.parquet", "a.jsonl", "a.json"])
def test_a_name_of_two_columns_is_refused(tmp_path: Path, name: str) -> None:
    path, rows = tmp_path / name, [["text", "label", "label"], ["near", "x", "y"]]
    if name.endswith(".parquet"):
        columns = [pyarrow.array([value]) for value in rows[1]]
        pyarrow.parquet.write_table(pyarrow.Table.from_arrays(columns, names=rows[0]), path)
    elif ".json" in name:
        line = b'{"text": "near", "label": "x", "label": "y"}'
        write(path, b"[" + line + b"]" if name == "a.json" else line)
    else:
        content = "".join(("\t" if name == "a.tsv" else ",").join(row) + "\n" for row in rows).encode()
        write(path, gz(content) if name.endswith(".gz") else content)
    for read in (read_records, read_documents, examples_of):
        with pytest.raises(DataError, match=rf'{name}.* "label" stands there more than once'):
            list(read(path))


def test_columns_without_a_name_are_nobodys(tmp_path: Path) -> None:
    (record,) = read_records(write(tmp_path / "a.csv", b"text,,\nnear,,\n"))
    assert record.values["text"] == "near"


def test_an_array_of_texts(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", b'\xef\xbb\xbf \n["near", "far"]\n')
    assert [(each.id, each.text) for each in read_documents(path)] == [(f"{path}:0", "near"), (f"{path}:1", "far")]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("timestamp", pyarrow.array([0, 2**50], pyarrow.timestamp("s"))),
        ("date", pyarrow.array([0, 2**30], pyarrow.date32())),
        ("utf-8", pyarrow.array([b"a", b"\xff"], pyarrow.binary()).view(pyarrow.string())),
    ],
)
def test_parquet_values_that_python_cannot_have_name_their_column(tmp_path: Path, kind: str, values: Any) -> None:
    table = pyarrow.table({"text": ["near", "far"], "odd": values})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r'a\.parquet, row 1: the column "odd" holds what cannot be read'):
        list(read_documents(tmp_path / "a.parquet"))


CONTENT = st.one_of(
    st.binary(max_size=200),
    st.lists(
        st.sampled_from(['{"text": "', '"}', '["', '"]', ",", "\n", "\t", '"', "\\", "\\u00", "é", "1" * 50, "{}"])
    )
    .map("".join)
    .map(str.encode),
)


@pytest.mark.parametrize("suffix", [name for name, kind in KINDS.items() if kind != PARQUET] + [""])
@given(content=CONTENT, compression=st.sampled_from(["", ".gz", ".zst"]), packed=st.booleans())
def test_any_content_is_read_or_refused(
    tmp_path: Path, suffix: str, content: bytes, compression: str, packed: bool
) -> None:
    path = write(tmp_path / f"a{suffix}{compression}", COMPRESSIONS[compression](content) if packed else content)
    for most in (None, 5):
        with suppress(DataError):
            for document in read_documents(path, max_characters=most):
                document.text.encode()


@given(content=st.binary(max_size=50), at=st.integers(0, 700))
def test_a_damaged_parquet_file_is_read_or_refused(tmp_path: Path, content: bytes, at: int) -> None:
    whole = tmp_path / "whole.parquet"
    if not whole.exists():
        pyarrow.parquet.write_table(pyarrow.table({"text": ["near", "far"], "label": [1, 2]}), whole)
    damaged = whole.read_bytes()
    path = write(tmp_path / "a.parquet", damaged[:at] + content + damaged[at + len(content) :])
    with suppress(DataError):
        list(read_documents(path))
