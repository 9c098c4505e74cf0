"""The server's routes beside those of others: chunks, search, counts."""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from longform import Index
from longform.errors import ConfigurationError
from longform_text.search import index as indexing
from longform_text.serving.engine import Engine
from longform_text.serving.settings import ServingSettings

LONG = "".join(f"The near {number} is far. " for number in range(60))  # more than 64 tokens: read in stretches
TEXTS = ["good bad long short, " * 4, LONG, "x", "ünder 🙂 far"]


def check(found: dict[str, Any], engine: Engine, texts: list[Any], **options: Any) -> None:
    expected = engine.encoder().encode_chunks(texts, **options)
    for document, own in zip(found["documents"], expected, strict=True):
        assert [(each["start"], each["end"]) for each in document["chunks"]] == list(map(tuple, own.spans.tolist()))
        vectors = [each["embedding"] for each in document["chunks"]]
        np.testing.assert_allclose(vectors, own.vectors, rtol=0, atol=1e-5)


def test_chunks(client: TestClient, engine: Engine) -> None:
    found = client.post("/chunks", json={"inputs": TEXTS, "chunk_tokens": 9, "overlap": 2}).json()
    check(found, engine, TEXTS, chunk_tokens=9, overlap=2)
    sentences = client.post("/chunks", json={"inputs": LONG, "chunk_tokens": 20, "boundaries": "sentences"}).json()
    check(sentences, engine, [LONG], chunk_tokens=20, boundaries="sentences")
    assert sentences["model"] == "tiny"
    assert sum(each["tokens"] for each in sentences["documents"][0]["chunks"]) < sentences["tokens"]


def test_weight_and_titles(client: TestClient, engine: Engine) -> None:
    titles = ["near", "", " far ", "good"]
    body = {"inputs": TEXTS, "titles": titles, "chunk_tokens": 9, "document_weight": 0.5}
    rows = [{"text": text, "title": title} for text, title in zip(TEXTS, titles, strict=True)]
    check(
        client.post("/chunks", json=body).json(), engine, rows, chunk_tokens=9, document_weight=0.5, title_field="title"
    )
    for refused in ({"titles": titles[:2]}, {"document_weight": -0.5}, {"document_weight": "a"}):
        assert client.post("/chunks", json=body | refused).status_code == 400


def test_a_long_text_is_read_elsewhere_with_the_same_result(client: TestClient, engine: Engine) -> None:
    text = LONG * 20
    assert len(text) > 16_384
    check(client.post("/chunks", json={"inputs": text, "chunk_tokens": 40}).json(), engine, [text], chunk_tokens=40)


def test_what_cannot_be_cut(client: TestClient) -> None:
    for body in ({"chunk_tokens": 63}, {"chunk_tokens": 5, "overlap": 5}, {"boundaries": "words"}, {"chunk_tokens": 0}):
        refused = client.post("/chunks", json={"inputs": LONG, **body})
        assert refused.status_code == 400, body
        assert "The near" not in refused.text


FILES = {"near.txt": "The near text is good. ", "far.html": "<title>Far</title><p>The <i>far</i> text &lt;is&gt; bad."}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def read(client: TestClient) -> dict[str, Any]:
    """An answer after all is read."""
    for _ in range(600):
        answer = client.post("/v1/search", json={"query": "near", "k": 5}).json()
        if answer.get("passages") == len(FILES) and answer["seconds_left"] is None:
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
        raise RuntimeError("the disk is full")  # whatever it is

    monkeypatch.setattr(indexing.Adding, "run", broken)
    client = serve(engine, documents=str(folder))
    for _ in range(200):
        answer = client.post("/v1/search", json={"query": "near"}).json()
        if answer.get("failure"):
            break
        time.sleep(0.05)
    assert (answer["failure"], answer["passages"]) == ("the disk is full", 0)


def test_files_that_are_passed_over_are_named(serve: Callable[..., TestClient], engine: Engine, folder: Path) -> None:
    (folder / "damaged.docx").write_bytes(b"PK")
    (folder / "picture.png").write_bytes(b"PNG")
    answer = read(serve(engine, documents=str(folder)))
    assert (answer["failure"], answer["files_passed_over"]) == ("", 2)
    assert "not a readable docx file" in answer["passed_over"]["damaged.docx"]


def test_routes_are_known_below_a_proxys_path(serve: Callable[..., TestClient], engine: Engine) -> None:
    client = serve(engine, root_path="/longform/")
    assert "url: '/longform/openapi.json'" in client.get("/docs").text
    assert client.get("/openapi.json").json()["servers"] == [{"url": "/longform"}]
    with pytest.raises(ConfigurationError, match='root_path is "longform"; it begins with a slash'):
        ServingSettings(root_path="longform")


def counted(client: TestClient) -> dict[str, float]:
    text = client.get("/metrics").text
    return {name: float(value) for name, value in re.findall(r"^(longform_\S+) (\S+)$", text, re.MULTILINE)}


def test_requests_tokens_batches_seconds_and_memory(client: TestClient, engine: Engine) -> None:
    before = counted(client)
    client.post("/v1/embeddings", json={"input": ["near far", "x " * 100]})
    client.post("/v1/embeddings", json={"input": []})
    client.get("/what/ever")
    client.get("/what/else")
    after = counted(client)

    def more(name: str) -> float:
        return after[name] - before.get(name, 0.0)

    assert more('longform_requests_total{route="/v1/embeddings",status="200"}') == 1
    assert more('longform_requests_total{route="/v1/embeddings",status="400"}') == 1
    assert more('longform_requests_total{route="other",status="404"}') == 2
    assert more("longform_tokens_total") == 4 + 64
    assert more("longform_truncated_tokens_total") == 102 - 64
    assert more("longform_batch_texts_sum") == 2
    assert more('longform_seconds_count{phase="wait"}') == 2
    for phase in ("tokenize", "model", "request"):
        assert more(f'longform_seconds_count{{phase="{phase}"}}') >= 1
    weights = sum(tensor.nbytes for tensor in engine.runner.model.parameters())
    assert after["longform_model_bytes"] >= weights
    assert (after["longform_waiting_texts"], after["longform_waiting_tokens"], after["longform_ready"]) == (0, 0, 1)
    assert after["longform_requests_running"] == 1  # this one
