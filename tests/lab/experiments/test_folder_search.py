"""The folder of the laboratory's questions: what is written for them can be read, and how answers are counted."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from longform_lab.experiments.folder_files import REAL, questions, written, written_files
from longform_lab.experiments.folder_search import Weights, crossed, groups, halves
from longform_text.search.reading import Places, read_file

ITEMS = [
    (place, each)
    for language, own in written().items()
    if language != "real"
    for place, items in own.items()
    for each in items
    if isinstance(each, dict)
]


@pytest.fixture(scope="module")
def files() -> dict[str, str | bytes]:
    return dict(written_files())


def test_questions_are_120_in_four_languages_and_24_without_an_answer() -> None:
    asked = questions()
    assert Counter(each.language for each in asked if each.file) == {
        "English": 60, "German": 20, "French": 20, "Chinese": 20
    }  # fmt: skip
    assert Counter(each.place for each in asked) == {
        REAL: 40, "heading": 16, "footnote": 16, "table": 16, "second page": 16, "paragraph": 16, "none": 24
    }  # fmt: skip
    second = halves(asked)
    for own in groups(asked).values():
        assert abs(2 * second[own].sum() - own.sum()) <= 4


def test_files_are_the_same_each_time(files: dict[str, str | bytes]) -> None:
    assert files == dict(written_files())
    assert len(files) == 160


@pytest.mark.parametrize(("place", "item"), ITEMS, ids=lambda given: given["file"] if isinstance(given, dict) else "")
def test_an_answer_is_read_at_its_place(
    tmp_path: Path, files: dict[str, str | bytes], place: str, item: dict[str, str]
) -> None:
    content = files[item["file"]]
    (path := tmp_path / item["file"]).write_bytes(content if isinstance(content, bytes) else content.encode())
    documents = list(read_file(path, path.name, "text"))
    answer = item["answer"].splitlines()[-1].split(" | ")
    (found,) = (each for each in documents if all(cell in " ".join(each.text.split()) for cell in answer))
    number, _ = Places.of(found).at(found.text.find(answer[0][:12]))
    assert place != "second" or number > 1
    assert place != "heading" or item["answer"] in [each.text for each in found.headings]


def test_what_is_chosen_on_a_half_is_reported_on_the_other() -> None:
    second = np.array([False, True, False, True])
    tried = {"a": np.array([1.0, 0.0, 1.0, 0.2]), "b": np.array([0.5, 1.0, 0.3, 1.0])}
    result, chosen = crossed(tried, second)
    assert chosen == ["b", "a"]
    np.testing.assert_array_equal(result, [0.5, 0.0, 0.3, 0.2])


def test_weights_are_the_shipped_ones() -> None:
    assert Weights() == (0.5, 0.0, 1.0, 1.0)
