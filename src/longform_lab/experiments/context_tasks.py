"""Four tasks that tell whether a passage knows its document: the text of a chunk alone does not answer the query.

A test set is made from encyclopaedia articles that no training reads, without a model and the same each time:

* "pronoun": "title: heading" finds the chunks of a section. Behind the first paragraph its names and the words of the
  title have become a pronoun, and those of a heading in its section, which it does not stand before.
* "heading": likewise, but headings stand before their sections, as plain lines. Right are the chunks behind the first.
* "siblings": the same passage stands in eight documents, and a line somewhere in each says what it is about: so many of
  ``DISTANCES`` tokens before the passage, and what stands between is drawn for each anew. The name and the first words
  of the passage find it in the right one. The title is that of all eight.
* "control": articles as they are; the title and three words of a chunk that holds the title find that chunk.

Chunks have 128 tokens and do not cross sections.
"""

import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from longform_lab.experiments.passage_scores import SHORTEST, TAIL, marking_words
from longform_lab.experiments.passages import PASSAGE, TEST, Article, articles
from longform_text.data.spans import chunks_of

TASKS = ("pronoun", "heading", "siblings", "control")
QUERIES = 400  # of each task
ARTICLES = 120  # of so many queries of "control"
LAST = 16_000  # one past the last article
DISTANCES = (128, 512, 1024, 2048, 4096, 8192)  # tokens from the deciding line to its passage
SIBLINGS = 8
LEAD = 200  # tokens before the deciding line
STEM = 5  # first letters that inflected words have alike
OPENING_WORDS = 8  # of a passage, in a query
WORD = re.compile(r"[^\W_]{3,}")
NAME = re.compile(r"\b[A-Z]\w{2,}")
PRONOUNS = ("it", "he", "she", "they")
COMMON = {"the", "and", "for", "with", "from", "this", "was", "his", "her", "its", "list", "new", "first", "other"}


class Passages(NamedTuple):
    """Queries, and the numbers of the chunks that they are to find among those of all documents.

    ``titles`` and ``texts`` of documents; ``spans``: characters from-to of the chunks of each; ``paths``: of each chunk
    the heading that it stands under, "" for none; ``distances``: of each query, tokens to what decides, 0 where that is
    not said.
    """

    queries: list[str]
    right: list[set[int]]
    titles: list[str]
    texts: list[str]
    spans: list[list[tuple[int, int]]]
    paths: list[list[str]]
    distances: list[int]


class Cut(NamedTuple):
    """A document in chunks: its ``text``, characters from-to of each chunk, and the number of the part it is of."""

    text: str
    spans: list[tuple[int, int]]
    parts: list[int]


