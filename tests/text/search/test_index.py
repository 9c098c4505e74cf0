"""An index of a folder: what is new is read, what has changed or gone is forgotten, and a kill loses a part at most."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import save_bert

from longform import Encoder, Index
from longform.errors import CheckpointError, ConfigurationError, DataError, InputError
from longform.files import only_writer
from longform_text.inference import chunks
from longform_text.search import index as indexing
from longform_text.search import store as storing
from longform_text.search.ranking import Searched

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


def passages(index: Index) -> list[tuple[str, str, int, str]]:
    """What is searched, in order."""
    kept = index.searched
    rows = [part.row(at) for part in kept.parts for at in range(len(part))]
    return sorted((rows[at].file, rows[at].document, rows[at].start, rows[at].text) for at in kept.rows)


def test_what_is_found_and_where(folder: Path, encoder: Encoder) -> None:
    index = open_index(folder, encoder).add(folder)
    assert index.report.read == 5
    assert list(index.report.passed_over) == ["picture.png"]
    assert "of no kind that is read" in index.report.passed_over["picture.png"]
    found = {hit.document: hit for hit in index.search("which one is SHORT?")}
    assert sorted(found) == ["deep/below.txt", "far.md", "near.txt", "page.html", "rows.jsonl:b", "rows.jsonl:g"]
    hit = found["page.html"]
    assert (hit.title, hit.place) == ("Long", "characters 0-38")
    assert [hit.passage[start:end] for start, end in hit.marks] == ["short"]
    assert hit.passage == "a long short text of the near <b> kind"
    assert found["far.md"].place == "line 1"
    several = index.search("near", 3, passages=2)
    assert max(sum(each.document == hit.document for each in several) for hit in several) == 2


def test_vectors_are_those_of_the_whole_reading(folder: Path, encoder: Encoder) -> None:
    index = open_index(folder, encoder).add(folder / "near.txt")
    expected = encoder.encode_chunks(DOCUMENTS["near.txt"], chunk_tokens=24, boundaries="sentences").vectors
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    (part,) = index.searched.parts
    assert isinstance(part.vectors, np.memmap)
    np.testing.assert_allclose(part.vectors, expected, rtol=0, atol=2e-5)


def test_a_title_is_added_to_each_passage(folder: Path, encoder: Encoder) -> None:
    def unit(vectors: np.ndarray) -> np.ndarray:
        return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)

    index = Index(folder / ".longform", encoder, chunk_tokens=24, title_weight=0.5).add(folder / "far.md", folder)
    how: Any = {"chunk_tokens": 24, "boundaries": "sentences"}
    for part in index.searched.parts:
        for at, row in enumerate(part.rows()):
            path = folder / row.file
            if path.suffix not in (".txt", ".md"):
                continue
            chunks = encoder.encode_chunks(path.read_text(), **how)
            vector = chunks.vectors[chunks.spans[:, 0].tolist().index(row.start)]
            title = encoder.encode({"far.md": "Far text", "near.txt": "near", "deep/below.txt": "below"}[row.file])
            np.testing.assert_allclose(part.vectors[at], unit(unit(vector) + 0.5 * unit(title)), rtol=0, atol=2e-5)
    with pytest.raises(ConfigurationError, match=r"title_weight: 0\.5 there, None now"):
        open_index(folder, encoder)


def test_an_index_of_before_titles_had_a_weight_is_opened(folder: Path, encoder: Encoder) -> None:
    about = open_index(folder, encoder).add(folder).folder / "index.json"
    known = json.loads(about.read_text())
    assert known.pop("title_weight") is None
    about.write_text(json.dumps(known))
    assert open_index(folder, encoder).add(folder).report.read == 0


def test_only_what_is_new_or_changed_is_read(folder: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    reader = indexing.read_file
    monkeypatch.setattr(indexing, "read_file", lambda path, name, field: read.append(name) or reader(path, name, field))
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
    texts = [text for *_, text in passages(index)]
    assert "now it is a good text" in texts
    assert not any("far it is bad" in text or "short" in text for text in texts)
    assert passages(open_index(folder, encoder)) == passages(index)


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


def test_a_folder_of_many_files_has_few_parts(folder: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = passages(open_index(folder, encoder).add(folder))
    monkeypatch.setattr(storing, "SMALL_PARTS", 2)
    monkeypatch.setattr(storing, "LARGE", 12)
    index = Index(folder.parent / "other", encoder, chunk_tokens=24)
    for name in DOCUMENTS:
        index.add(folder / name)
    assert len(list((folder.parent / "other" / "parts").iterdir())) == len(index.searched.parts) < 5
    names = [(Path(file).name, *others) for file, _, *others in passages(index)]
    assert sorted(names) == sorted((Path(file).name, *others) for file, _, *others in whole)


CHILD = """
import os, signal, sys
from pathlib import Path
from longform import Encoder, Index
from longform_text.inference import chunks as reading
from longform_text.search import index as indexing, store as storing

indexing.SECONDS, indexing.READ_TOGETHER = -1, 1
count = 0
def counted(made, place):
    def call(*given, **named):
        global count
        count += place == sys.argv[3]
        if count == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return made(*given, **named)
    return call
