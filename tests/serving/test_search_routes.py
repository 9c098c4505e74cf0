"""/v1/search: passages of the folder that the server was given, also while they are being read."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from longform import Index
from longform.errors import ConfigurationError
from longform.search import index as indexing
from longform.serving.engine import Engine
from longform.serving.settings import ServingSettings

TEXTS = {"near.txt": "The near text is good. ", "far.html": "<title>Far</title><p>The <i>far</i> text &lt;is&gt; bad."}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in TEXTS.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def read(client: TestClient) -> dict[str, Any]:
    """An answer after all is read."""
    for _ in range(600):
        answer = client.post("/v1/search", json={"query": "near", "k": 5}).json()
        if answer.get("passages") == len(TEXTS) and answer["seconds_left"] is None:
            return answer
        time.sleep(0.05)
    raise AssertionError(answer)


def test_the_answer_is_that_of_the_index(
    serve: Callable[..., TestClient], engine: Engine, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    client = serve(engine, documents=str(folder))
    answer = read(client)
    expected = Index(tmp_path_factory.mktemp("index") / "own", engine.encoder()).add(folder).search("near", 5)
    assert answer["object"] == "list"
    assert answer["failure"] == ""
    found = [(Path(hit["document"]).name, hit["title"], hit["passage"], hit["marks"]) for hit in answer["data"]]
    assert found == [
        (Path(hit.document).name, hit.title, hit.passage, [list(mark) for mark in hit.marks]) for hit in expected
    ]
    assert "The far text <is> bad." in [hit["passage"] for hit in answer["data"]]
    assert client.get("/info").json()["documents"] == folder.name


def test_a_document_is_shown_whole(serve: Callable[..., TestClient], engine: Engine, folder: Path) -> None:
    text = "The near text is good, it is a long one. " * 60
    (folder / "near.txt").write_text(text)
    (folder / "rows.jsonl").write_text('{"body": "The far text is bad.", "id": "f", "title": "Far"}\n')
    client = serve(engine, documents=str(folder), text_field="body")
    for _ in range(600):
        answer = client.post("/v1/search", json={"query": "near", "k": 5}).json()
        if answer.get("data") and answer["seconds_left"] is None and len(answer["data"]) == 3:
            break
        time.sleep(0.05)
    names = {Path(hit["document"]).name: hit["document"] for hit in answer["data"]}
    shown = client.post("/v1/search/document", json={"document": names["near.txt"]}).json()
    assert (shown["object"], shown["title"], shown["data"][0]["place"]) == ("document", "near", "line 1")
    assert len(shown["data"]) > 1
    assert "".join(each["passage"] for each in shown["data"]).replace(" ", "") == text.replace(" ", "")
    records = client.post("/v1/search/document", json={"document": names["rows.jsonl:f"]}).json()
    assert (records["title"], [each["passage"] for each in records["data"]]) == ("Far", ["The far text is bad."])
    refused = client.post("/v1/search/document", json={"document": "../near.txt"})
    assert refused.status_code == 404
    assert 'no document "../near.txt"' in refused.json()["error"]["message"]


def test_what_cannot_be_answered(
    serve: Callable[..., TestClient], client: TestClient, engine: Engine, folder: Path
) -> None:
    refused = client.post("/v1/search", json={"query": "near"})
    assert refused.status_code == 404
    assert "--documents FOLDER" in refused.json()["error"]["message"]
    searching = serve(engine, documents=str(folder))
    read(searching)
    for body in ({"query": ""}, {"query": " "}, {"query": "x", "k": 0}, {}):
        assert searching.post("/v1/search", json=body).status_code == 400, body
    with pytest.raises(ConfigurationError, match="which is no folder"):
        ServingSettings(documents=str(folder / "near.txt"))


def test_a_folder_that_cannot_be_read_is_said(
    serve: Callable[..., TestClient], engine: Engine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: Any, **options: Any) -> Any:
        raise OSError("the disk is full")

    monkeypatch.setattr(indexing.Store, "write", broken)
    client = serve(engine, documents=str(folder))
    for _ in range(200):
        answer = client.post("/v1/search", json={"query": "near"}).json()
        if answer.get("failure"):
            break
        time.sleep(0.05)
    assert (answer["failure"], answer["passages"]) == ("the disk is full", 0)
