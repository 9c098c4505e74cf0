"""Chunks of a document by the server are those of ``Encoder.encode_chunks``."""

from typing import Any

import numpy as np
from starlette.testclient import TestClient

from longform.serving.engine import Engine

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
        assert client.post("/chunks", json=body | refused).status_code == 422


def test_a_long_text_is_read_elsewhere_with_the_same_result(client: TestClient, engine: Engine) -> None:
    text = LONG * 20
    assert len(text) > 16_384
    check(client.post("/chunks", json={"inputs": text, "chunk_tokens": 40}).json(), engine, [text], chunk_tokens=40)


def test_what_cannot_be_cut(client: TestClient) -> None:
    for body in ({"chunk_tokens": 63}, {"chunk_tokens": 5, "overlap": 5}, {"boundaries": "words"}, {"chunk_tokens": 0}):
        refused = client.post("/chunks", json={"inputs": LONG, **body})
        assert refused.status_code == 422, body
        assert "The near" not in refused.text
