"""The page of a report: every kind of block, nothing unescaped, nothing from outside the file."""

import re

import pytest
from markupsafe import escape

from longform.runs.page import Heading, Table, facts_table, markdown
from longform_lab.page import Bullets, Picture, write_page

EVIL = "\"><script>alert('1')</script>&"
BLOCKS = [
    EVIL, Heading(EVIL, 3), Bullets([EVIL]), Table([EVIL], [[EVIL]]),
    Picture(b"\x89PNG", EVIL), facts_table({EVIL: EVIL}),
]  # fmt: skip


@pytest.fixture
def page(tmp_path):
    write_page(tmp_path / "report.html", EVIL, BLOCKS, foot=EVIL)
    return (tmp_path / "report.html").read_text()


def test_nothing_that_is_shown_becomes_markup(page):
    assert "<script" not in page
    assert page.count("&lt;script&gt;") == 2 + 1 + 1 + 1 + 2 + 1 + 2 + 1  # title and heading, ..., foot
    assert re.findall(r'alt="([^"]*)"', page) == [escape(EVIL)]


def test_a_page_stands_alone(page):
    assert re.findall(r'(?:src|href)="(?!data:image/png;base64,)', page) == []
    assert "url(" not in page
    assert "prefers-color-scheme:dark" in page


def test_words_are_on_the_left_and_numbers_on_the_right(tmp_path):
    write_page(tmp_path / "report.html", "t", [Table(["name", "of", "n"], [["a", "b", "1"]], words=2)])
    cells = re.findall(r"<t([hd])( class=\"word\")?>(\w+)<", (tmp_path / "report.html").read_text())
    assert [(kind, bool(word), text) for kind, word, text in cells] == [
        ("h", True, "name"), ("h", True, "of"), ("h", False, "n"),
        ("d", True, "a"), ("d", True, "b"), ("d", False, "1"),
    ]  # fmt: skip


def test_facts_have_no_heads(tmp_path):
    write_page(tmp_path / "report.html", "t", [facts_table({"tokens": 12345})])
    page = (tmp_path / "report.html").read_text()
    assert "<th" not in page
    assert ">12,345<" in page


def test_markdown_has_headings_paragraphs_and_tables():
    blocks = [Heading("Title"), "Said.", Table(["a|b", "n"], [["c", "1"]]), Bullets(["left out"])]
    assert markdown(blocks) == "## Title\n\nSaid.\n\n| a\\|b | n |\n| --- | --: |\n| c | 1 |\n"
