"""Tasks whose chunks need their document, made of tiny made-up articles, and the scores of what finds them."""

import copy
import re

import numpy as np
import pytest
from tiny_models import save_longform

from longform_lab.experiments import context_scores, context_tasks
from longform_lab.experiments.context_scores import CONTENDERS, measured
from longform_lab.experiments.context_tasks import TASKS, Passages, make_task, without
from longform_lab.experiments.context_training import asked
from longform_lab.experiments.passages import Article, article
from longform_text.inference.encoders import Encoder

NAMES = "Oak Hill", "Red Fort", "Cold Lake", "Grey Abbey", "Iron Gate", "Wide Moor", "Lone Mill", "Salt Quay"
PLACES = "north", "south", "east", "west", "river", "valley", "castle", "harbour"


def articles() -> list[Article]:
    """Eight articles of three sections, the headings of two of which all have."""
    made = []
    for name, place in zip(NAMES, PLACES, strict=True):
        lines = [
            name,
            f"{name} is a village in the {place}, and it was first named in a charter of an old king of Hungary.",
        ]
        for heading in ("History", "Geography", f"The {place}"):
            body = " ".join(
                f"{name} had {number} houses near the {place}, says its {heading.lower()} of {number} pages."
                for number in range(30)
            )
            lines += [f"{heading}.", body]
        made.append(article("\n".join(lines)))
    return made


@pytest.fixture
def small(monkeypatch):
    """Distances and numbers for texts of some hundred tokens."""
    monkeypatch.setattr(context_tasks, "DISTANCES", (256, 1024, 2**20))
    monkeypatch.setattr(context_tasks, "LEAD", 100)
    monkeypatch.setattr(context_tasks, "ARTICLES", 400)


@pytest.fixture
def encoder(tiny_tokenizer, tmp_path) -> Encoder:
    """A random one for 2,048 tokens."""
    tokenizer = copy.deepcopy(tiny_tokenizer)
    tokenizer.model_max_length = 2048
    folder = save_longform(tmp_path, tokenizer, max_position_embeddings=2048, attention_window=256, projected_length=8)
    return Encoder.from_pretrained(folder)


def chunks_of(made: Passages) -> list[str]:
    return [text[start:stop] for text, spans in zip(made.texts, made.spans, strict=True) for start, stop in spans]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", TASKS)
def test_every_task_is_whole_and_the_same_each_time(name, tiny_tokenizer):
    made = make_task(name, articles(), tiny_tokenizer, 6000, queries=16)
    assert made == make_task(name, articles(), tiny_tokenizer, 6000, queries=16)
    chunks = chunks_of(made)
    assert len(made.queries) == len(made.right) == len(made.distances) == 16
    assert len(made.titles) == len(made.texts) == len(made.spans) == len(made.paths)
    assert [len(spans) for spans in made.spans] == [len(paths) for paths in made.paths]
    assert all(right and max(right) < len(chunks) for right in made.right)
    assert all(chunk.strip() for chunk in chunks)
    for row, right in zip(asked(made), made.right, strict=True):
        assert [row["document"][start:stop] for start, stop in row["where"]] == [chunks[at] for at in sorted(right)]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", ["pronoun", "heading"])
def test_neither_title_nor_heading_is_left_where_an_answer_stands(name, tiny_tokenizer):
    made = make_task(name, articles(), tiny_tokenizer, 6000, queries=16)
    chunks = chunks_of(made)
    assert {query.partition(": ")[2] for query in made.queries} == {"history", "geography"}  # those of most articles
    for query, right in zip(made.queries, made.right, strict=True):
        title, _, heading = query.partition(": ")
        for number in right:
            assert not re.search(rf"\b({title}|{'|'.join(title.split())}|{heading}|Hungary)\b", chunks[number], re.I)
    for title, text in zip(made.titles, made.texts, strict=True):
        assert text.startswith(f"{title}\n{title} is a village")
        assert ("\nHistory\n" in text) == (name == "heading")


@pytest.mark.usefixtures("small")
def test_siblings_differ_in_a_line_at_its_distance(tiny_tokenizer):
    made = make_task("siblings", articles(), tiny_tokenizer, 6000, queries=16)
    chunks = chunks_of(made)
    assert made.distances == [256, 1024] * 8
    names = {query.partition(": ")[0] for query in made.queries}
    assert len(names) == 8
    for start in range(2):
        [passage] = {chunks[min(right)] for right in made.right[start::2]}
        assert not any(name in passage for name in names)
    assert len(set(made.titles)) == 1
    for place, text in enumerate(made.texts):
        name = made.queries[2 * place].partition(": ")[0]
        line, passage = text.index(f"This is about {name}."), text.index(chunks[min(made.right[2 * place])])
        between = tiny_tokenizer(text[line:passage], add_special_tokens=False)["input_ids"]
        assert 0 < line < passage
        assert abs(len(between) - 256) < 120


def test_words_of_a_name_go_inflected_ones_too():
    text = "The Hungarian king of Hungary, Oak Hill's lord, saw oaks in the old oak hill."
    assert without(text, "Oak Hill", "it") == "The Hungarian king of Hungary, it lord, saw it in the old it."
    assert "Hunga" not in without(text, "Hungary", "it")
    assert without(text, "", "it") == text


@pytest.mark.usefixtures("small")
def test_contenders_are_measured(tiny_tokenizer, encoder):
    made = make_task("heading", articles(), tiny_tokenizer, 1800, queries=12)
    found = dict(measured(made, encoder, encoder, list(CONTENDERS)))
    assert list(found) == ["BM25", *CONTENDERS]
    assert all(scores.shape == (12,) and ((scores >= 0) & (scores <= 100)).all() for scores in found.values())


@pytest.mark.usefixtures("small")
def test_right_chunks_read_elsewhere_keep_their_places(tiny_tokenizer, encoder):
    made = make_task("pronoun", articles(), tiny_tokenizer, 1800, queries=4)
    read = context_scores.Readings(made, encoder, encoder)
    mixed, right = np.concatenate(read.elsewhere()), set().union(*made.right)
    same = [bool(np.allclose(one, other)) for one, other in zip(mixed, np.concatenate(read.whole), strict=True)]
    assert [number for number, equal in enumerate(same) if not equal] == sorted(right)
