"""Sources of pairs: documents with queries that ask for them, given or made of a text, some of them held out."""

import random
from collections.abc import Callable, Sequence
from operator import index
from typing import Any, NamedTuple

from longform.digests import content_key
from longform.errors import DataError
from longform_text.data.given import as_rows, python_values, source_of
from longform_text.data.records import Record, records_of, string_field
from longform_text.data.spans import sentence_spans
from longform_text.data.text import Document, clean_text, read_documents
from longform_text.evaluation.retrieval_data import read_retrieval
from longform_text.training.alignment.settings import AlignmentSource

FEWEST_WORDS, MOST_WORDS = 6, 100  # of a sentence that asks; of a passage
FEWEST_SENTENCES = 4  # of a text that is parted
LONGEST_TITLE = 200  # characters


Spans = list[tuple[int, int]]  # characters from-to of a document that answer a query; none: nobody knows which


class MadePair(NamedTuple):
    """A query, and the document that it asks for; ``spans``: where in it."""

    query: str
    document: str
    spans: Spans


def made_pair(kind: str, text: str, title: str | None, draw: random.Random) -> MadePair | None:
    """The pair of a ``kind`` (``longform.choices.PAIR_KINDS``) of ``text``; None where it has too little for that."""
    return _KINDS[kind](text, title, draw)


def _sentence(text: str, title: str | None, draw: random.Random) -> MadePair | None:
    spans = sentence_spans(text)
    usable = [span for span in spans if FEWEST_WORDS <= _words(text, span) <= MOST_WORDS]
    return _without(text, *draw.choice(usable)) if len(spans) >= FEWEST_SENTENCES and usable else None


