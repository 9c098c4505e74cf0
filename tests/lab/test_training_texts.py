"""Texts made without a model: conversations that train the shipped encoder, and queries for passages."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from tiny_models import save_longform

from longform_lab.experiments import passage_scores
from longform_lab.experiments.conversations import FAMILIES, conversations, rare_phrase, rare_words, read_post
from longform_lab.experiments.passages import TEST, article, articles, asked
from longform_text.inference.encoders import Encoder

OWN = "The telescope needs a longer exposure than last night, I think, because the nebula is far too faint. " * 3


def _post(subject="Re: Faint nebula photographs", body=OWN, author="ann@sky.org (Ann Bell)"):
    return (
        f"From: {author}\tSubject: {subject}\tLines: 9\t\tIn article <1@x> bob@x writes:\t> a quoted line\t\t{body}\t"
    )


def test_a_post_is_its_authors_own_words():
    post = read_post(_post(), "sci.space")
    assert post is not None
    assert (post.speaker, post.subject, post.text) == ("Ann", "Faint nebula photographs", OWN.strip())
    assert read_post(_post(body="too short"), "sci.space") is None
    assert read_post(OWN, "sci.space") is None  # no headers


def test_a_phrase_is_of_words_that_few_texts_have():
    texts = ["common words everywhere here"] * 40 + ["a quaternion gimbal everywhere"] * 3
    assert rare_phrase("common words everywhere", rare_words(texts), random.Random(0)) == ""
    said = "there was a quaternion gimbal. Then common words"
    found = {rare_phrase(said, rare_words(texts), random.Random(seed)) for seed in range(20)}
    assert found == {"", "quaternion gimbal"}  # "" where a longer one was asked for


def test_conversations_are_the_same_every_time_and_of_kindred_groups():
    groups = ["sci.space", "sci.med", "rec.autos"]
    posts = [
        {
            "text": _post(f"Faint nebula {place % 7}", f"{OWN} zirconium filament {place % 5}."),
            "label": groups[place % 3],
        }
        for place in range(120)
    ]
    made = conversations(posts)
    assert made == conversations(posts)
    assert set(made) == set(FAMILIES)
    assert [bool(made[family]) for family in ("science", "leisure", "politics")] == [True, True, False]
    for one in made["science"]:
        assert "Subject:" not in one.text
        assert "quoted" not in one.text
        assert one.text.startswith("Ann: ")
        assert 1 <= len(one.questions) == len(one.spans) <= 6
        for start, stop in one.spans:
            assert one.text[start:stop].startswith("Ann: ")
            assert one.text[stop : stop + 1] in ("\n", "")


BODY = (
    "the near text is far and good or bad, and it is as long as it is short for all, "
    + "near and far and good and bad. " * 2
)
TEXT = f"Near (place)\n\nAn opening. {BODY}\nHistory.\n{BODY}\n{BODY}far\nToo short.\nno\nSee also.\n{BODY}near\nEnd."


def test_headings_and_title_are_taken_out_of_an_article() -> None:
    found = article(TEXT)
    assert (found.title, [heading for heading, _ in found.sections]) == ("Near", ["", "History", "See also"])
    parts = [found.text[start:stop] for _, (start, stop) in found.sections]
    assert parts == [f"An opening. {BODY}", f"{BODY}\n{BODY}far\nToo short.\nno", f"{BODY}near\nEnd."]
    assert "\n".join(parts) == found.text
    rows = list(asked(found))
    assert [row["query"] for row in rows] == ["Near: history", "See also of Near"]
    assert [found.text[slice(*row["where"][0])] for row in rows] == parts[1:]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    texts = ["x"] * TEST + [TEXT.replace("Near", name) for name in ("Far", "Good", "Bad")] + ["Short\n\nno section"]
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "wikipedia_long.parquet")
    return tmp_path


def test_chunks_of_sections_are_found(data: Path, tiny_tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [each.title for each in articles(data, TEST, TEST + 4)] == ["Far", "Good", "Bad"]
    for name, value in {"PASSAGE": 24, "SHORTEST": 8, "TAIL": 4}.items():
        monkeypatch.setattr(passage_scores, name, value)
    task = passage_scores.sections(data, tiny_tokenizer, 160)
    assert task.spans is not None
    chunks = [
        document.text[slice(*span)] for document, own in zip(task.documents, task.spans, strict=True) for span in own
    ]
    assert chunks == task.words["BM25"]
    assert [query.split(":")[0] for query in task.queries] == ["Far", "Far", "Good", "Good", "Bad", "Bad"]
    assert set.union(*task.right) <= set(range(len(chunks)))
    encoder = Encoder.from_pretrained(save_longform(data / "model", tiny_tokenizer), normalise=True)
    found = dict(passage_scores.measured(task, {"alone": (encoder, True), "whole": (encoder, False)}))
    assert {"BM25", "BM25, title in front", "alone", "alone, title", "whole + 0.5 mean", "whole + BM25"} <= set(found)
    assert all(0 <= scores.ndcg <= 1 and len(scores.each) == len(task.queries) for scores in found.values())


def test_the_mean_is_that_of_document_weight(tmp_path: Path, tiny_tokenizer: Any) -> None:
    encoder = Encoder.from_pretrained(save_longform(tmp_path, tiny_tokenizer), normalise=True)
    plain, mixed = (
        encoder.encode_chunks(BODY, chunk_tokens=9, document_weight=weight).vectors for weight in (0.0, 0.5)
    )
    expected = passage_scores.mixed(plain, 0.5)
    np.testing.assert_allclose(mixed, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-5)
