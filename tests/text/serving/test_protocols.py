"""The routes of OpenAI, by its own client, and those for labels and scores give what the inference engine gives."""

import asyncio
import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from starlette.testclient import TestClient

from longform_text.inference.classifiers import Classifier
from longform_text.inference.encoders import Encoder
from longform_text.serving.engine import Engine
from longform_text.serving.settings import ServingSettings

from .conftest import running

READ = ["the near text", "x", "good bad long short, " * 4, "a b c d e f g h i j k l m n", "far " * 100]


@pytest.fixture(scope="module")
def encoder(engine: Engine) -> Encoder:
    return engine.encoder()


@pytest.fixture(scope="module")
def ours(client: TestClient) -> openai.OpenAI:
    return openai.OpenAI(api_key="none", base_url="http://testserver/v1", http_client=client, max_retries=0)


def vectors(found: Any) -> np.ndarray:
    return np.array([each.embedding for each in found.data])


def near(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("encoding", [None, "float", "base64"])
def test_vectors_are_those_of_encode(ours: openai.OpenAI, encoder: Encoder, encoding: str | None) -> None:
    chosen = {} if encoding is None else {"encoding_format": encoding}
    found = ours.embeddings.create(input=READ, model="tiny", **chosen)  # ty: ignore[invalid-argument-type]
    if encoding == "base64":
        decoded = [np.frombuffer(base64.b64decode(each.embedding), "<f4") for each in found.data]
        near(np.stack(decoded), encoder.encode(READ))
    else:
        near(vectors(found), encoder.encode(READ))
    tokens = sum(min(64, len(encoder.tokenizer(text)["input_ids"])) for text in READ)
    assert (found.usage.prompt_tokens, found.usage.total_tokens, found.model) == (tokens, tokens, "tiny")
    assert [each.index for each in found.data] == list(range(len(READ)))


def test_one_text_token_ids_and_dimensions(ours: openai.OpenAI, encoder: Encoder) -> None:
    near(vectors(ours.embeddings.create(input="the near text", model="tiny")), encoder.encode(["the near text"]))
    plain = [encoder.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"] for text in READ]
    near(vectors(ours.embeddings.create(input=plain, model="tiny")), encoder.encode(READ))
    near(vectors(ours.embeddings.create(input=plain[0], model="tiny")), encoder.encode(READ[:1]))
    whole = encoder.tokenizer(READ[0])["input_ids"]
    near(vectors(ours.embeddings.create(input=whole, model="tiny")), encoder.encode(READ[:1]))
    short = vectors(ours.embeddings.create(input=READ, model="tiny", dimensions=5, user="somebody"))
    near(short, encoder.encode(READ, truncate_dim=5, normalise=True))
    near(np.linalg.norm(short, axis=1), 1.0)


def test_the_asynchronous_client_many_at_once(engine: Engine, encoder: Encoder) -> None:
    async def ask() -> list[Any]:
        async with running(engine) as (http, _):
            theirs = openai.AsyncOpenAI(api_key="none", base_url="http://testserver/v1", http_client=http)
            asked = (theirs.embeddings.create(input=READ[number % 5], model="tiny") for number in range(40))
            return await asyncio.gather(*asked)

    expected = encoder.encode(READ)
    for number, each in enumerate(asyncio.run(ask())):
        near(vectors(each)[0], expected[number % 5])


def test_models(ours: openai.OpenAI) -> None:
    assert [model.id for model in ours.models.list()] == ["tiny"]


def test_refusals_are_read_by_the_client(ours: openai.OpenAI) -> None:
    for given, words in [("", "at least 1 character"), ([], "at least 1 item"), (["x", ""], "at least 1 character")]:
        with pytest.raises(openai.BadRequestError, match=words) as refused:
            ours.embeddings.create(input=given, model="tiny")
        assert refused.value.code == "empty_input"
    with pytest.raises(openai.BadRequestError, match="dimensions: a vector has 24"):
        ours.embeddings.create(input="x", model="tiny", dimensions=25)
    with pytest.raises(openai.BadRequestError, match="100000 is no token of tiny"):
        ours.embeddings.create(input=[100000], model="tiny")


TEXTS = ["the near text", "x", "good bad long short, " * 4]
LONG = " ".join(str(number % 10) for number in range(200))
Serve = Callable[..., TestClient]


@pytest.fixture(scope="module")
def classifier(serve: Serve, classifier_folder: Path) -> tuple[TestClient, Classifier]:
    engine = Engine.load(str(classifier_folder), ServingSettings())
    return serve(engine, name="labels"), engine.classifier()


@pytest.fixture(scope="module")
def reranker(serve: Serve, reranker_folder: Path) -> tuple[TestClient, Classifier]:
    engine = Engine.load(str(reranker_folder), ServingSettings())
    return serve(engine), engine.classifier()


def test_a_prompt_by_its_name(client: TestClient, ours: openai.OpenAI, encoder: Encoder) -> None:
    for given in (TEXTS, [encoder.tokenizer(text, add_special_tokens=False)["input_ids"] for text in TEXTS]):
        asked = ours.embeddings.create(input=given, model="tiny", dimensions=7, extra_body={"prompt_name": "query"})
        near(vectors(asked), encoder.encode(TEXTS, prompt_name="query", truncate_dim=7, normalise=True))
    with pytest.raises(openai.BadRequestError, match="its prompts: query, document"):
        ours.embeddings.create(input="x", model="tiny", extra_body={"prompt_name": "other"})


def test_long_texts_are_cut_or_refused(client: TestClient, serve: Serve, engine: Engine) -> None:
    cut = client.post("/v1/embeddings", json={"input": [LONG, "x"]})
    near([each["embedding"] for each in cut.json()["data"]], engine.encoder().encode([LONG, "x"]))
    assert cut.headers["X-Truncated-Tokens"] == str(200 - 62)
    refused = serve(engine, on_long="error").post("/v1/embeddings", json={"input": [LONG, "x"]})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert "text 0 has 202 tokens, the model takes 64" in refused.json()["error"]["message"]
    assert "X-Truncated-Tokens" not in client.post("/v1/embeddings", json={"input": TEXTS}).headers


def test_predict_of_single_texts_and_pairs(classifier: tuple[TestClient, Classifier]) -> None:
    client, ours = classifier
    records: Any = ours.predict(TEXTS)
    for given in (TEXTS[0], [TEXTS[0]]):
        found = client.post("/predict", json={"inputs": given}).json()
        assert [each["label"] for each in found] == sorted(
            records[0]["scores"], key=lambda label: -records[0]["scores"][label]
        )
        near([each["score"] for each in found], sorted(records[0]["scores"].values(), reverse=True))
    several = client.post("/predict", json={"inputs": [[text] for text in TEXTS]}).json()
    for each, record in zip(several, records, strict=True):
        near({one["label"]: one["score"] for one in each}[record["label"]], record["score"])
    pair = client.post("/predict", json={"inputs": ["the near", "far text"], "raw_scores": True}).json()
    logits = ours.logits([("the near", "far text")])[0]
    near([each["score"] for each in pair], sorted(logits, reverse=True))
    mixed = client.post("/predict", json={"inputs": [["x"], ["x", "y"]]})
    assert (mixed.status_code, mixed.json()["error"]["message"]) == (
        400, "inputs: 1 of 2 are pairs: either all are, or none"
    )  # fmt: skip


def test_rerank(reranker: tuple[TestClient, Classifier], client: TestClient) -> None:
    theirs, ours = reranker
    logits = ours.logits([("near", text) for text in TEXTS])[:, 0]
    found = theirs.post("/v1/rerank", json={"query": "near", "documents": TEXTS}).json()["results"]
    assert [each["index"] for each in found] == np.argsort(-logits).tolist()
    near([each["relevance_score"] for each in found], 1 / (1 + np.exp(-np.sort(logits)[::-1])))
    best = theirs.post("/v1/rerank", json={"query": "near", "documents": TEXTS, "top_n": 1}).json()
    assert (best["results"], best["model"]) == (found[:1], theirs.get("/info").json()["model_id"])


def test_a_model_of_another_kind_is_refused(client: TestClient, classifier: tuple[TestClient, Classifier]) -> None:
    labels, _ = classifier
    for route, body in [
        ("/v1/embeddings", {"input": "x"}), ("/chunks", {"inputs": "x"}),
        ("/v1/rerank", {"query": "x", "documents": ["y"]}),
    ]:  # fmt: skip
        refused = labels.post(route, json=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found"), route
    assert client.post("/predict", json={"inputs": "x"}).status_code == 404


def test_info_and_health(client: TestClient, classifier: tuple[TestClient, Classifier], sentence_folder: Path) -> None:
    for route in ("/", "/health"):
        assert client.get(route).status_code == 200
    browser = client.get("/", headers={"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}, follow_redirects=False)
    assert (browser.status_code, browser.headers["location"]) == (307, "ui")
    info = client.get("/info").json()
    assert (info["model_id"], info["max_input_length"], info["model_dtype"]) == ("tiny", 64, "float32")
    assert str(sentence_folder.parent) not in client.get("/info").text
    labels = classifier[0].get("/info").json()
    assert labels["model_type"]["classifier"]["id2label"] == {"0": "bad", "1": "good", "2": "odd"}
