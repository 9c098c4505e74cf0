"""The server is as tolerant as those whose clients it has: browsers, monitors, keys from files."""

import urllib.error
import urllib.request
from typing import Any

import pytest
from starlette.testclient import TestClient

from longform.errors import ConfigurationError
from longform_text.serving.engine import Engine
from longform_text.serving.settings import ServingSettings

ORIGIN = {"Origin": "https://example.org"}
OPTIONAL = {
    "/v1/embeddings": ({"input": "x"}, ("model", "user", "dimensions", "encoding_format", "prompt_name")),
    "/chunks": (
        {"inputs": "x"},
        (
            "chunk_tokens", "overlap", "boundaries", "prompt_name", "normalize", "dimensions", "document_weight",
            "titles",
        ),
    ),
    "/predict": ({"inputs": "x"}, ("raw_scores",)),
    "/v1/rerank": ({"query": "x", "documents": ["y"]}, ("model", "top_n")),
}  # fmt: skip
LARGE = 20_000_000  # more than the buffers of a connection hold


@pytest.fixture(scope="module")
def reranker(serve: Any, reranker_folder: Any) -> TestClient:
    return serve(Engine.load(str(reranker_folder), ServingSettings()))


@pytest.mark.parametrize("route", OPTIONAL)
def test_null_is_the_default_of_every_optional_field(client: TestClient, reranker: TestClient, route: str) -> None:
    asked = reranker if route in ("/predict", "/v1/rerank") else client
    body, names = OPTIONAL[route]
    plain = asked.post(route, json=body)
    assert plain.status_code == 200
    for some in (*((name,) for name in names), names):
        found = asked.post(route, json={**body, **dict.fromkeys(some)})
        assert (found.status_code, found.json()) == (200, plain.json()), some
    schema = asked.get("/openapi.json").json()
    kind = schema["paths"][route]["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    fields = schema["components"]["schemas"][kind.rsplit("/", 1)[1]]
    optional = set(fields["properties"]) - set(fields["required"])
    assert optional == set(names)
    assert all({"type": "null"} in fields["properties"][name]["anyOf"] for name in optional)


def test_the_model_by_its_name(client: TestClient) -> None:
    (model,) = client.get("/v1/models").json()["data"]
    assert client.get(f"/v1/models/{model['id']}").json() == model
    other = client.get("/v1/models/gpt-4")
    assert (other.status_code, other.json()["error"]["message"]) == (404, "there is one model here: tiny")


def test_null_for_what_is_needed_is_refused(client: TestClient) -> None:
    refused = client.post("/v1/embeddings", json={"input": None})
    assert refused.json()["error"]["message"] == "input: Field required"
    null = client.post("/v1/embeddings", content=b"null", headers={"Content-Type": "application/json"})
    assert null.status_code == 400


def test_head_is_get_without_a_body(client: TestClient) -> None:
    for path in ("/", "/health", "/ui", "/metrics", "/info", "/v1/models", "/openapi.json", "/nowhere"):
        head, get = client.head(path), client.get(path)
        assert (head.status_code, head.content) == (get.status_code, b""), path
        assert head.headers["content-type" if get.content else "content-length"] is not None
    assert client.head("/v1/embeddings").status_code == 405


@pytest.mark.parametrize("key", ["secret", "secret\n", " secret\r\n"])
@pytest.mark.parametrize("given", ["Bearer secret", "bearer secret", "BEARER  secret "])
def test_keys(serve: Any, engine: Engine, key: str, given: str) -> None:
    client = serve(engine, api_key=key)
    assert client.get("/v1/models", headers={"Authorization": given}).status_code == 200
    assert client.get("/v1/models", headers={"Authorization": given + "x"}).status_code == 401


@pytest.mark.parametrize("key", ["", "\n", "a\nb", "schlüssel"])
def test_keys_that_no_header_takes(key: str) -> None:
    with pytest.raises(ConfigurationError, match="api_key is empty, or has characters"):
        ServingSettings(api_key=key)


@pytest.mark.parametrize("origins", [("https://example.org",), ("https://example.org/",), ("*",)])
def test_pages_of_an_origin_that_is_named_see_every_answer(serve: Any, engine: Engine, origins: tuple[str]) -> None:
    client = serve(engine, cors_origins=origins, api_key="key", max_request_bytes=1000)
    key = {"Authorization": "Bearer key"}
    for headers in ("authorization,content-type,x-stainless-os,x-stainless-lang", "traceparent", "content-type"):
        asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": headers}
        allowed = client.options("/v1/embeddings", headers={**ORIGIN, **asked})
        assert (allowed.status_code, allowed.headers["access-control-allow-headers"]) == (200, headers)
    found = [
        client.post("/v1/embeddings", json={"input": "x"}, headers=ORIGIN),
        client.post("/v1/embeddings", json={"input": "x"}, headers={**ORIGIN, **key}),
        client.post("/v1/embeddings", json={"input": 3}, headers={**ORIGIN, **key}),
        client.post("/v1/embeddings", json={"input": "x" * 1000}, headers={**ORIGIN, **key}),
        client.post("/v1/embeddings", content=b"x", headers={**ORIGIN, **key}),
        client.get("/v1/embeddings", headers={**ORIGIN, **key}),
        client.get("/nowhere", headers={**ORIGIN, **key}),
        client.head("/health", headers=ORIGIN),
    ]
    assert [each.status_code for each in found] == [401, 200, 400, 413, 415, 405, 404, 200]
    for each in found:
        assert each.headers["access-control-allow-origin"] in ("https://example.org", "*")
        assert each.headers["access-control-expose-headers"] == "*"
    if origins != ("*",):
        other = client.post("/v1/embeddings", json={"input": "x"}, headers={"Origin": "https://other.example", **key})
        assert "access-control-allow-origin" not in other.headers


@pytest.mark.parametrize("named", ["length", "chunks"])
@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/v1/embeddings", {"Authorization": "Bearer key", "Content-Type": "application/json"}, 413),
        ("/v1/embeddings", {"Content-Type": "application/json"}, 401),
        ("/v1/embeddings", {"Authorization": "Bearer key", "Content-Type": "text/plain"}, 415),
        ("/nowhere", {"Authorization": "Bearer key", "Content-Type": "application/json"}, 404),
        ("/health", {"Content-Type": "application/json"}, 405),
    ],
)
def test_a_refusal_reaches_a_client_that_sends_all_of_its_body_first(
    serve_at: Any, engine: Engine, path: str, headers: dict[str, str], status: int, named: str
) -> None:
    address = serve_at(engine, api_key="key", max_request_bytes=100_000)
    body: Any = b"x" * LARGE if named == "length" else (b"x" * 100_000 for _ in range(LARGE // 100_000))
    asked = urllib.request.Request(f"http://{address}{path}", data=body, headers=headers, method="POST")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(asked, timeout=30)
    status = 413 if named == "length" and status in (404, 405) else status  # known before the route is
    with refused.value as answer:
        assert (answer.code, "error" in answer.read().decode()) == (status, True)
