"""Where an alignment's pairs come from: files and memory, texts alone, what is held out, whose turn it is."""

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from json_lines import write_lines

from longform.errors import ConfigurationError
from longform_text.training.alignment.settings import AlignmentSettings, AlignmentSource
from longform_text.training.alignment.similar import similar_batches
from longform_text.training.alignment.sources import MadePairs, PairSource, made_pair, open_source
from longform_text.training.alignment.steps import AlignmentSteps

TEXT = (
    "Of long texts\nThe first sentence has six words here. The second one is about rivers and seas. "
    "A third of them tells nothing new at all! Is the fourth a question about it? The fifth ends it all, at last."
)
HOW: Any = {"characters": None, "heldout": 3, "seed": 0}


@pytest.mark.parametrize("kind", ["sentence", "passage", "title", "halves"])
def test_a_pair_that_is_made_of_a_text(kind: str) -> None:
    pairs = [made_pair(kind, TEXT, None, random.Random(seed)) for seed in range(20)]
    assert None not in pairs
    if kind in ("title", "halves"):
        assert pairs == [pairs[0]] * 20
    for pair in pairs:
        assert pair is not None
        assert pair.query in TEXT
        assert pair.query not in pair.document
        assert sorted(f"{pair.query} {pair.document}".split()) == sorted(TEXT.split())  # nothing is lost or doubled
    assert made_pair(kind, "short", None, random.Random(0)) is None


def test_a_title_is_a_field_or_the_first_line() -> None:
    assert made_pair("title", TEXT, None, random.Random(0))[:2] == ("Of long texts", TEXT.partition("\n")[2])
    assert made_pair("title", "About. The rest.", "About.", random.Random(0))[:2] == ("About.", "The rest.")
    assert made_pair("title", "x" * 300 + "\nrest", None, random.Random(0)) is None


def test_pairs_of_files_and_memory_are_the_same(tmp_path: Path) -> None:
    rows = [{"query": f"q{n}", "document": f"d{n // 2}"} for n in range(40)]
    write_lines(tmp_path / "pairs.jsonl", rows)
    asked = [{"query": f"q{n}", "relevant": f"{n // 2}"} for n in range(40)]
    corpus = [{"id": f"{n}", "text": f"d{n}"} for n in range(20)]
    columns = tuple([row[name] for row in rows] for name in ("query", "document"))
    found = [
        open_source(source, **HOW) for source in (
            AlignmentSource(pairs=str(tmp_path / "pairs.jsonl")), AlignmentSource(pairs=rows),
            AlignmentSource(pairs=columns), AlignmentSource(queries=asked, documents=corpus),
        )
    ]  # fmt: skip
    assert len({source.key for source in found}) == 1
    examples = [source.example(0, random.Random(0), most=None) for source in found]
    assert examples == [examples[0]] * 4
    assert examples[0][1:] == ("d0", ["q0", "q1"], [{0}, {0}], [[], []])
    assert len(found[0].example(0, random.Random(0), most=1).queries) == 1


def test_what_asks_for_a_held_out_document_is_not_trained_on() -> None:
    asked = [{"query": f"q{n}", "relevant": [f"{n % 20}", f"{(n + 1) % 20}"]} for n in range(60)]
    corpus = [{"id": f"{n}", "text": f"d{n}"} for n in range(20)]
    source = open_source(AlignmentSource(queries=asked, documents=corpus), **HOW)
    held = set(source.heldout)
    assert len(held) == 3
    assert not held & set(source.taught)
    for place in source.taught:
        answers = source.example(place, random.Random(0), most=None).answers
        assert answers
        assert not any(held & each for each in answers)


def test_the_first_documents_alone_are_taken() -> None:
    rows = [{"query": f"q{n}", "document": f"d{n}"} for n in range(9)]
    source = open_source(AlignmentSource(pairs=rows, first=4), characters=None, heldout=0, seed=0)
    assert (source.taught, source.heldout) == ([0, 1, 2, 3], [])
    texts = open_source(AlignmentSource(texts=[TEXT] * 9, first=4), characters=None, heldout=0, seed=0)
    assert len(texts.taught) == 4


