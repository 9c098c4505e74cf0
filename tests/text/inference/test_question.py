"""Questions read in numpy have the vectors of the encoder, and need no torch."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from longform import Encoder, Index
from longform.errors import ConfigurationError
from longform_text.inference.question import QuestionReader

WORDS = ("mill", "river", "old", "the", "town", "unforgettable")


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder.from_pretrained("minilm-16k")


@pytest.fixture(scope="module")
def reader(encoder: Encoder) -> QuestionReader:
    found = QuestionReader.of("minilm-16k")
    assert found is not None
    return found


@pytest.mark.parametrize("words", [1, 2, 7, 30, 55])
def test_the_vector_is_the_encoders(words: int, encoder: Encoder, reader: QuestionReader) -> None:
    question = " ".join(WORDS[at * at % len(WORDS)] for at in range(words)) + "?"
    vector = reader.vector(question)
    assert vector is not None
    assert vector.dtype == np.float32  # or all vectors of an index would be copied for the product
    np.testing.assert_allclose(vector, encoder.encode_query([question])[0], rtol=0, atol=1e-6)


def test_a_question_beyond_the_window_is_left_to_the_encoder(reader: QuestionReader) -> None:
    assert reader.vector("mill " * (reader.reach - 2)) is not None
    assert reader.vector("mill " * (reader.reach - 1)) is None


def test_other_encoders_have_no_reader(longform_folder: Path) -> None:
    assert QuestionReader.of(longform_folder) is None


def test_an_index_that_is_up_to_date_answers_without_torch(tmp_path: Path, encoder: Encoder) -> None:
    (tmp_path / "mill.txt").write_text("The old mill is sold.")
    Index(tmp_path / "index", encoder).add(tmp_path / "mill.txt")
    program = (
        "import sys; from longform_text.search.index import Index\n"
        f"(hit,) = Index({str(tmp_path / 'index')!r}).add({str(tmp_path / 'mill.txt')!r}).search('who has the mill?')\n"
        "assert hit.document == 'mill.txt'; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    long = Index(tmp_path / "index").search("mill " * 200)
    assert long[0].document == "mill.txt"


def test_an_index_of_shortened_vectors_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mill.txt").write_text("The old mill is sold.")
    shortened = Encoder.from_pretrained("minilm-16k", truncate_dim=64)
    Index(tmp_path / "index", shortened).add(tmp_path / "mill.txt")
    with pytest.raises(ConfigurationError, match="dimensions: 64 there, 384 now"):
        Index(tmp_path / "index")
