"""What stands before all routes: who may ask, how much and how slowly; requests that fail are answered all the same.

It is the outermost ASGI application: every status is counted here.
"""

import asyncio
import hmac
import logging
import time
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from longform.serving.errors import Refusal, refused
from longform.serving.service import HELD, Held, Service
from longform.serving.worker import where

log = logging.getLogger("longform.serving")
OPEN = ("/", "/health", "/ping", "/ui")  # without a key: whether it is up, and a page that holds nothing


class Gate:
    """``routes``: paths that are counted by their names; any other is "other"."""

    def __init__(self, app: ASGIApp, service: Service, routes: frozenset[str]) -> None:
        self.app, self.service, self.routes = app, service, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; what is no HTTP request passes through."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = _Exchange(receive, send, self.service, Held())
        scope[HELD] = exchange.held
        started, metrics, path = time.monotonic(), self.service.metrics, scope["path"]
        metrics.running.inc()
        try:
            refusal = await self._answer(scope, exchange)
            if refusal is not None and not exchange.status:
                await refused(refusal, path)(scope, receive, exchange.send)
        finally:
            self.service.bytes.give(exchange.held.bytes)
            self.service.tokens.give(exchange.held.tokens)
            metrics.running.dec()
            metrics.seconds.labels("request").observe(time.monotonic() - started)
            metrics.requests.labels(self._route(scope), str(exchange.status or 499)).inc()

    def _route(self, scope: Scope) -> str:
        return scope["path"] if scope["path"] in self.routes else "other"

    async def _answer(self, scope: Scope, exchange: "_Exchange") -> Refusal | None:
        """Let the routes answer, or say why they do not."""
        works, requests = scope["method"] == "POST", self.service.requests
        try:
            self._check(scope, exchange)
            if works:
                requests.take(1)
        except Refusal as refusal:
            return refusal
        try:
            async with asyncio.timeout(self.service.settings.request_seconds):
                await self.app(scope, exchange.receive, exchange.send)
        except Refusal as refusal:
            return refusal
        except ClientDisconnect:
            return Refusal("gone", "the client went away")
        except TimeoutError:
            return Refusal("late", f"not answered in {self.service.settings.request_seconds:g} seconds")
        except Exception as error:
            log.error("a request to %s failed: %s", self._route(scope), where(error))
            return Refusal("internal", "the server failed on this request")
        finally:
            if works:
                requests.give(1)
        return None

    def _check(self, scope: Scope, exchange: "_Exchange") -> None:
        """Raise Refusal for a request that no route gets to see."""
        headers, settings = Headers(scope=scope), self.service.settings
        if settings.api_key is not None and scope["path"] not in OPEN and scope["method"] != "OPTIONS":
            given = headers.get("authorization", "").encode("latin-1")
            if not hmac.compare_digest(given, f"Bearer {settings.api_key}".encode()):
                raise Refusal("unauthorized", "give the server's key: Authorization: Bearer KEY")
        if scope["method"] != "POST":
            return
        if self.service.stopping:
            raise Refusal("not_ready", "the server is stopping")
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise Refusal("media_type", "compressed bodies are not taken: send it as it is")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Refusal("media_type", "the body is JSON: send Content-Type: application/json")
        length = headers.get("content-length", "")
        if length.isdecimal():
            exchange.expect(int(length))


class _Exchange:
    """One request and its answer: its body is counted, and both have to move on in time."""

    def __init__(self, receive: Receive, send: Send, service: Service, held: Held) -> None:
        self._receive, self._send = receive, send
        self._service, self.held = service, held
        self._expected = self._arrived = 0
        self._due: float | None = None  # when the body is to be there
        self._whole = False
        self.status = 0

    def expect(self, length: int) -> None:
        """Take so many bytes in, or raise Refusal."""
        settings = self._service.settings
        if length > settings.max_request_bytes:
            raise Refusal(
                "too_large", f"the body has more than the {settings.max_request_bytes:,} bytes that the server takes"
            )
        more = length - self._expected
        if more > 0:
            self.held.bytes += self._service.bytes.take(more)
            self._expected = length

    async def receive(self) -> Message:
        """A part of the body; raises Refusal where there is more than is taken, and where it comes too slowly."""
        if self._whole:
            return await self._receive()
        seconds = self._service.settings.receive_seconds
        loop = asyncio.get_running_loop()
        self._due = loop.time() + seconds if self._due is None else self._due
        try:
            async with asyncio.timeout_at(self._due):
                message: Any = await self._receive()
        except TimeoutError:
            raise Refusal("slow", f"the body was not there in {seconds:g} seconds") from None
        self._arrived += len(message.get("body", b""))
        self._whole = not message.get("more_body", False)
        self.expect(self._arrived)
        return message

    async def send(self, message: Message) -> None:
        """A part of the answer; TimeoutError where the client does not take it."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
        async with asyncio.timeout(self._service.settings.receive_seconds):
            await self._send(message)