def test_queries_are_not_taken_from_beyond_what_is_read() -> None:
    far = "Nobody asks for this far sentence here."
    source = open_source(
        AlignmentSource(texts=[f"{TEXT} {far}"] * 2, make=["sentence"]), characters=len(TEXT), heldout=0, seed=0
    )
    assert isinstance(source, MadePairs)
    drawn = [source.example(0, random.Random(seed), most=None) for seed in range(30)]
    assert not any(far in example.document or far in example.queries for example in drawn)
    assert len({example.queries[0] for example in drawn}) == 5


def test_sources_take_turns_by_weight() -> None:
    steps: Any = AlignmentSteps(
        [Recorded(8), Recorded(8)], [2.0, 1.0], None, AlignmentSettings(documents_per_step=4), steps=9  # ty: ignore
    )  # fmt: skip
    assert [source for source, _ in steps.planned] == [0, 1, 0] * 3
    assert (steps.documents(0), steps.documents(3)) == (0, 12)


class Recorded(PairSource):
    """A source that remembers which places were asked for."""

    def __init__(self, count: int) -> None:
        self.taught, self.heldout, self.key, self.asked = list(range(count)), [], "", []
        kinds = ("a ship of the navy", "an election in Ohio", "a song of the band")
        self.documents = [f"{kinds[place % 3]}, number {place}" for place in self.taught]

    def example(self, place: int, draw: random.Random, *, most: int | None) -> Any:
        self.asked.append(place)


def test_a_pass_reads_each_document_once_in_any_order() -> None:
    orders = []
    for start in (0, 3):
        source, reader = Recorded(7), SimpleNamespace(step=lambda examples, short: None)
        settings = AlignmentSettings(documents_per_step=2, keep_weight=0)
        steps: Any = AlignmentSteps([source], [1.0], reader, settings, steps=6)  # ty: ignore
        [steps[number] for number in range(start, 6)]
        orders.append(source.asked)
    assert orders[0][6:] == orders[1]  # begun later, the same documents come
    assert len(set(orders[0][:6])) == len(set(orders[0][6:])) == 6
    assert orders[0][:6] != orders[0][6:]


def test_similar_documents_are_read_in_one_step() -> None:
    source, reader = Recorded(12), SimpleNamespace(step=lambda examples, short: None)
    settings = AlignmentSettings(documents_per_step=4, keep_weight=0, similar_documents=True)
    steps: Any = AlignmentSteps([source], [1.0], reader, settings, steps=6)  # ty: ignore
    [steps[number] for number in range(6)]
    batches = [source.asked[first : first + 4] for first in range(0, 24, 4)]
    assert [len({place % 3 for place in batch}) for batch in batches] == [1] * 6
    assert sorted(source.asked[:12]) == sorted(source.asked[12:]) == list(range(12))
    assert source.asked[:12] != source.asked[12:]  # a pass begins with other documents


@given(st.lists(st.text(max_size=20), min_size=1, max_size=30), st.integers(1, 7))
def test_each_document_is_in_one_batch(texts: list[str], size: int) -> None:
    batches = similar_batches(texts, size)
    assert sorted(place for batch in batches for place in batch) == list(range(len(texts)))
    assert all(len(batch) == size for batch in batches[:-1])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "one of pairs, queries .* given: none of them"),
        ({"pairs": "a", "texts": "b"}, "given: pairs, texts"),
        ({"queries": "a"}, "needs documents beside them"),
        ({"pairs": "a", "documents": "b"}, "documents need queries"),
        ({"texts": "a", "make": ["sentense"]}, 'make="sentense"; .*did you mean "sentence"'),
        ({"texts": "a", "make": []}, "make names nothing"),
        ({"pairs": "a", "weight": 0}, "weight=0 must be more than 0"),
    ],
)
def test_what_is_no_source(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        AlignmentSource(**fields)
