"""Words of texts and questions in one normal form, and where in the text each of them stands.

Of scripts that are written without blanks (Chinese, Japanese, Korean, Thai, ...) the words are the characters and the
pairs of neighbours; a word that is parted at the end of a line is there as its parts and as a whole.
"""

import unicodedata
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import regex

DROPPED = str.maketrans("", "", "\u00ad\u200b\u200c\u200d\u2060\ufeff\u0640\u0307")  # invisible, or only for the eye
_LETTER = r"[\w\u00ad\u200b-\u200d\u2060]"  # \w of this package has the marks of letters, that of re has not
_DENSE = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}\u30fc]"
WORD, CHARACTER = regex.compile(rf"{_LETTER}+"), regex.compile(r"\X")
RUN = regex.compile(rf"(?P<dense>{_DENSE}(?:{_DENSE}|\p{{M}})*)|(?:(?!{_DENSE}){_LETTER})+")
PARTED = regex.compile(r"[-\u2010\u00ad][^\S\n]*\r?\n\s*")  # between the halves of a word
EMPTY = [  # words that no question is about: English, German, French, Spanish
    frozenset(line.split())
    for line in (
        "a an and are as at be been but by can could did do does for from had has have how i if in into is it its may "
        "me my no not of on or our s she should so such than that the their them then there these they this those to "
        "was we were what when where which who whom whose why will with would you your",
        "aber als am an auch auf aus bei das dass dem den der des die ein eine einem einen einer eines er es für hat "
        "ich ihr im in ist kann man mit nach nicht nur oder sich sie sind so über um und uns unter vom von vor wann "
        "war warum was welche welcher welches wenn wer wie wird wo zu zum zur",
        "au aux avec ce ces cette comme dans de du elle en est et eux il ils je l la le les leur lui mais ne nous où "
        "par pas pour pourquoi quand que quel quelle quels qui quoi sa se ses son sont sur un une vous à",
        "al como con cuando cuál cuándo cómo de del dónde el ella ellos en es esta este hay la las lo los más muy o "
        "para pero por porque que qué quién se sin sobre son su sus un una y ya",
    )
]


class Word(NamedTuple):
    """A word in its normal form, and the characters from-to of a text that it is."""

    form: str
    start: int
    end: int


def normal(text: str) -> str:
    """Text in the normal form: NFKC, small letters (of all that have two forms), nothing invisible.

    >>> normal("Ｍüller's o\\ufb03ce"), normal("STRASSE") == normal("Straße")
    ("müller's office", True)
    """
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).translate(DROPPED)


def words_of(text: str, *, question: bool = False) -> Iterator[Word]:
    """The words of a ``text`` in order. Of a ``question``: no single character where pairs say more."""
    before: Word | None = None  # a word that may be the first half of the next one
    for run in RUN.finditer(text):
        spans = _characters(text, *run.span(), question=question) if run["dense"] else [run.span()]
        words = [Word(form, start, end) for start, end in spans for form in WORD.findall(normal(text[start:end]))]
        yield from words
        own = words[0] if len(words) == 1 and words[0].form.isalpha() and not run["dense"] else None
        if before and own and PARTED.fullmatch(text, before.end, own.start):
            yield Word(before.form + own.form, before.start, own.end)
        before = own


def _characters(text: str, start: int, end: int, *, question: bool) -> Iterator[tuple[int, int]]:
    """From-to of each character, with its marks, and of each pair of neighbours."""
    spans = [found.span() for found in CHARACTER.finditer(text, start, end)]
    if not question or len(spans) == 1:
        yield from spans
    yield from ((first[0], second[1]) for first, second in pairwise(spans))


def asked_words(question: str) -> list[str]:
    """The different words of a question that say what it is about in its language; all, where none does."""
    every = dict.fromkeys(word.form for word in words_of(question, question=True))
    empty = max(EMPTY, key=lambda words: len(words & every.keys()))
    return [word for word in every if word not in empty] or [*every]
