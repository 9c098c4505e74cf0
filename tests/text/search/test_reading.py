"""Files as people have them: their text, titles, headings and places, and why one is passed over."""

import json
import zipfile
from pathlib import Path

import pytest
from office_files import PICTURE, STRICT, docx, lines, notes, paragraph, pdf, zipped

from longform.errors import DataError
from longform_text.data import formats
from longform_text.data.files import ENCODING
from longform_text.data.formats import Source
from longform_text.search.reading import Places, option_of, read_file

PAGE = """<!doctype html><html><head><title>Sheep &amp;
 goats</title><style>p { color: red }</style><script>var wolf = "<b>"</script></head>
<body><h1>Sheep</h1><p>A <b>shep</b>herd   keeps<br>sheep &lt;well&gt;.</p><!-- a comment -->
<table><tr><td>one</td><td><h2>two</h2></td></tr><tr><td>3-18 weeks</td></tr></table><pre>x = 1
  y = 2</pre><svg><text>drawn</text></svg><noscript>none</noscript></body></html>"""
BOX = f"<w:txbxContent>{paragraph('The ferry leaves at nine.')}</w:txbxContent>"
BOTH = (
    '<mc:AlternateContent><mc:Choice Requires="wps"><w:drawing><wps:wsp><wps:txbx>'
    f"{BOX}</wps:txbx></wps:wsp></w:drawing></mc:Choice><mc:Fallback><w:pict><v:textbox>{BOX}</v:textbox></w:pict>"
    "</mc:Fallback></mc:AlternateContent>"
)
CELLS = "".join(f"<w:tc>{paragraph(text)}</w:tc>" for text in ("oats", "nine"))
HEADINGS = (
    '<w:styles NS><w:style w:type="paragraph" w:styleId="Heading1"><w:name w:val="heading 1"/></w:style>'
    '<w:style w:type="paragraph" w:styleId="berschrift2"><w:name w:val="heading 2"/></w:style></w:styles>'
)


def read(path: Path, text_field: str = "text") -> list[Source]:
    return list(read_file(path, path.name, text_field))


def text_of(folder: Path, name: str, content: bytes) -> str:
    """The text of the one document of a file."""
    (folder / name).write_bytes(content)
    (found,) = read(folder / name)
    return found.text


def test_a_page_without_its_tags(tmp_path: Path) -> None:
    (path := tmp_path / "a.html").write_text(PAGE)
    (found,) = read(path)
    assert found.title == "Sheep & goats"
    words = "Sheep A shepherd keeps sheep <well>. one two 3-18 weeks x = 1 y = 2"
    assert " ".join(found.text.split()) == words
    assert "x = 1\n  y = 2" in found.text
    assert Places.of(found).at(found.text.index("weeks")) == (0, "Sheep › two")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ('<meta charset="iso-8859-1"><p>“caf\xe9”'.encode("cp1252"), "“café”"),
        ("<p>Die Mühle".encode(), "Die Mühle"),
        (b"<p>caf\xe9", "café"),
        (b'<meta charset="no-such"><p>plain', "plain"),
        ('<meta charset="gb2312"><p>朱镕基'.encode("gbk"), "朱镕基"),
        ('<meta charset="shift_jis"><p>髙橋①'.encode("cp932"), "髙橋①"),
        ('<meta charset="x-euc-jp"><p>水車小屋'.encode("euc_jp"), "水車小屋"),
        ('<meta charset="big5"><p>磨坊賣給'.encode("big5"), "磨坊賣給"),
        ('<meta charset="ks_c_5601-1987"><p>똠방각하'.encode("cp949"), "똠방각하"),
        ('<meta charset="koi8-u"><p>Мельница'.encode("koi8_u"), "Мельница"),
        ('<?xml version="1.0" encoding="windows-1251"?><p>Мельница'.encode("cp1251"), "Мельница"),
        (b'<?xml version="1.0" encoding="no-such"?><p>plain', "plain"),
        ("<p>Die Mühle".encode("utf-16"), "Die Mühle"),
        (b"\xef\xbb\xbf" + '<meta charset="latin-1"><p>Mühle'.encode(), "Mühle"),
        ('<meta charset="utf-16"><p>Mühle'.encode(), "Mühle"),
        (b"<!-- " + b"x" * 3000 + b" -->" + '<meta charset="windows-1251"><p>Мельница'.encode("cp1251"), "Мельница"),
        ('<meta charset="utf-8"><p>Müllerhaus'.encode() + b"<p>\xff", "Müllerhaus\n\n\ufffd"),
        (b"<p>3&#150;18", "3–18"),
        (b"<p>a <![unknown[ b ]]> c", "a c"),
        (b"<b>" * 3000 + b"deep", "deep"),
        (b"<table>Stray<tr><td>one<td>two", "Stray\n\none two"),
    ],
)  # fmt: skip
def test_pages_are_read_as_browsers_do(tmp_path: Path, content: bytes, text: str) -> None:
    assert text_of(tmp_path, "a.htm", content) == text


