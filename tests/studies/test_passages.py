"""Queries for passages, made of articles without a model, and the scores of passages that know their document."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from tiny_models import save_longform

from longform.inference.encoders import Encoder
from longform_lab.experiments import passage_scores
from longform_lab.experiments.passages import TEST, article, articles, asked

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
    for name, value in {"PASSAGE": 24, "SHORTEST": 8, "TAIL": 4, "LIMIT": 160}.items():
        monkeypatch.setattr(passage_scores, name, value)
    task = passage_scores.sections(data, tiny_tokenizer)
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
