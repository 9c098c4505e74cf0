"""The page of a report, whose blocks are escaped and need nothing from outside the file; ticks of its pictures."""

import re
from pathlib import Path

import pytest
from markupsafe import escape

from longform.pretrained.model_card import Heading, Table, facts_table, markdown
from longform_lab.page import Bullets, Picture, write_page
from longform_lab.pictures import finish, picture

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


@pytest.mark.parametrize(
    ("low", "high", "base", "shown"),
    [
        (33, 43, 10, ["34", "36", "38", "40", "42"]),
        (20, 250, 10, ["20", "50", "100", "200"]),
        (1, 100_000, 10, ["1", "10", "100", "1,000", "10,000", "100,000"]),
        (128, 2048, 2, ["128", "256", "512", "1,024", "2,048"]),
        (32, 64, 2, ["32", "64"]),
    ],
)
def test_ticks_are_round_and_plain(low: float, high: float, base: int, shown: list[str], tmp_path: Path) -> None:
    with picture(tmp_path / "a.png", 4.0, 3.0) as axes:
        axes.plot([1, 2], [low, high])
        finish(axes, "", "", "")
        axes.set_yscale("log", base=base)
    inside = [label.get_text() for label in axes.get_yticklabels() if low <= label.get_position()[1] <= high]
    assert inside == shown
    assert (tmp_path / "a.png").stat().st_size > 1000