def make_task(
    name: str, every: Sequence[Article], tokenizer: Any, limit: int, *, queries: int = QUERIES, seed: int = 0
) -> Passages:
    """One of TASKS with documents of up to ``limit`` tokens, of articles, the longest first."""
    longest = sorted(every, key=lambda each: -min(len(each.text), 6 * limit))
    if name == "siblings":
        return siblings(every, tokenizer, limit, queries=queries, seed=seed)
    if name == "control":
        return control(longest[: queries * ARTICLES // QUERIES], tokenizer, limit, queries=queries)
    return by_heading(longest, tokenizer, limit, headings=name == "heading", queries=queries)


def tested(data: Path) -> list[Article]:
    """The articles that no training reads."""
    return list(articles(data, TEST, LAST))


def by_heading(every: Sequence[Article], tokenizer: Any, limit: int, *, headings: bool, queries: int) -> Passages:
    """The tasks "pronoun" and, with ``headings``, "heading": the ``queries`` whose headings are in most articles, which
    say least of an article, and the articles that they ask for.
    """
    documents, asked = [], []
    for each in every:
        sections = unnamed(each, headings=headings)
        found = cut((body for _, body in sections), tokenizer, limit)
        for number, (heading, _) in enumerate(sections):
            own = np.flatnonzero(np.array(found.parts) == number)[int(headings) :]
            if number and heading and len(own):
                asked.append((len(documents), heading, own))
        documents.append((each.title, found, [sections[part][0] for part in found.parts]))
    frequent = Counter(heading for _, heading, _ in asked)
    chosen = sorted(asked, key=lambda one: -frequent[one[1]])[:queries]  # stable
    made, first = _empty(), {}
    for number in sorted({number for number, _, _ in chosen}):
        first[number] = sum(map(len, made.spans))
        _add(made, *documents[number])
    for number, heading, own in chosen:
        _ask(made, f"{documents[number][0]}: {heading.lower()}", set((first[number] + own).tolist()))
    return made


def unnamed(each: Article, *, headings: bool) -> list[tuple[str, str]]:
    """Headings and sections of an article, whose title and names are a pronoun behind the first paragraph, as each
    heading is in its section; ``headings``: they stand before it, a line each.
    """
    instead, found = pronoun_of(each.text), []
    names = " ".join([each.title, *NAME.findall(each.text.partition("\n")[0])])
    for number, (heading, (start, stop)) in enumerate(each.sections):
        first, _, rest = each.text[start:stop].partition("\n")
        lead = "" if number else f"{each.title}\n{first}\n"
        body = without(without(rest if lead else each.text[start:stop], names, instead), heading, instead)
        found.append((heading, f"{lead}{heading}\n{body}" if headings and heading else lead + body))
    return found


def pronoun_of(text: str) -> str:
    """The pronoun that a text has most often."""
    counts = Counter(word for word in re.findall(r"[a-z]+", text.lower()) if word in PRONOUNS)
    return max(PRONOUNS, key=lambda word: counts[word])


def without(text: str, name: str, instead: str) -> str:
    """``text`` with ``instead`` in place of a ``name``, its words, inflected ones too, and of several in a row."""
    words = [word for word in WORD.findall(name.lower()) if word not in COMMON]
    stems = [re.escape(word[:STEM]) + (r"\w*" if len(word) >= STEM else "s?") for word in words]
    one = rf"\b(?:{'|'.join([re.escape(name), *stems])})(?:['’]s)?\b"
    return re.sub(rf"{one}(?:\W{{1,2}}{one})*", instead, text, flags=re.IGNORECASE) if name else text


def control(chosen: Sequence[Article], tokenizer: Any, limit: int, *, queries: int) -> Passages:
    """Articles as they are, and chunks that hold their title, by it and the three words that mark the chunk."""
    made, asked = _empty(), []
    for each in chosen:
        bodies = [each.text[start:stop] for _, (start, stop) in each.sections]
        found, first = cut(bodies, tokenizer, limit), sum(map(len, made.spans))
        _add(made, each.title, found, [each.sections[part][0] for part in found.parts])
        texts = [found.text[start:stop].lower() for start, stop in found.spans]
        counts = [Counter(WORD.findall(text)) for text in texts]
        for place, text in enumerate(texts):
            if each.title.lower() in text:
                words = " ".join(marking_words(counts, place, each.title.lower()))
                asked.append((place == 0, f"{each.title}: {words}", {first + place}))
    asked.sort(key=lambda one: one[0])  # stable; the first chunks last
    for _, query, right in asked[:queries]:
        _ask(made, query, right)
    return made


def siblings(chosen: Sequence[Article], tokenizer: Any, limit: int, *, queries: int, seed: int) -> Passages:
    """Groups of documents that differ in a line; each has a passage behind every distance that fits into ``limit``.

    A group is made of the sentences of four articles, without their titles: some are its passages, and what stands
    between them is drawn from the others for each document.
    """
    draw, made = random.Random(seed), _empty()
    distances = [each for each in DISTANCES if each + 2 * LEAD <= limit]
    named = [each.title for each in chosen if len(each.title.split()) > 1]
    names = draw.sample(named, k=-(-queries // (SIBLINGS * len(distances))) * SIBLINGS)  # whole groups
    sources = sorted(chosen, key=lambda each: -len(each.text))
    for group, first in enumerate(range(0, len(names), SIBLINGS)):
        some = [sources[(4 * group + place) % len(sources)] for place in range(4)]
        _add_group(made, names[first : first + SIBLINGS], some, distances, tokenizer, draw)
    return made._replace(**{name: getattr(made, name)[:queries] for name in ("queries", "right", "distances")})


def _add_group(
    made: Passages, names: Sequence[str], some: Sequence[Article], distances: Sequence[int], tokenizer: Any,
    draw: random.Random,
) -> None:  # fmt: skip
    """A document about each of ``names``, of the sentences of ``some`` articles, and their queries."""
    sentences = [(line, len(offsets_of(tokenizer, line))) for each in some for line in _sentences(each)]
    passages = [_drawn(sentences, PASSAGE - TAIL, draw, keep=False) for _ in distances]
    for name in names:
        before = sum(map(len, made.spans))
        found, placed, begun = _sibling(name, passages, distances, sentences, tokenizer, draw)
        _add(made, some[0].title, found, ["" if place < begun else name for place in range(len(found.spans))])
        for passage, distance, number in zip(passages, distances, placed, strict=True):
            words = " ".join(passage.split()[:OPENING_WORDS])
            _ask(made, f"{name}: {words}", {before + number}, distance)


def _sentences(each: Article) -> list[str]:
    """Sentences of an article without its title, none of them short or long."""
    text = without(each.text, each.title, pronoun_of(each.text))
    return [line for line in re.split(r"(?<=[.!?])\s+", text) if 40 <= len(line) <= 300]


def _drawn(sentences: list[tuple[str, int]], tokens: int, draw: random.Random, *, keep: bool) -> str:
    """Sentences, with their lengths, of so many ``tokens`` or a few less; without ``keep`` they are taken out."""
    found: list[str] = []
    while sentences:
        place = draw.randrange(len(sentences))
        sentence, length = sentences[place]
        if length > tokens:
            break
        found.append(sentence)
        tokens -= length
        if not keep:
            del sentences[place]
    return " ".join(found)


def _sibling(
    name: str, passages: Sequence[str], distances: Sequence[int], sentences: list[tuple[str, int]], tokenizer: Any,
    draw: random.Random,
) -> tuple[Cut, list[int], int]:  # fmt: skip
    """A document about ``name``, the numbers of the chunks that are its ``passages``, and that of the first one which
    stands behind the line that says so.
    """
    text = _drawn(sentences, LEAD, draw, keep=True)
    spans, placed = _chunks(text, tokenizer, 0), []
    begun, line, at = len(spans), f"This is about {name}.", 0  # tokens behind the line
    for passage, distance in zip(passages, distances, strict=True):
        between = f"{line} {_drawn(sentences, distance - at, draw, keep=True)}".strip()
        spans += _chunks(between, tokenizer, len(text) + 1)
        text, line = f"{text}\n{between}\n", ""
        spans.append((len(text), len(text) + len(passage)))
        text, at = text + passage, distance + PASSAGE
        placed.append(len(spans) - 1)
    return Cut(text, spans, []), placed, begun


def offsets_of(tokenizer: Any, text: str) -> np.ndarray:
    """Characters from-to of each token of a text, (T, 2), without special tokens."""
    found = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    return np.array(found["offset_mapping"], dtype=np.int64).reshape(-1, 2)


def cut(parts: Iterable[str], tokenizer: Any, limit: int) -> Cut:
    """``limit`` tokens of ``parts`` one after the other, in chunks that do not cross them; short ones are left out."""
    made, at = Cut("", [], []), 0
    bodies: list[str] = []
    for number, part in enumerate(parts):
        offsets = offsets_of(tokenizer, part)[:limit]
        if len(offsets) < SHORTEST:
            continue
        body = part[: offsets[-1, 1]]
        chunks = chunks_of(body, offsets, size=PASSAGE)
        kept = [chunk for chunk in chunks if not chunk.first or chunk.end - chunk.first >= TAIL]
        made.spans.extend((at + chunk.start, at + chunk.stop) for chunk in kept)
        made.parts.extend([number] * len(kept))
        bodies.append(body)
        at, limit = at + len(body) + 1, limit - len(offsets)
    return made._replace(text="\n".join(bodies))


def _chunks(part: str, tokenizer: Any, at: int) -> list[tuple[int, int]]:
    """Characters from-to of the chunks of a ``part`` that begins at a character; none where it is empty."""
    chunks = chunks_of(part, offsets_of(tokenizer, part), size=PASSAGE) if part else []
    return [(at + chunk.start, at + chunk.stop) for chunk in chunks]


def _empty() -> Passages:
    return Passages([], [], [], [], [], [], [])


def _add(made: Passages, title: str, found: Cut, paths: list[str]) -> None:
    made.titles.append(title)
    made.texts.append(found.text)
    made.spans.append(found.spans)
    made.paths.append(paths)


def _ask(made: Passages, query: str, right: set[int], distance: int = 0) -> None:
    made.queries.append(query)
    made.right.append(right)
    made.distances.append(distance)