reading.chunk_outcomes = counted(reading.chunk_outcomes, "encoding")
storing.np.save = counted(storing.np.save, "writing")
storing.write_json = counted(storing.write_json, "listing")
Index(Path(sys.argv[1], ".longform"), Encoder.from_pretrained(sys.argv[2]), chunk_tokens=24).add(sys.argv[1])
"""


@pytest.mark.parametrize("place", ["encoding", "writing", "listing"])
def test_a_killed_process_is_gone_on_with(
    place: str, folder: Path, encoder: Encoder, longform_folder: Path, tmp_path: Path
) -> None:
    expected = passages(Index(tmp_path / "whole" / ".longform", encoder, chunk_tokens=24).add(folder))
    done = subprocess.run([sys.executable, "-c", CHILD, folder, longform_folder, place], capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    begun = open_index(folder, encoder)
    assert len(begun) < len(expected)
    index = begun.add(folder)
    assert index.report.read <= 5
    assert [each[1:] for each in passages(index)] == [
        (document.removeprefix("../texts/"), *rest) for _, document, *rest in expected
    ]
    assert len(list((folder / ".longform" / "parts").iterdir())) == len(index.searched.parts)


def test_records_are_gone_on_with_in_the_middle(
    tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexing, "SECONDS", -1)
    monkeypatch.setattr(indexing, "READ_TOGETHER", 1)
    rows = "".join(json.dumps({"text": f"text {number}"}) + "\n" for number in range(6))
    (path := tmp_path / "a.jsonl").write_text(rows)
    index, made = Index(tmp_path / "index", encoder), chunks.chunk_outcomes

    def interrupted(encoder: Encoder, documents: list[Any], **options: Any) -> Any:
        if documents and documents[0].text == "text 3":
            raise KeyboardInterrupt
        return made(encoder, documents, **options)

    with monkeypatch.context() as patch:
        patch.setattr(chunks, "chunk_outcomes", interrupted)
        with pytest.raises(KeyboardInterrupt):
            index.add(path)
    assert len(index) == 3
    read: list[str] = []
    monkeypatch.setattr(
        chunks, "chunk_outcomes", lambda e, d, **o: read.extend(each.text for each in d) or made(e, d, **o)
    )
    index.add(path)
    assert read == ["text 3", "text 4", "text 5"]
    assert [text for *_, text in passages(index)] == [f"text {number}" for number in range(6)]


def test_another_model_is_refused_by_name(folder: Path, encoder: Encoder, tmp_path: Path, tiny_tokenizer: Any) -> None:
    open_index(folder, encoder).add(folder)
    other = Encoder.from_pretrained(save_bert(tmp_path / "another-model", tiny_tokenizer))
    with pytest.raises(ConfigurationError, match=r"model: .* there, another-model now.*another folder for the index"):
        open_index(folder, other)
    with pytest.raises(ConfigurationError, match="chunk_tokens: 24 there, 30 now"):
        Index(folder / ".longform", encoder, chunk_tokens=30)


def test_one_process_writes_and_others_search(folder: Path, encoder: Encoder) -> None:
    index = open_index(folder, encoder).add(folder)
    reader = open_index(folder, encoder)
    with only_writer(index.folder), pytest.raises(ConfigurationError, match="being written by another process"):
        index.add(folder)
    (folder / "new.txt").write_text("a new text")
    index.add(folder)
    assert len(reader) < len(index)
    assert reader.search("near", 1)
    reader.refresh()
    assert len(reader) == len(index)


def test_what_is_ready_is_searched_while_more_is_read(
    folder: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexing, "SECONDS", -1)
    monkeypatch.setattr(indexing, "READ_TOGETHER", 1)
    index, found, made = open_index(folder, encoder), list[int](), chunks.chunk_outcomes
    monkeypatch.setattr(
        chunks, "chunk_outcomes", lambda *given, **how: found.append(len(index.search("near"))) or made(*given, **how)
    )
    index.add(folder)
    assert found[0] == 0
    assert found[-1] > 0


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, encoder: Encoder) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious.txt").write_text("near")
    with pytest.raises(ConfigurationError, match=r"not empty \(precious.txt\)"):
        Index(tmp_path / "mine", encoder).add(tmp_path / "mine" / "precious.txt")


def damaged(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20])


def pickled(path: Path) -> None:
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)


@pytest.mark.parametrize(
    ("name", "spoil"),
    [("files.json", damaged), ("parts/00000001/vectors.npy", damaged), ("parts/00000001/vectors.npy", pickled),
     ("parts/00000001/passages.parquet", damaged)],
)  # fmt: skip
def test_a_damaged_index_is_named_and_nothing_is_unpickled(
    folder: Path, encoder: Encoder, name: str, spoil: Callable[[Path], None]
) -> None:
    open_index(folder, encoder).add(folder)
    spoil(folder / ".longform" / name)
    with pytest.raises(CheckpointError, match=r"is damaged .*: delete the folder of the index"):
        open_index(folder, encoder)


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


def test_a_file_that_can_be_read_now(folder: Path, encoder: Encoder) -> None:
    (folder / "rows.csv").write_text("body\nthe near\n")
    index = open_index(folder, encoder).add(folder)
    assert 'no field "text"' in index.report.passed_over["rows.csv"]
    index.add(folder)
    assert index.report.passed_over == {}  # named once
    index.add(folder / "rows.csv", text_field="body")
    assert index.report.read == 1
    assert index.files["rows.csv"].whole


def test_the_passage_itself_is_the_best_among_many(tmp_path: Path) -> None:
    generator, store = np.random.default_rng(0), storing.Store(tmp_path)
    words = [f"word{number}" for number in range(500)]
    for part in range(2):
        names = [f"{part}/{at // 20}" for at in range(600)]
        rows = [storing.Row(name, name, "", "", 0, 0, " ".join(generator.choice(words, 20))) for name in names]
        vectors = generator.standard_normal((len(rows), 24), dtype=np.float32)
        store.write(rows, vectors, {name: storing.FileEntry(1, 1, "key", whole=True) for name in names})
    searched = Searched.of(storing.Store.read(tmp_path))
    row = searched.parts[1].row(432)
    (hit, *_) = searched.best(row.text, np.array(searched.parts[1].vectors[432]), 10, 1)
    assert (hit.document, hit.passage, hit.score) == (row.document, row.text, 2 / 61)
