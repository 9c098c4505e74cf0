"""Limits: what is over one is refused at once, in words; what was accepted is answered."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from longform_text.serving.engine import Engine

from .conftest import running

JSON = {"Content-Type": "application/json"}


HANGS = 600  # seconds after which a test has failed, on any machine; none depends on how fast one is


class Held:
    """The model's thread, stopped at every batch until it is let go."""

    def __init__(self, service: Any) -> None:
        self.go = threading.Event()
        (worker,) = service.workers
        results = worker.results

        def held(pieces: Any) -> Any:
            self.go.wait(HANGS)
            return results(pieces)

        worker.results = held


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def run(work: Any, engine: Engine, **settings: Any) -> None:
    async def inside() -> None:
        async with running(engine, batch_wait_ms=0, **settings) as (client, service):
            await asyncio.wait_for(work(client, service), HANGS)

    asyncio.run(inside())


def test_concurrent_requests_and_their_tokens(engine: Engine) -> None:
    async def work(client: Any, service: Any) -> None:
        held = Held(service)
        first = [asyncio.ensure_future(client.post("/v1/embeddings", json={"input": "near far"})) for _ in range(2)]
        await until(lambda: service.tokens.taken == 8)
        over = await client.post("/v1/embeddings", json={"input": "near"})  # 3 tokens more
        assert (over.status_code, over.json()["error"]["code"]) == (429, "overloaded")
        assert over.headers["Retry-After"] == "1"
        assert "8 tokens waiting, of at most 10" in over.json()["error"]["message"]
        assert (await client.get("/health")).status_code == 200
        held.go.set()
        assert [(await each).status_code for each in first] == [200, 200]
        await until(lambda: service.tokens.taken == service.requests.taken == 0)
        assert (await client.post("/v1/embeddings", json={"input": "near"})).status_code == 200

    run(work, engine, max_waiting_tokens=10)


def test_more_requests_than_are_answered_at_a_time(engine: Engine) -> None:
    async def work(client: Any, service: Any) -> None:
        held = Held(service)
        first = [asyncio.ensure_future(client.post("/v1/embeddings", json={"input": "x"})) for _ in range(3)]
        await until(lambda: service.requests.taken == 3)
        over = await client.post("/v1/embeddings", json={"input": "x"})
        assert (over.status_code, over.json()["error"]["code"]) == (429, "overloaded")
        held.go.set()
        assert {(await each).status_code for each in first} == {200}

    run(work, engine, max_concurrent_requests=3)


def test_bytes_of_one_request(engine: Engine) -> None:
    async def parts(size: int) -> AsyncGenerator[bytes]:
        yield b'{"input": "x'
        for _ in range(size // 10):
            yield b" " * 10
        yield b'"}'

    async def work(client: Any, service: Any) -> None:
        long = await client.post("/v1/embeddings", json={"input": "x" * 300})
        assert (long.status_code, long.json()["error"]["code"]) == (413, "request_too_large")
        streamed = await client.post("/v1/embeddings", content=parts(300), headers=JSON)  # without Content-Length
        assert streamed.status_code == 413
        assert (await client.post("/v1/embeddings", content=parts(100), headers=JSON)).status_code == 200
        assert service.requests.taken == 0

    run(work, engine, max_request_bytes=200)


def test_texts_and_tokens_of_one_request(engine: Engine) -> None:
    async def work(client: Any, service: Any) -> None:
        assert (await client.post("/v1/embeddings", json={"input": ["x"] * 4})).status_code == 413
        assert (await client.post("/v1/embeddings", json={"input": ["near far text"] * 3})).status_code == 200
        over = await client.post("/v1/embeddings", json={"input": ["near far text is long"] * 3})
        assert (over.status_code, over.json()["error"]["message"]) == (
            413, "the request has 21 tokens, the server takes 20 at a time"
        )  # fmt: skip

    run(work, engine, max_texts=3, max_request_tokens=20)


def test_a_request_whose_client_left(engine: Engine) -> None:
    async def work(client: Any, service: Any) -> None:
        held = Held(service)
        leaving = asyncio.ensure_future(client.post("/v1/embeddings", json={"input": "near"}))
        await until(lambda: service.tokens.taken == 3)
        leaving.cancel()
        await until(lambda: service.tokens.taken == 0)
        assert service.waiting.counts()[0] == 0
        held.go.set()
        assert (await client.post("/v1/embeddings", json={"input": "x"})).status_code == 200

    run(work, engine)


def test_after_the_stop_what_was_accepted_is_answered(engine: Engine) -> None:
    async def work(client: Any, service: Any) -> None:
        held = Held(service)
        first = asyncio.ensure_future(client.post("/v1/embeddings", json={"input": "near"}))
        await until(lambda: service.tokens.taken == 3)
        service.stopping = True
        refused = await client.post("/v1/embeddings", json={"input": "near"})
        assert (refused.status_code, refused.json()["error"]["message"]) == (503, "the server is stopping")
        held.go.set()
        assert (await first).status_code == 200

    run(work, engine)

    async def end(client: Any, service: Any) -> None:
        held = Held(service)
        first = asyncio.ensure_future(client.post("/v1/embeddings", json={"input": "near"}))
        await until(lambda: service.tokens.taken == 3)
        service.stop()  # the time for it is over
        refused = await first
        assert (refused.status_code, refused.json()["error"]["message"]) == (503, "the server has stopped")
        held.go.set()

    run(end, engine)


@pytest.mark.parametrize("given", [None, "Bearer other", "Bearer ", "key", "Bearer k\xe9y", "Basic key", "Bearerkey"])
def test_a_key_that_is_missing_or_wrong(engine: Engine, given: str | None) -> None:
    async def work(client: Any, service: Any) -> None:
        headers = {} if given is None else {"Authorization": given.encode("latin-1")}
        refused = await client.post("/v1/embeddings", json={"input": "x"}, headers=headers)
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
        assert (await client.get("/metrics", headers=headers)).status_code == 401
        assert (await client.get("/health", headers=headers)).status_code == 200
        allowed = {"Authorization": "Bearer key"}
        assert (await client.post("/v1/embeddings", json={"input": "x"}, headers=allowed)).status_code == 200

    run(work, engine, api_key="key")


def test_pages_of_other_origins_see_nothing(engine: Engine) -> None:
    asked = {"Origin": "https://example.org", "Access-Control-Request-Method": "POST"}

    async def closed(client: Any, service: Any) -> None:
        assert (await client.options("/v1/embeddings", headers=asked)).status_code == 405
        answered = await client.post("/v1/embeddings", json={"input": "x"}, headers=asked)
        assert "access-control-allow-origin" not in answered.headers

    run(closed, engine)


def test_before_the_model_is_there(engine: Engine) -> None:
    async def work(client: Any, service: Any) -> None:
        service._engine = None
        for route in ("/health", "/info", "/v1/models"):
            assert (await client.get(route)).status_code == 503
        assert (await client.post("/v1/embeddings", json={"input": "x"})).status_code == 503
        assert (await client.get("/metrics")).status_code == 200

    run(work, engine)