@pytest.mark.parametrize(
    ("content", "has", "lacks"),
    [
        (docx(paragraph("The mill.")), "The mill.", ""),
        (docx(f"<w:p><w:r><w:t>Before.</w:t></w:r><w:r>{BOTH}</w:r></w:p>"), "The ferry leaves at nine.", ""),
        (docx(paragraph("The harbour."), part="document2.xml"), "The harbour.", ""),
        (docx(paragraph("The lighthouse."), space=STRICT), "The lighthouse.", ""),
        (docx("<w:p><w:r><w:t>3</w:t><w:noBreakHyphen/><w:t>18</w:t></w:r></w:p>"), "3\u201118", "318"),
        (docx("<w:p><w:r><w:footnoteReference w:id='1'/></w:r></w:p>", footnotes=notes("footnote", "Oats.")),
         "Oats.", "LINE"),
        (docx("<w:p><w:r><w:endnoteReference w:id='1'/></w:r></w:p>", endnotes=notes("endnote", "Rye.")),
         "Rye.", "LINE"),
        (docx('<w:sectPr><w:headerReference w:type="default" r:id="rheader1"/></w:sectPr>',
              header1=f"<w:hdr NS>{paragraph('Mill papers')}</w:hdr>"), "Mill papers", ""),
        (docx('<w:sectPr><w:footerReference w:type="default" r:id="rfooter1"/></w:sectPr>',
              footer1=f"<w:ftr NS>{paragraph('The foot')}</w:ftr>"), "The foot", ""),
        (docx(f"<w:tbl><w:tr>{CELLS}</w:tr></w:tbl>"), "oats nine", "oatsnine"),
        (docx(f"<w:tbl><w:tr><w:tc><w:tbl><w:tr>{CELLS}</w:tr></w:tbl></w:tc></w:tr></w:tbl>"),
         "oats nine", "oatsnine"),
        (docx('<w:p><w:del w:id="1"><w:r><w:delText>gone</w:delText></w:r></w:del><w:ins w:id="2"><w:r><w:t>come</w:t>'
              "</w:r></w:ins></w:p>"), "come", "gone"),
        (docx(f"<w:sdt><w:sdtContent>{paragraph('chosen')}</w:sdtContent></w:sdt>"), "chosen", ""),
        (docx("<w:p><w:r><w:t>mi</w:t></w:r><w:bookmarkStart w:id='1' w:name='x'/><w:r><w:t>ll</w:t></w:r></w:p>"),
         "mill", ""),
        (docx("<w:p><m:oMath><m:r><m:t>E=mc</m:t></m:r></m:oMath></w:p>"), "E=mc", ""),
        (docx(paragraph("a &lt;b&gt; &amp; c")), "a <b> & c", ""),
    ],
)  # fmt: skip
def test_what_word_shows_is_read_once(tmp_path: Path, content: bytes, has: str, lacks: str) -> None:
    text = text_of(tmp_path, "a.docx", content)
    assert text.count(has) == 1
    assert not lacks or lacks not in text


def test_a_docx_whose_types_are_missing_is_mended(tmp_path: Path) -> None:
    parts = {
        "word/document.xml": zipfile.Path(
            _saved(tmp_path, docx(paragraph("The mill."))), "word/document.xml"
        ).read_text()
    }
    assert text_of(tmp_path, "bare.docx", zipped(parts)) == "The mill."