def _passage(text: str, title: str | None, draw: random.Random) -> MadePair | None:
    spans = sentence_spans(text)
    words = [_words(text, span) for span in spans]
    most = min(MOST_WORDS, sum(words) // 3)
    usable = [place for place, count in enumerate(words) if count <= most]
    if len(spans) < FEWEST_SENTENCES or not usable:
        return None
    first = last = draw.choice(usable)
    while last + 1 < len(spans) and sum(words[first : last + 2]) <= most:
        last += 1
    return _without(text, spans[first][0], spans[last][1])


def _title(text: str, title: str | None, draw: random.Random) -> MadePair | None:
    if title is not None:
        rest = text.strip().removeprefix(title.strip()).strip()
    else:
        title, _, rest = text.strip().partition("\n")
    return (
        MadePair(title.strip(), rest.strip(), []) if 0 < len(title.strip()) <= LONGEST_TITLE and rest.strip() else None
    )


def _halves(text: str, title: str | None, draw: random.Random) -> MadePair | None:
    spans = sentence_spans(text)
    if len(spans) < FEWEST_SENTENCES:
        return None
    middle = min((start for start, _ in spans[1:]), key=lambda start: abs(start - len(text) // 2))
    return MadePair(text[:middle].strip(), text[middle:].strip(), [])


def _without(text: str, start: int, stop: int) -> MadePair | None:
    before, after = text[:start].strip(), text[stop:].strip()
    rest = f"{before} {after}".strip()
    hole = (max(0, len(before) - 1), min(len(rest), len(before) + 2))  # from the last character before to the next one
    return MadePair(text[start:stop].strip(), rest, [hole]) if rest else None


def _words(text: str, span: tuple[int, int]) -> int:
    return len(text[span[0] : span[1]].split())


_KINDS: dict[str, Callable[[str, str | None, random.Random], MadePair | None]] = {
    "sentence": _sentence,
    "passage": _passage,
    "title": _title,
    "halves": _halves,
}


HELDOUT = 5  # of so many documents at most one is held out


class Example(NamedTuple):
    """A document of a source, queries that ask for it, and for each the places of all documents that answer it.

    ``spans``: for each query, where in this document; as many as queries, or none at all.
    """

    place: int
    document: str
    queries: list[str]
    answers: list[set[int]]
    spans: list[Spans] = []  # noqa: RUF012  read, never written


class PairSource:
    """``documents``: its texts; ``taught``, ``heldout``: their places; ``key``: a short name for all that it holds."""

    documents: Sequence[str]
    key: str

    def example(self, place: int, draw: random.Random, *, most: int | None) -> Example:
        """A document with ``most`` of its queries, or all; which, and which are made, is drawn."""
        raise NotImplementedError

    def part(self, places: Sequence[int], heldout: int, seed: int) -> None:
        """Hold out ``heldout`` of ``places``, at most a fifth of them. Raises DataError for too few documents."""
        if len(places) < 2:
            raise DataError(
                f"{len(places)} documents with queries: a query's document is told from others, so two are needed"
            )
        order = sorted(places)
        random.Random(f"held out {seed}").shuffle(order)
        count = min(heldout, len(order) // HELDOUT)
        self.heldout, self.taught = sorted(order[:count]), sorted(order[count:])


class GivenPairs(PairSource):
    """Documents with their queries. Those that ask for a document that is held out are not trained on.

    ``relevant``: for each query the numbers of its documents, with the spans that answer it there.
    """

    def __init__(
        self,
        documents: Sequence[str],
        queries: Sequence[str],
        relevant: Sequence[dict[int, Spans]],
        *,
        heldout: int,
        seed: int,
    ) -> None:
        self.documents, self.queries, self.relevant = documents, queries, relevant
        self.key = content_key(documents, queries, relevant)
        self.asking: dict[int, list[int]] = {}
        for number, places in enumerate(relevant):
            for place in sorted(places):
                self.asking.setdefault(place, []).append(number)
        self.part(list(self.asking), heldout, seed)
        kept = set(self.heldout)
        asked = {place: [n for n in self.asking[place] if not kept & self.relevant[n].keys()] for place in self.taught}
        self.taught = [place for place in self.taught if asked[place]]
        self.asking |= asked

    def example(self, place: int, draw: random.Random, *, most: int | None) -> Example:
        """See PairSource."""
        numbers = self.asking[place]
        if most is not None and most < len(numbers):
            numbers = draw.sample(numbers, most)
        where = [self.relevant[n] for n in numbers]
        return Example(
            place,
            self.documents[place],
            [self.queries[n] for n in numbers],
            [set(each) for each in where],
            [each[place] for each in where],
        )


class MadePairs(PairSource):
    """Texts without queries: of each time that one is read another pair is made, of the first kind that it allows.

    ``characters``: what is read of a text, about; a query is not taken from beyond it.
    """

    def __init__(
        self,
        documents: Sequence[Document],
        kinds: Sequence[str],
        title_field: str | None,
        *,
        characters: int | None,
        heldout: int,
        seed: int,
    ) -> None:
        self.documents = [document.text[:characters] for document in documents]
        titles = [document.fields.get(title_field) if title_field else None for document in documents]
        self.titles = [clean_text(title)[0] if isinstance(title, str) else None for title in titles]
        self.kinds = list(kinds)
        self.key = content_key(self.documents, self.titles, self.kinds)
        usable = [place for place in range(len(self.documents)) if self._made(place, random.Random(0)) is not None]
        if not usable:
            raise DataError(f"no pair ({', '.join(kinds)}) can be made of any of {len(documents)} texts: all too short")
        self.part(usable, heldout, seed)

    def _made(self, place: int, draw: random.Random) -> MadePair | None:
        for kind in draw.sample(self.kinds, len(self.kinds)):
            if pair := made_pair(kind, self.documents[place], self.titles[place], draw):
                return pair
        return None

    def example(self, place: int, draw: random.Random, *, most: int | None) -> Example:
        """See PairSource; one query, and the document without it."""
        pair = self._made(place, draw)
        assert pair is not None, "what can be made of a text does not depend on what is drawn"
        return Example(place, pair.document, [pair.query], [{place}], [pair.spans])


def open_source(source: AlignmentSource, *, characters: int | None, heldout: int, seed: int) -> PairSource:
    """Read a source. Raises DataError for files, fields and ids that are not there, and for too few documents."""
    how: Any = {"heldout": heldout, "seed": seed}
    if source.texts is not None:
        texts = read_documents(source_of(source.texts), text_field=source.text_field)
        documents = [document for document, _ in zip(texts, range(source.first or 10**18), strict=False)]
        return MadePairs(documents, source.make, source.title_field, characters=characters, **how)
    if source.pairs is not None:
        return GivenPairs(*_pairs(source), **how)
    found = read_retrieval(
        source.queries,
        source.documents,
        query_field=source.query_field,
        relevant_field=source.relevant_field,
        id_field=source.id_field,
        text_field=source.text_field,
    )
    texts = [document.text for document in found.documents]
    relevant: list[dict[int, Spans]] = [{place: [] for place in places} for places in found.relevant]
    return GivenPairs(*_first(texts, found.questions, relevant, source.first), **how)


def _pairs(source: AlignmentSource) -> tuple[list[str], list[str], list[dict[int, Spans]]]:
    """Documents, queries, and the places of each query's documents with its spans there; equal texts are one."""
    documents: dict[str, int] = {}
    relevant: dict[str, dict[int, Spans]] = {}
    for row in records_of(as_rows(source.pairs, source.query_field, source.document_field, source.spans_field)):
        query, document = (string_field(row, name) for name in (source.query_field, source.document_field))
        if not query.strip() or not document.strip():
            continue
        if document not in documents and source.first is not None and len(documents) >= source.first:
            continue
        place = documents.setdefault(document, len(documents))
        relevant.setdefault(query, {}).setdefault(place, []).extend(_spans(row, source.spans_field, len(document)))
    return list(documents), list(relevant), list(relevant.values())


def _spans(row: Record, field: str | None, characters: int) -> Spans:
    """The spans in a record. Raises DataError for what is no list of them within the document."""
    given = python_values(row.values.get(field)) if field is not None else None
    try:
        spans = [(index(start), index(stop)) for start, stop in map(python_values, given or ())]
    except (TypeError, ValueError):
        spans = [(0, 0)]
    if not all(0 <= start < stop <= characters for start, stop in spans):
        raise DataError(
            f'{row.location}: "{field}" is {str(given)[:60]}; it is a list of characters from-to of a document of '
            f"{characters:,}, as [[0, 40]], or null"
        )
    return spans


def _first(
    documents: list[str], queries: list[str], relevant: list[dict[int, Spans]], first: int | None
) -> tuple[list[str], list[str], list[dict[int, Spans]]]:
    """The first documents, and the queries that ask for no other."""
    if first is None:
        return documents, queries, relevant
    kept = [number for number, places in enumerate(relevant) if max(places) < first]
    return documents[:first], [queries[number] for number in kept], [relevant[number] for number in kept]
