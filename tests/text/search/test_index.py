"""An index of a folder: what is new is read, what has changed or gone is forgotten, and nothing ends all."""

import contextlib
import json
import os
import sqlite3
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from index_rows import rows
from tiny_models import save_bert

from longform import Encoder, Index
from longform.errors import CheckpointError, ConfigurationError, DataError, InputError
from longform.files import only_writer
from longform_text.inference import chunks
from longform_text.search import adding, store
from longform_text.search import index as indexing
from longform_text.search.ranking import Searched, fused_scores

DOCUMENTS = {
    "near.txt": "near it is good. " * 40,
    "far.md": "# Far text\n\nfar it is bad. ",
    "page.html": "<title>Long</title><p>a long <b>short</b> text of the near &lt;b&gt; kind</p>",
    "rows.jsonl": '{"text": "the good", "id": "g"}\n{"text": "the bad", "id": "b"}\n',
    "deep/below.txt": "in the far and near. ",
    "picture.png": "no text",
}


@pytest.fixture(scope="module")
def encoder(longform_folder: Path) -> Encoder:
    return Encoder.from_pretrained(longform_folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in DOCUMENTS.items():
        (tmp_path / "texts" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "texts" / name).write_text(text)
    return tmp_path / "texts"


def open_index(folder: Path, encoder: Encoder) -> Index:
    return Index(folder / ".longform", encoder, chunk_tokens=24)


def test_what_is_found_and_where(folder: Path, encoder: Encoder) -> None:
    index = open_index(folder, encoder).add(folder)
    assert index.report.read == 5
    assert list(index.report.passed_over) == ["picture.png"]
    assert "of no kind that is read" in index.report.passed_over["picture.png"]
    found = {hit.document: hit for hit in index.search("which one is SHORT?")}
    assert sorted(found) == ["deep/below.txt", "far.md", "near.txt", "page.html", "rows.jsonl:b", "rows.jsonl:g"]
    hit = found["page.html"]
    assert (hit.file, hit.title, hit.place) == ("page.html", "Long", "characters 0-38")
    assert [hit.passage[start:end] for start, end in hit.marks] == ["short"]
    assert hit.passage == "a long short text of the near <b> kind"
    (hit,) = index.search("bad", 1, within=[folder / "far.md"])
    assert (hit.place, hit.headings) == ("line 3", "Far text")
    several = index.search("near", 3, passages=2)
    assert max(sum(each.document == hit.document for each in several) for hit in several) == 2
    assert index.document("far.md") == ("Far text", [("line 1", "# Far text\n\nfar it is bad.")])
    assert index.document("nothing") == ("", [])


def test_a_search_names_what_it_searches(folder: Path, encoder: Encoder) -> None:
    index = open_index(folder, encoder).add(folder)
    for within, names in (
        (["deep"], {"deep/below.txt"}),
        (["far.md", "rows.jsonl"], {"far.md", "rows.jsonl"}),
        (["no"], set()),
    ):
        assert {hit.file for hit in index.search("near", within=[folder / each for each in within])} == names


def test_vectors_are_those_of_the_whole_reading(folder: Path, encoder: Encoder) -> None:
    index = open_index(folder, encoder).add(folder / "near.txt")
    expected = encoder.encode_chunks(DOCUMENTS["near.txt"], chunk_tokens=24, boundaries="sentences").vectors
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(vectors(index), expected, rtol=0, atol=2e-5)


def vectors(index: Index) -> np.ndarray:
    with store.reading(index.folder) as database:
        return Searched.of(database).vectors


def test_only_what_is_new_or_changed_is_read(folder: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    reader = adding.read_file
    monkeypatch.setattr(adding, "read_file", lambda path, name, field: read.append(name) or reader(path, name, field))
    index = open_index(folder, encoder).add(folder)
    assert sorted(read) == sorted(set(DOCUMENTS) - {"picture.png"})
    read.clear()
    assert open_index(folder, encoder).add(folder).report.read == 0
    os.utime(folder / "near.txt", (1, 1))  # touched, and the same
    assert open_index(folder, encoder).add(folder).report.read == 0
    assert read == []
    (folder / "far.md").write_text("now it is a good text")
    (folder / "page.html").unlink()
    (folder / "new.txt").write_text("a new text")
    index = open_index(folder, encoder).add(folder)
    assert (sorted(read), index.report.read, index.report.removed) == (["far.md", "new.txt"], 2, 1)
    texts = [text for *_, text in rows(index)]
    assert "now it is a good text" in texts
    assert not any("far it is bad" in text or "short" in text for text in texts)
    assert rows(open_index(folder, encoder)) == rows(index)


def test_files_elsewhere_stay_and_a_moved_folder_is_known(folder: Path, encoder: Encoder, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "more.txt").write_text("more of it")
    index = open_index(folder, encoder).add(folder).add(other)
    assert "../other/more.txt" in index.files
    index.add(folder)
    assert "../other/more.txt" in index.files
    folder.rename(tmp_path / "moved")
    assert open_index(tmp_path / "moved", encoder).add(tmp_path / "moved").report.read == 0


def test_the_folder_of_the_index_is_not_read(folder: Path, encoder: Encoder) -> None:
    index = Index(folder / "index", encoder, chunk_tokens=24).add(folder)
    (index.folder / "mine.txt").write_text("near")
    assert "index/mine.txt" not in index.add(folder).files


@pytest.mark.parametrize("documents_together", [1, 2**14])
def test_what_was_begun_is_gone_on_with(
    documents_together: int, tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adding, "TOGETHER", documents_together)
    lines = "".join(json.dumps({"text": f"text {number}"}) + "\n" for number in range(6))
    (tmp_path / "a.jsonl").write_text(lines)
    (tmp_path / "b.txt").write_text(DOCUMENTS["near.txt"] * 20)
    whole = rows(Index(tmp_path / "whole", encoder, chunk_tokens=24).add(tmp_path / "a.jsonl", tmp_path / "b.txt"))
    index, made, seen = Index(tmp_path / "index", encoder, chunk_tokens=24), chunks.pooled, list[int]()

    def interrupted(*given: Any) -> Any:
        seen.append(1)
        if len(seen) == 9:
            raise KeyboardInterrupt
        return made(*given)

    with monkeypatch.context() as patch:
        patch.setattr(chunks, "pooled", interrupted)
        with contextlib.suppress(KeyboardInterrupt):
            index.add(tmp_path / "a.jsonl", tmp_path / "b.txt")
    assert documents_together > 1 or 6 < len(index) < len(whole)
    index.add(tmp_path / "a.jsonl", tmp_path / "b.txt")
    assert rows(index) == whole


def test_another_model_is_refused_by_name(folder: Path, encoder: Encoder, tmp_path: Path, tiny_tokenizer: Any) -> None:
    open_index(folder, encoder).add(folder)
    other = Encoder.from_pretrained(save_bert(tmp_path / "another-model", tiny_tokenizer))
    with pytest.raises(ConfigurationError, match=r"model: .* there, another-model now.*another folder for the index"):
        open_index(folder, other)
    with pytest.raises(ConfigurationError, match="chunk_tokens: 24 there, 30 now"):
        Index(folder / ".longform", encoder, chunk_tokens=30)


def test_one_process_writes_and_others_search_what_is_there(folder: Path, encoder: Encoder) -> None:
    index, reader = open_index(folder, encoder).add(folder), open_index(folder, encoder)
    (folder / "new.txt").write_text("a new text")
    with only_writer(index.folder), pytest.raises(ConfigurationError, match="being written by another process"):
        index.add(folder)
    before = len(reader)
    index.add(folder)
    assert len(reader) == len(index) == before + 1
    assert reader.search("new", 1)[0].document == "new.txt"


def test_what_is_ready_is_searched_while_more_is_read(
    folder: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adding, "TOGETHER", 1)
    index, found, made = open_index(folder, encoder), list[int](), chunks.pooled

    def searched(*given: Any) -> Any:
        thread = threading.Thread(target=lambda: found.append(len(index.search("near"))))
        thread.start()
        thread.join()
        return made(*given)

    monkeypatch.setattr(chunks, "pooled", searched)
    index.add(folder)
    assert (found[0], found[-1]) == (0, 5)


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, encoder: Encoder) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious.txt").write_text("near")
    (tmp_path / "a.txt").write_text("near")
    with pytest.raises(ConfigurationError, match=r"not empty \(precious.txt\)"):
        Index(tmp_path / "mine", encoder).add(tmp_path / "a.txt")


@pytest.mark.parametrize("older", [{"index.json": "{}", "files.json": "{}"}, {"index.sqlite": "user_version"}])
def test_an_older_index_is_made_anew_and_that_is_said(folder: Path, encoder: Encoder, older: dict[str, str]) -> None:
    expected = rows(Index(folder.parent / "other", encoder, chunk_tokens=24).add(folder))
    (folder / ".longform" / "parts" / "00000001").mkdir(parents=True)
    for name, content in older.items():
        (folder / ".longform" / name).write_text(content)
    if "index.sqlite" in older:
        (folder / ".longform" / "index.sqlite").unlink()
        with sqlite3.connect(folder / ".longform" / "index.sqlite") as database:
            database.executescript("CREATE TABLE other (x); PRAGMA user_version = 1")
        database.close()
    index = open_index(folder, encoder)
    assert (len(index), index.search("near")) == (0, [])
    assert "of an older format" in "".join(index.add(folder).report.remarks)
    assert [each[2:] for each in rows(index)] == [each[2:] for each in expected]
    assert sorted(os.listdir(index.folder)) == ["index.sqlite"]


@pytest.mark.parametrize("at", [0, 100])
def test_a_damaged_index_is_named(folder: Path, encoder: Encoder, at: int) -> None:
    path = open_index(folder, encoder).add(folder).folder / "index.sqlite"
    content = path.read_bytes()
    path.write_bytes(content[:at] + b"\xff" * 3000 + content[at + 3000 :])
    with pytest.raises((CheckpointError, ConfigurationError), match="delete the folder of the index"):
        open_index(folder, encoder).search("near")


def test_mistakes(folder: Path, encoder: Encoder) -> None:
    index = open_index(folder, encoder)
    assert index.search("near") == []
    with pytest.raises(InputError, match="the question is empty"):
        index.search(" ")
    with pytest.raises(ConfigurationError, match="k=0 and passages=1"):
        index.search("near", 0)
    with pytest.raises(DataError, match="does not exist"):
        index.add(folder / "nowhere")
    with pytest.raises(ConfigurationError, match="chunk_tokens is 0"):
        Index(folder / ".longform", encoder, chunk_tokens=0)


@pytest.mark.parametrize(
    "question",
    ["--", '"near" AND (', "near*", "near OR", "?!", "\udcff near", "NEAR(a b)", "a:b", "^near -far", "near " * 3000],
)
def test_a_question_is_words_whatever_it_looks_like(folder: Path, encoder: Encoder, question: str) -> None:
    assert open_index(folder, encoder).add(folder).search(question, 1)


def test_a_file_that_can_be_read_now(folder: Path, encoder: Encoder) -> None:
    (folder / "rows.csv").write_text("body\nthe near\n")
    index = open_index(folder, encoder).add(folder)
    assert 'no field "text"' in index.report.passed_over["rows.csv"]
    index.add(folder)
    assert index.report.passed_over == {}  # named once
    assert 'no field "text"' in index.passed_over()["rows.csv"]
    index.add(folder / "rows.csv", text_field="body")
    assert index.report.read == 1
    assert index.files["rows.csv"].whole


def test_what_a_package_that_is_missing_would_read_is_tried_again(
    folder: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(__import__("sys").modules, "turbohtml", None)
        index = open_index(folder, encoder).add(folder)
    assert 'this needs the package "turbohtml"' in index.report.passed_over["page.html"]
    assert index.add(folder).report.read == 1


def test_no_file_ends_the_reading_of_others(folder: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "nowhere.txt").symlink_to("gone")
    (folder / "loop").symlink_to("loop")
    (folder / "damaged.docx").write_bytes(b"PK")
    reader = adding.read_file
    failing: dict[str, Exception] = {"far.md": RecursionError("too deep"), "near.txt": PermissionError(13, "no")}

    def fails(path: Path, name: str, field: str) -> Any:
        if name in failing:
            raise failing[name]
        return reader(path, name, field)

    with monkeypatch.context() as patch:
        patch.setattr(adding, "read_file", fails)
        index = open_index(folder, encoder).add(folder)
        patch.setattr(indexing.os, "listdir", lambda place: _refused(place))
        index.add(folder)
    reasons = index.passed_over()
    assert {name: reason[:20] for name, reason in reasons.items() if name != "picture.png"} == {
        "damaged.docx": "not a readable docx ", "far.md": "too deep", "loop": "a link that leads no",
        "near.txt": "[Errno 13] no", "nowhere.txt": "a link that leads no", "deep": "a folder that cannot",
    }  # fmt: skip
    assert index.files["deep/below.txt"].whole  # it may be there again
    assert index.add(folder).report.read == 1  # near.txt may be read now
    assert {entry.whole for name, entry in index.files.items() if name in ("page.html", "rows.jsonl", "near.txt")} == {
        True
    }


def test_a_file_whose_reading_broke_off_is_there_once(
    folder: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = adding.read_file

    def breaks_off(path: Path, name: str, field: str) -> Any:
        for number, document in enumerate(reader(path, name, field)):
            if number:
                raise OSError(5, "Input/output error")
            yield document

    with monkeypatch.context() as patch:
        patch.setattr(adding, "read_file", breaks_off)
        index = open_index(folder, encoder).add(folder)
    assert "Input/output error" in index.passed_over()["rows.jsonl"]
    assert index.add(folder).report.read == 1
    expected = rows(Index(folder.parent / "other", encoder, chunk_tokens=24).add(folder))
    assert [each[2:] for each in rows(index)] == [each[2:] for each in expected]


LISTED = os.listdir


def _refused(place: str) -> list[str]:
    if Path(place).name == "deep":
        raise PermissionError(13, "Permission denied", place)
    return LISTED(place)


def test_a_root_that_is_empty_keeps_its_files(folder: Path, encoder: Encoder, tmp_path: Path) -> None:
    index = Index(tmp_path / "index", encoder, chunk_tokens=24).add(folder)
    before = rows(index)
    folder.rename(tmp_path / "elsewhere")
    folder.mkdir()
    assert "is empty, and its 6 files stay in the index" in index.add(folder).report.remarks[0]
    folder.rmdir()
    with pytest.raises(DataError, match="does not exist"):
        index.add(folder)
    (tmp_path / "elsewhere").rename(folder)
    assert index.add(folder).report.read == 0
    assert rows(index) == before


def test_the_passage_itself_is_the_best_among_many(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    words = [f"word{number}" for number in range(500)]
    vectors = generator.standard_normal((1200, 24), dtype=np.float32)
    texts = [" ".join(generator.choice(words, 20)) for _ in vectors]
    with store.writing(tmp_path) as (database, _), store.changing(database):
        store.identify(database, {"dimensions": 24})
        for first in range(0, 1200, 20):
            name = f"{first}.txt"
            store.put(database, name, store.FileEntry(1, 1, "key", whole=True))
            ends = np.cumsum([0, *map(len, texts[first : first + 20])])
            source = adding.Source(name, "", "".join(texts[first : first + 20]))
            part = store.Part(source, adding.Places.of(source), np.stack([ends[:-1], ends[1:]], axis=1))
            store.append(database, name, part, vectors[first : first + 20])
    with store.reading(tmp_path) as database:
        (hit, *_) = Searched.of(database).best(database, texts[432], vectors[432], 10, 1, None)
    assert (hit.document, hit.passage) == ("420.txt", texts[432])
    assert 0.9 < hit.score <= 1


def test_scores_are_shares_of_the_best() -> None:
    near, words = np.array([0.8, 0.4, -0.2]), np.array([0.0, 3.0, 6.0])
    expected = [1 / 2, 1 / 4 + 1 / 4, -1 / 8 + 1 / 2]
    np.testing.assert_allclose(fused_scores(near, words), expected)
    np.testing.assert_allclose(fused_scores(100 * near, words / 7), expected)  # also where lengths of vectors count
    np.testing.assert_array_equal(fused_scores(near, 0 * words), near / 1.6)  # a word that is nowhere
    np.testing.assert_array_equal(fused_scores(0 * near, 0 * words), [0, 0, 0])
