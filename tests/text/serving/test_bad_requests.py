"""Bad input gets its documented status in each dialect, and the server goes on."""

import gzip
import json
from typing import Any

import pytest
from starlette.testclient import TestClient

JSON = {"Content-Type": "application/json"}
BODIES: dict[str, tuple[Any, int, int]] = {  # what is sent in the place of texts, then the status of each dialect
    "an empty list": ([], 400, 400),
    "an empty text": ("", 400, 400),
    "an empty text in a list": (["x", ""], 400, 400),
    "a number": (5, 422, 400),
    "numbers": ([1.5, 2.5], 422, 400),
    "null": (None, 422, 400),
    "texts and numbers": (["x", 5], 422, 400),
    "an object": ({"text": "x"}, 422, 400),
    "true": (True, 422, 400),
    "10 MB": ("x" * 10_000_000, 413, 413),
    "100,000 texts": (["x"] * 100_000, 413, 413),
}
RAW: dict[str, tuple[bytes, int, int]] = {  # whole bodies
    "nothing": (b"", 422, 400),
    "no JSON": (b"{inputs: x}", 422, 400),
    "not UTF-8": (b'{"inputs": "\xff\xfe", "input": "\xff\xfe"}', 422, 400),
    "a lone surrogate": (b'{"inputs": "\\ud800", "input": "\\ud800"}', 422, 400),
    "NaN": (b'{"inputs": "x", "input": "x", "dimensions": NaN}', 422, 400),
    "infinity": (b'{"inputs": "x", "input": "x", "dimensions": 1e999}', 422, 400),
    "a large number": (b'{"inputs": "x", "input": "x", "dimensions": 9999999999999999999999}', 422, 400),
    "deep nesting": (b'{"inputs": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 422, 400),
    "nesting": (b'{"input": ' + b"[" * 500 + b"]" * 500 + b', "inputs": ' + b"[" * 500 + b"]" * 500 + b"}", 422, 400),
    "a list": (b'["x"]', 422, 400),
    "cut off": (b'{"inputs": "x', 422, 400),
    "with a byte order mark": (b'\xef\xbb\xbf{"inputs": "x"}', 422, 400),
}


def check(client: TestClient, sent: dict[str, Any], tei: int, theirs: int) -> None:
    for route, status in (("/embed", tei), ("/v1/embeddings", theirs)):
        refused = client.post(route, **sent)
        assert refused.status_code == status, refused.text
        said = refused.json()["error"]
        message = said["message"] if route == "/v1/embeddings" else said
        assert isinstance(message, str)
        assert 0 < len(message) < 600
    assert client.post("/embed", json={"inputs": "x"}).status_code == 200


@pytest.mark.parametrize("name", BODIES)
def test_what_stands_in_the_place_of_texts(client: TestClient, name: str) -> None:
    given, tei, theirs = BODIES[name]
    content = json.dumps({"inputs": given, "input": given}).encode()
    check(client, {"content": content, "headers": JSON}, tei, theirs)


@pytest.mark.parametrize("name", RAW)
def test_bodies(client: TestClient, name: str) -> None:
    content, tei, theirs = RAW[name]
    check(client, {"content": content, "headers": JSON}, tei, theirs)


def test_content_types_and_compressed_bodies(client: TestClient) -> None:
    body = b'{"inputs": "x", "input": "x"}'
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        check(client, {"content": body, "headers": {"Content-Type": kind}}, 415, 415)
    bomb = gzip.compress(b" " * 10_000_000)
    check(client, {"content": bomb, "headers": JSON | {"Content-Encoding": "gzip"}}, 415, 415)
    assert client.post("/embed", content=body, headers={"Content-Type": "Application/JSON; charset=utf-8"}).is_success


def test_nul_is_read_as_white_space_and_the_last_of_two_keys_counts(client: TestClient) -> None:
    expected = client.post("/embed", json={"inputs": "near far"}).json()
    assert client.post("/embed", json={"inputs": "near\x00far"}).json() == expected
    twice = b'{"inputs": "other", "inputs": "near far"}'
    assert client.post("/embed", content=twice, headers=JSON).json() == expected


def test_options_of_the_wrong_kind(client: TestClient) -> None:
    for option in ({"truncate": "yes"}, {"normalize": 1}, {"dimensions": 0}, {"dimensions": 2.5}, {"prompt_name": 1}):
        assert client.post("/embed", json={"inputs": "x", **option}).status_code == 422, option
    for option in ({"encoding_format": "int8"}, {"dimensions": "5"}, {"user": 5}):
        assert client.post("/v1/embeddings", json={"input": "x", **option}).status_code == 400, option


def test_the_text_is_in_no_refusal(client: TestClient) -> None:
    for body in ({"inputs": ["secret", 5]}, {"inputs": "secret", "dimensions": "secret"}, {"inputs": {"secret": 1}}):
        assert "secret" not in client.post("/embed", json=body).text


def test_wrong_routes_and_methods(client: TestClient) -> None:
    assert client.get("/nowhere").json() == {"error": "Not Found", "error_type": "NotFound"}
    refused = client.get("/v1/embeddings")
    assert (refused.status_code, refused.headers["Allow"]) == (405, "POST")
    assert refused.json()["error"]["code"] == "method_not_allowed"
