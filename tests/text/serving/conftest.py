"""Servers in the test's process, over tiny random models."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from starlette.testclient import TestClient
from tiny_models import make_sentence_transformer, save_longform

from longform_text.serving.app import create_app
from longform_text.serving.engine import Engine
from longform_text.serving.settings import ServingSettings

PROMPTS = {"prompts": {"query": "near: ", "document": "far: "}}


@pytest.fixture(scope="session")
def sentence_folder(tiny_tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sentence-transformers folder with a Longform, a mean and unit vectors, and two prompts."""
    folder = save_longform(tmp_path_factory.mktemp("served") / "tiny", tiny_tokenizer)
    pooling = {"pooling_mode_mean_tokens": True}
    return make_sentence_transformer(folder, pooling=pooling, normalise=True, config_sentence_transformers=PROMPTS)


@pytest.fixture(scope="session")
def reranker_folder(tiny_tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_longform(tmp_path_factory.mktemp("rerank"), tiny_tokenizer, head="classification", num_labels=1)


@pytest.fixture(scope="session")
def engine(sentence_folder: Path) -> Engine:
    return Engine.load(str(sentence_folder), ServingSettings())


@contextlib.asynccontextmanager
async def running(engine: Engine, **settings: Any) -> AsyncGenerator[tuple[httpx2.AsyncClient, Any]]:
    """A client of a ready server of this event loop, and its service."""
    app = create_app(ServingSettings(**settings), lambda: engine)
    ready = asyncio.Event()
    app.service.on_loaded = ready.set
    app.service.start(asyncio.get_running_loop())
    await ready.wait()
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    try:
        async with httpx2.AsyncClient(transport=transport, base_url="http://testserver") as client:
            yield client, app.service
    finally:
        app.service.stop()


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[..., TestClient]]:
    """Starts a server over an engine with the settings that are named: the client of it, when it is ready."""
    with contextlib.ExitStack() as stack:

        def started(engine: Engine, **settings: Any) -> TestClient:
            app = create_app(ServingSettings(**settings), lambda: engine)
            client = stack.enter_context(TestClient(app, raise_server_exceptions=False))
            while client.get("/health").status_code != 200:
                time.sleep(0.01)
            return client

        yield started


@pytest.fixture(scope="module")
def client(serve: Callable[..., TestClient], engine: Engine) -> TestClient:
    return serve(engine)


@pytest.fixture(scope="module")
def serve_at() -> Iterator[Callable[..., str]]:
    """Starts a server that listens on a port of this machine: its host and port."""
    running: list[tuple[uvicorn.Server, threading.Thread]] = []

    def started(engine: Engine, **settings: Any) -> str:
        app = create_app(ServingSettings(**settings), lambda: engine)
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
        thread = threading.Thread(target=server.run)
        thread.start()
        running.append((server, thread))
        while not server.started:
            time.sleep(0.01)
        return f"127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"

    yield started
    for server, _ in running:
        server.should_exit = True
    for _, thread in running:
        thread.join()


@pytest.fixture(scope="module")
def address(serve_at: Callable[..., str], engine: Engine) -> str:
    return serve_at(engine)
