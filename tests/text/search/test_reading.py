"""Files as people have them: their text, titles and places, and why one is passed over."""

import zipfile
from pathlib import Path

import pytest

from longform.errors import DataError, LongformError
from longform_lab.experiments.folder_search import write_pdf
from longform_text.search.reading import Source, is_read, read_file

PAGE = """<!doctype html><html><head><title>Sheep &amp;
 goats</title><style>p { color: red }</style><script>var wolf = "<b>"</script></head>
<body><h1>Sheep</h1><p>A <b>shep</b>herd   keeps<br>sheep &lt;well&gt;.</p><!-- a comment -->
<table><tr><td>one</td><td>two</td></tr></table><pre>x = 1
y = 2</pre></body></html>"""
W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def read(path: Path, text_field: str = "text") -> list[Source]:
    return list(read_file(path, path.name, text_field))


def write_docx(path: Path, body: str) -> None:
    core = (
        '<cp:coreProperties xmlns:cp="http://schemas.openxmlformats.org/package/2006/metadata/core-properties" '
        'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>Minutes</dc:title></cp:coreProperties>'
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("word/document.xml", f'<w:document xmlns:w="{W}"><w:body>{body}</w:body></w:document>')
        archive.writestr("docProps/core.xml", core)


def test_a_page_without_its_tags(tmp_path: Path) -> None:
    (path := tmp_path / "a.html").write_text(PAGE)
    (found,) = read(path)
    assert found.title == "Sheep & goats"
    assert found.text == "Sheep\n\nA shepherd keeps\nsheep <well>.\n\none two\n\nx = 1\ny = 2"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ('<meta charset="iso-8859-1"><p>caf\xe9'.encode("latin-1"), "café"),
        ("<p>café".encode(), "café"),
        (b"<p>caf\xe9", "café"),
        (b'<meta charset="no-such"><p>plain', "plain"),
    ],
)
def test_the_encoding_of_a_page(tmp_path: Path, content: bytes, text: str) -> None:
    (path := tmp_path / "a.htm").write_bytes(content)
    assert [each.text for each in read(path)] == [text]


def test_paragraphs_of_docx(tmp_path: Path) -> None:
    body = "<w:p><w:r><w:t>The </w:t></w:r><w:r><w:t>mill</w:t></w:r></w:p><w:p><w:r><w:t>is</w:t><w:tab/></w:r></w:p>"
    write_docx(path := tmp_path / "a.docx", body)
    (found,) = read(path)
    assert (found.title, found.text) == ("Minutes", "The mill\nis\t")


def test_pages_of_pdf(tmp_path: Path) -> None:
    write_pdf(path := tmp_path / "a.pdf", "one (1)\ntwo\nthree\nfour", title="Numbers", lines=2)
    (found,) = read(path)
    assert found.title == "Numbers"
    assert [found.place(found.text.index(word)) for word in ("one (1)", "two", "three", "four")] == [
        "page 1", "page 1", "page 2", "page 2"
    ]  # fmt: skip


def test_lines_and_headings_of_text(tmp_path: Path) -> None:
    (path := tmp_path / "a.md").write_text("Before.\n\n## The *mill*\n\nIt is sold.\n")
    (found,) = read(path)
    assert (found.title, found.place(found.text.index("sold"))) == ("The *mill*", "line 5")
    (path := tmp_path / "mill.txt").write_text("# no heading\n")
    assert [each.title for each in read(path)] == ["mill"]


def test_records_have_ids_and_titles(tmp_path: Path) -> None:
    (path := tmp_path / "a.csv").write_text("id,title,body\n7,Moon,It is round.\n,Mars,It is red.\n8,Void,\n")
    found = read(path, "body")
    assert [(each.id, each.title, each.text) for each in found] == [
        ("a.csv:7", "Moon", "It is round."), ("a.csv:3", "Mars", "It is red.")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.pdf", b"%PDF-1.4 no more", "not a readable pdf file"),
        ("a.docx", b"PK no zip", "not a readable docx file"),
        ("a.jsonl", b'{"body": "x"}\n', 'no field "text"; the fields there are: body'),
        ("a.txt", b"caf\xe9", "is not UTF-8: name the file's encoding"),
        ("a.txt", b" \n ", "no text in it"),
        ("a.html", b"<p> </p>", "no text in it"),
        ("a.json", b'{"text": "x"}', "is no JSON array"),
    ],
)
def test_why_a_file_cannot_be_read(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    (path := tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as error:
        read(path)
    assert reason in str(error.value)


def test_a_pdf_of_pictures(tmp_path: Path) -> None:
    write_pdf(path := tmp_path / "a.pdf", " ", title="Scan")
    with pytest.raises(DataError, match="its pages are pictures"):
        read(path)


def test_a_docx_that_grows_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longform_text.search.reading.LARGEST", 100)
    write_docx(path := tmp_path / "a.docx", "<w:p/>" * 100)
    with pytest.raises(LongformError, match="over 100 bytes"):
        read(path)


def test_kinds_by_name(tmp_path: Path) -> None:
    read_kinds = ["a.HTML", "a.pdf", "a.docx", "a.md", "a.jsonl.gz", "a.parquet"]
    assert [name for name in [*read_kinds, "a.png", "a.py", "a"] if is_read(tmp_path / name)] == read_kinds