def _saved(folder: Path, content: bytes) -> str:
    (folder / "saved.docx").write_bytes(content)
    return str(folder / "saved.docx")


def test_titles_and_headings_of_docx(tmp_path: Path) -> None:
    body = paragraph("On mills", "Heading1") + paragraph("On oats", "berschrift2") + paragraph("They grow.")
    (path := tmp_path / "a.docx").write_bytes(docx(body, styles=HEADINGS, title="Minutes"))
    (found,) = read(path)
    assert found.title == "Minutes"
    assert Places.of(found).at(found.text.index("grow")) == (0, "On mills › On oats")


def test_slides_and_sheets(tmp_path: Path) -> None:
    from office_oxide import PptxWriter, XlsxWriter

    slides = PptxWriter()
    slides.set_slide_title(slides.add_slide(), "On mills")
    slides.add_slide_text(slides.add_slide(), "They need water.")
    (path := tmp_path / "a.pptx").write_bytes(slides.to_bytes())
    (found,) = read(path)
    number, above = Places.of(found).at(found.text.index("water"))
    assert (found.unit, number, above) == ("slide", 2, "On mills")
    sheets = XlsxWriter()
    sheet = sheets.add_sheet("Prices")
    sheets.set_cell(sheet, 0, 0, "oats")
    sheets.set_cell(sheet, 0, 1, 3.5)
    (path := tmp_path / "a.xlsx").write_bytes(sheets.to_bytes())
    (found,) = read(path)
    assert "oats 3.5" in found.text
    assert Places.of(found).at(found.text.index("3.5"))[1] == "Prices"


LIGATURES = b"<< /Type /Encoding /BaseEncoding /WinAnsiEncoding /Differences [1 /fi /fl /ffi] >>"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (pdf(b"BT /F1 12 Tf 72 700 Td (Mrs. Gri\003n is \001ne) Tj ET", encoding=LIGATURES), "Mrs. Griffin is fine"),
        (pdf(lines(b"a servi-", b"tude")), "a servi-\ntude"),
        (pdf(lines(b"3\22618 weeks, caf\351")), "3–18 weeks, café"),
        (pdf(b"BT /F1 12 Tf 72 700 Td [(The) -300 (m) 20 (ill)] TJ ET"), "The mill"),
        (pdf(b"BT /F1 12 Tf 0 1 -1 0 300 100 Tm (The mill.) Tj ET"), "The mill."),
        (b"junk\n" + pdf(lines(b"The mill.")), "The mill."),
    ],
)
def test_what_a_viewer_shows_of_a_pdf(tmp_path: Path, content: bytes, text: str) -> None:
    assert text_of(tmp_path, "a.pdf", content).strip() == text


def test_pages_outlines_and_pictures_of_pdf(tmp_path: Path) -> None:
    outline = (
        b"<< /First 11 0 R /Last 11 0 R >>",
        b"<< /Title (Two) /Parent 10 0 R /Dest [5 0 R /Fit] >>",
    )
    content = pdf(
        lines(b"one"), lines(b"before", b"Two", b"after"), catalog=b"/Outlines 10 0 R", more=(b"<< >>", *outline)
    )
    (path := tmp_path / "a.pdf").write_bytes(content)
    (found,) = read(path)
    places = Places.of(found)
    assert [places.at(found.text.index(word)) for word in ("one", "before", "Two", "after")] == [
        (1, ""), (2, ""), (2, "Two"), (2, "Two")
    ]  # fmt: skip
    path.write_bytes(pdf(lines(b"one"), PICTURE, b""))
    assert [each.note for each in read(path)] == ["1 of 3 pages are pictures without text (scanned): 2"]
    path.write_bytes(pdf(PICTURE, PICTURE))
    with pytest.raises(DataError, match=r"2 of 2 pages are pictures without text \(scanned\): 1, 2"):
        read(path)


