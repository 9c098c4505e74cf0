"""Bad input gets its documented status, and the server goes on."""

import gzip
import json
from typing import Any

import pytest
from starlette.testclient import TestClient

JSON = {"Content-Type": "application/json"}
BODIES: dict[str, tuple[Any, int]] = {  # what is sent in the place of texts, and the status
    "an empty list": ([], 400),
    "an empty text": ("", 400),
    "an empty text in a list": (["x", ""], 400),
    "a number": (5, 400),
    "numbers": ([1.5, 2.5], 400),
    "null": (None, 400),
    "texts and numbers": (["x", 5], 400),
    "an object": ({"text": "x"}, 400),
    "true": (True, 400),
    "10 MB": ("x" * 10_000_000, 413),
    "100,000 texts": (["x"] * 100_000, 413),
}
RAW: dict[str, tuple[bytes, int]] = {  # whole bodies
    "nothing": (b"", 400),
    "no JSON": (b"{input: x}", 400),
    "not UTF-8": (b'{"input": "\xff\xfe"}', 400),
    "a lone surrogate": (b'{"input": "\\ud800"}', 400),
    "NaN": (b'{"input": "x", "dimensions": NaN}', 400),
    "infinity": (b'{"input": "x", "dimensions": 1e999}', 400),
    "a large number": (b'{"input": "x", "dimensions": 9999999999999999999999}', 400),
    "deep nesting": (b'{"input": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400),
    "nesting": (b'{"input": ' + b"[" * 500 + b"]" * 500 + b"}", 400),
    "a list": (b'["x"]', 400),
    "cut off": (b'{"input": "x', 400),
    "with a byte order mark": (b'\xef\xbb\xbf{"input": "x"}', 400),
}


def check(client: TestClient, sent: dict[str, Any], status: int) -> None:
    refused = client.post("/v1/embeddings", **sent)
    assert refused.status_code == status, refused.text
    message = refused.json()["error"]["message"]
    assert isinstance(message, str)
    assert 0 < len(message) < 600
    assert client.post("/v1/embeddings", json={"input": "x"}).status_code == 200


@pytest.mark.parametrize("name", BODIES)
def test_what_stands_in_the_place_of_texts(client: TestClient, name: str) -> None:
    given, status = BODIES[name]
    check(client, {"content": json.dumps({"input": given}).encode(), "headers": JSON}, status)


@pytest.mark.parametrize("name", RAW)
def test_bodies(client: TestClient, name: str) -> None:
    content, status = RAW[name]
    check(client, {"content": content, "headers": JSON}, status)


def test_content_types_and_compressed_bodies(client: TestClient) -> None:
    body = b'{"input": "x"}'
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        check(client, {"content": body, "headers": {"Content-Type": kind}}, 415)
    bomb = gzip.compress(b" " * 10_000_000)
    check(client, {"content": bomb, "headers": JSON | {"Content-Encoding": "gzip"}}, 415)
    assert client.post(
        "/v1/embeddings", content=body, headers={"Content-Type": "Application/JSON; charset=utf-8"}
    ).is_success


def test_nul_is_read_as_white_space_and_the_last_of_two_keys_counts(client: TestClient) -> None:
    expected = client.post("/v1/embeddings", json={"input": "near far"}).json()
    assert client.post("/v1/embeddings", json={"input": "near\x00far"}).json() == expected
    twice = b'{"input": "other", "input": "near far"}'
    assert client.post("/v1/embeddings", content=twice, headers=JSON).json() == expected


def test_options_of_the_wrong_kind(client: TestClient) -> None:
    for option in (
        {"encoding_format": "int8"}, {"dimensions": "5"}, {"dimensions": 0}, {"dimensions": 2.5}, {"user": 5},
        {"prompt_name": 1},
    ):  # fmt: skip
        assert client.post("/v1/embeddings", json={"input": "x", **option}).status_code == 400, option
    assert client.post("/chunks", json={"inputs": "x", "normalize": 1}).status_code == 400


def test_the_text_is_in_no_refusal(client: TestClient) -> None:
    for body in ({"input": ["secret", 5]}, {"input": "secret", "dimensions": "secret"}, {"input": {"secret": 1}}):
        assert "secret" not in client.post("/v1/embeddings", json=body).text


def test_wrong_routes_and_methods(client: TestClient) -> None:
    error = {"message": "Not Found", "type": "invalid_request_error", "param": None, "code": "not_found"}
    assert client.get("/nowhere").json() == {"error": error}
    refused = client.get("/v1/embeddings")
    assert (refused.status_code, refused.headers["Allow"]) == (405, "POST")
    assert refused.json()["error"]["code"] == "method_not_allowed"
