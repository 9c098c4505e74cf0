"""Words in one normal form, whatever system they were typed on, and their places in the text as it was."""

import unicodedata

import pytest

from longform_text.search.ranking import marked
from longform_text.search.words import asked_words, words_of


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("Mrs. Gri\ufb03n, the \ufb01nance o\ufb03cer", "griffin finance officer"),
        ("Das Mu\u0308llerhaus in Cafe\u0301", "Müllerhaus café"),
        ("STRASSE", "straße"),
        ("\uff2d\uff49\uff4c\uff4c \uff11\uff12", "mill 12"),
        ("Mühlen\u00adhaus", "mühlenhaus"),
        ("İSTANBUL", "istanbul"),
        ("ΝΑΌΣ", "ναός"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("\u0645\u06cc\u200c\u0631\u0648\u0645", "\u0645\u06cc\u0631\u0648\u0645"),  # Persian, with a joiner
        ("\u0643\u062a\u0640\u0640\u0627\u0628", "\u0643\u062a\u0627\u0628"),  # Arabic, drawn out
        ("हिन्दी में", "हिन्दी"),
        ("老磨坊卖给了博物馆。", "博物馆"),
        ("春天河水很高", "水"),
        ("水車小屋のコンピューター", "コンピューター"),
        ("ﾊﾝｶｸ", "ハンカク"),
        (unicodedata.normalize("NFD", "학교에서 점심"), "학교"),
        ("ซื้อข้าวที่ตลาด", "ข้าว"),
        ("a servi-\ntude on the meadow", "servitude"),
        ("the revo-\r\n   cation", "revocation cation"),
        ("a servi\u2010\ntude", "servitude"),
        ("3\u201118 weeks", "18"),
        ("snake_case", "snake_case"),
        ("naïve ① x", "naïve x"),
    ],
)  # fmt: skip
def test_words_meet(text: str, question: str) -> None:
    there, asked = {word.form for word in words_of(text)}, {word.form for word in words_of(question, question=True)}
    assert asked
    assert asked <= there


def test_parts_of_a_word_are_words_too_and_lines_of_two_words_are_not_one() -> None:
    forms = [word.form for word in words_of("servi-\ntude, 3-\n18, one -\ntwo\n\nwell-known")]
    assert forms == ["servi", "tude", "servitude", "3", "18", "one", "two", "well", "known"]


@pytest.mark.parametrize(
    ("text", "question", "shown"),
    [
        ("Das Mu\u0308llerhaus, o\ufb03ce", "müllerhaus office", ["Mu\u0308llerhaus", "o\ufb03ce"]),
        ("老磨坊卖给了博物馆", "博物馆", ["博物馆"]),
        ("a servi-\ntude on", "servitude", ["servi-\ntude"]),
        ("The mill and the river", "the mill", ["mill"]),
    ],
)
def test_marks_point_into_the_text_as_it_was(text: str, question: str, shown: list[str]) -> None:
    assert [text[start:end] for start, end in marked(text, {*asked_words(question)})] == shown


@pytest.mark.parametrize(
    ("question", "asked"),
    [
        ("When did a president declare war on poverty?", ["president", "declare", "war", "poverty"]),
        ("Wann hat der Präsident den Krieg erklärt?", ["präsident", "krieg", "erklärt"]),
        ("Quelle est la cause de la guerre ?", ["cause", "guerre"]),
        ("The Who", ["the", "who"]),
        ("?!", []),
    ],
)
def test_words_that_say_nothing_are_not_asked_for(question: str, asked: list[str]) -> None:
    assert asked_words(question) == asked