def test_lines_and_headings_of_text(tmp_path: Path) -> None:
    (path := tmp_path / "a.md").write_text(
        "Before.\n\n```sh\n# no heading\n```\n\nThe *mill*\n=====\n\n## Its price\n\nIt is sold.\n"
    )
    (found,) = read(path)
    assert found.title == "The *mill*"
    assert Places.of(found).at(found.text.index("sold")) == (12, "The *mill* › Its price")
    path.write_text('---\ntitle: "Notes on mills"\n---\n\n# A heading\n')
    assert [each.title for each in read(path)] == ["Notes on mills"]
    (path := tmp_path / "the_mill.txt").write_text("# no heading\n")
    assert [(each.title, each.headings) for each in read(path)] == [("the mill", ())]


def test_mails_and_notebooks(tmp_path: Path) -> None:
    mail = b"Subject: =?utf-8?q?The_M=C3=BChle?=\nContent-Type: text/html; charset=utf-8\n\n<p>It is <b>sold</b>."
    (path := tmp_path / "a.eml").write_bytes(mail)
    assert [(each.title, each.text) for each in read(path)] == [("The Mühle", "It is sold.")]
    cells = [
        {"cell_type": "markdown", "source": ["# Mills\n", "They turn."]},
        {"cell_type": "code", "source": "# no\nx = 1"},
    ]
    (path := tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells}))
    (found,) = read(path)
    assert (found.title, [each.text for each in found.headings]) == ("Mills", ["Mills"])
    assert "x = 1" in found.text


@pytest.mark.parametrize(
    ("encoding", "named"),
    [("utf-8", None), ("utf-8-sig", None), ("utf-16", None), ("utf-16-le", None), ("utf-16-be", None), ("utf-32", None),
     ("utf-8", "cp1252"), ("utf-16", "cp1252"), ("cp1252", "cp1252")],
)  # fmt: skip
def test_text_is_in_what_it_shows_or_in_what_is_named(tmp_path: Path, encoding: str, named: str | None) -> None:
    before = ENCODING.set(named)
    try:
        assert text_of(tmp_path, "a.txt", "The wind, Mühle\n".encode(encoding)) == "The wind, Mühle\n"
    finally:
        ENCODING.reset(before)


def test_records_have_ids_of_their_own_and_titles(tmp_path: Path) -> None:
    (path := tmp_path / "a.csv").write_text(
        "id,title,body\n7,Moon,It is round.\n,Mars,It is red.\n8,Void,\n7,Sun,It is hot.\n"
    )
    assert [(each.id, each.title, each.text) for each in read(path, "body")] == [
        ("a.csv:7", "Moon", "It is round."), ("a.csv:3", "Mars", "It is red."), ("a.csv:7 (2)", "Sun", "It is hot.")
    ]  # fmt: skip


PACKAGE = """<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/">
    <metadata><dc:title> On
    mills</dc:title></metadata>
    <manifest><item id="b" href="text/two%20.xhtml"/><item id="a" href="one.xhtml"/></manifest>
    <spine><itemref idref="a"/><itemref idref="b"/></spine></package>"""
EPUB = {
    "META-INF/container.xml": '<container><rootfiles><rootfile full-path="in/book.opf"/></rootfiles></container>',
    "in/book.opf": PACKAGE,
    "in/one.xhtml": "<html><head><title/></head><body><h1>Water</h1><p>It <a id='x'/>runs.</p></body></html>",
    "in/text/two .xhtml": "<html><body><h1>Wind</h1><p>It&nbsp;blows <br>hard.</p></body></html>",
}


def test_chapters_of_epub(tmp_path: Path) -> None:
    (path := tmp_path / "a.epub").write_bytes(zipped(EPUB))
    (found,) = read(path)
    assert (found.title, found.text.split()) == ("On mills", ["Water", "It", "runs.", "Wind", "It", "blows", "hard."])
    assert (found.unit, Places.of(found).at(found.text.index("hard"))) == ("chapter", (2, "Wind"))


ODT = """<office:document-content xmlns:office="o" xmlns:text="t" xmlns:table="u"><office:automatic-styles>
    <text:p>style</text:p></office:automatic-styles><office:body><office:text><text:tracked-changes><text:p>gone</text:p>
    </text:tracked-changes><text:h text:outline-level="2">Water</text:h><text:p>It<text:s/>runs<text:note>
    <text:note-citation>1</text:note-citation><text:note-body><text:p>Oats.</text:p></text:note-body></text:note></text:p>
    <table:table><table:table-column/><table:table-row><table:table-cell><text:p>rye</text:p></table:table-cell>
    <table:table-cell><text:p>nine</text:p></table:table-cell></table:table-row></table:table></office:text></office:body>
    </office:document-content>"""


def test_headings_notes_and_tables_of_odt(tmp_path: Path) -> None:
    (path := tmp_path / "a.odt").write_bytes(zipped({"content.xml": ODT}))
    (found,) = read(path)
    assert found.text.split() == ["Water", "It", "runs", "1", "Oats.", "rye", "nine"]
    assert "rye nine" in found.text
    assert Places.of(found).at(found.text.index("Oats"))[1] == "Water"


def test_an_archive_that_grows_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "LARGEST_ARCHIVE", 100)
    (path := tmp_path / "a.odt").write_bytes(zipped({"content.xml": ODT}))
    with pytest.raises(DataError, match="it unpacks to over 100 bytes"):
        read(path)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.epub", zipped(EPUB)[:-30], "not a readable epub file"),
        ("a.epub", zipped(EPUB | {"META-INF/container.xml": "<container/>"}), "not a readable epub file"),
        ("a.epub", zipped(EPUB | {"in/book.opf": "<package>"}), "not a readable epub file"),
        ("a.odt", zipped({"content.xml": "<text/>"}), "not a readable odt file"),
        ("a.odt", zipped({"x": ""}), "not a readable odt file"),
        ("a.pdf", b"%PDF-1.4 no more", "not a readable pdf file"),
        ("a.pdf", b"", "not a readable pdf file"),
        ("a.docx", b"PK no zip", "not a readable docx file"),
        ("a.docx", docx(paragraph("cut"))[:-30], "not a readable docx file"),
        ("a.docx", zipped({"word/document.xml": "<w:document"}), "not a readable docx file"),
        ("a.pptx", zipped({"x": ""}), "not a readable pptx file"),
        ("a.ipynb", b"{}", "not a readable ipynb file"),
        ("a.eml", b"Content-Type: image/png\n\nx", "a mail without text"),
        ("a.jsonl", b'{"body": "x"}\n', 'no field "text"; the fields there are: body'),
        ("a.txt", b"caf\xe9", "is not UTF-8: name the encoding of such files, as in --encoding windows-1252"),
        (
            "a.txt",
            b"\n\xcc\xe5\xeb\xfc\xed\xe8\xf6\xe0 \xef\xf0\xee\xe4\xe0\xed\xe0",
            "line 2: .*--encoding windows-1251",
        ),
        ("a.txt", b" \n ", "no text in it"),
        ("a.html", b"<p> </p>", "no text in it"),
        ("a.json", b'{"text": "x"}', "is no JSON array"),
    ],
)
def test_why_a_file_cannot_be_read(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    (path := tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=reason):
        read(path)


def test_a_file_that_is_too_large_to_be_read_at_once_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longform_text.search.reading.LARGEST", 100)
    (path := tmp_path / "a.txt").write_text("x" * 101)
    with pytest.raises(DataError, match="over 100 bytes"):
        read(path)


def test_a_docx_that_grows_is_refused(tmp_path: Path) -> None:
    (path := tmp_path / "a.docx").write_bytes(docx(f"<w:p><w:r><w:t>{'a' * 2**29}</w:t></w:r></w:p>"))
    with pytest.raises(DataError, match="decompression limit"):
        read(path)


def test_kinds_by_name(tmp_path: Path) -> None:
    read_kinds = ["a.HTML", "a.pdf", "a.docx", "a.md", "a.jsonl.gz", "a.parquet", "a.pptx", "a.xlsx", "a.eml"]
    options = {name: option_of(tmp_path / name, "text") for name in [*read_kinds, "a.png", "a.py", "a"]}
    assert [name for name, option in options.items() if option is not None] == read_kinds
    assert set(formats.READERS) >= {".html", ".pdf", ".docx", ".ipynb"}
