"""Authentication and size limits before all routes; requests that fail are answered all the same.

The outermost ASGI application: every status is counted here. Slow clients are left to a proxy (docs/guides/serve.md).
"""

import hmac
import logging
import re
import time
from typing import Any

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from longform_text.serving.errors import Refusal, refused
from longform_text.serving.service import Service
from longform_text.serving.worker import where

log = logging.getLogger("longform_text.serving")
EXCHANGE = "longform.exchange"  # in a request's scope
OPEN = ("/", "/health", "/ui")  # without a key: whether it is up, and a page that holds nothing


class Gate:
    """``routes``: paths that are counted by their names; any other is "other".

    Pages of the origins that the settings name see every answer, refusals of the gate too.
    """

    def __init__(self, app: ASGIApp, service: Service, routes: frozenset[str]) -> None:
        self.app, self.service, self.routes = app, service, routes
        self._answered: ASGIApp = self._answer
        if origins := [origin.rstrip("/") for origin in service.settings.cors_origins]:
            self._answered = CORSMiddleware(
                self._answer,
                allow_origins=origins,
                allow_methods=["GET", "HEAD", "POST"],
                allow_headers=["*"],
                expose_headers=["*"],
                allow_private_network=True,
            )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; what is no HTTP request passes through."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = _Exchange(scope, receive, send, self.service.settings.max_request_bytes)
        started, metrics = time.monotonic(), self.service.metrics
        # HEAD is GET without the body, which uvicorn leaves out. Routes see it so, and find the request's exchange.
        as_get = {"method": "GET"} if scope["method"] == "HEAD" else {}
        below = {"root_path": self.service.settings.root_path.rstrip("/")}  # which a proxy takes off the path
        metrics.running.inc()
        try:
            await self._answered({**scope, **as_get, **below, EXCHANGE: exchange}, exchange.receive, exchange.send)
        finally:
            metrics.running.dec()
            metrics.seconds.labels("request").observe(time.monotonic() - started)
            metrics.requests.labels(self._route(scope), str(exchange.status or 499)).inc()

    def _route(self, scope: Scope) -> str:
        return scope["path"] if scope["path"] in self.routes else "other"

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = await self._refusal(scope, receive, send)
        if refusal is not None and not scope[EXCHANGE].status:
            await refused(refusal)(scope, receive, send)

    async def _refusal(self, scope: Scope, receive: Receive, send: Send) -> Refusal | None:
        """Let the routes answer, or say why they do not."""
        works, requests = scope["method"] == "POST", self.service.requests
        try:
            self._check(scope, scope[EXCHANGE])
            if works:
                requests.take(1)
        except Refusal as refusal:
            return refusal
        try:
            await self.app(scope, receive, send)
        except Refusal as refusal:
            return refusal
        except ClientDisconnect:
            return Refusal("gone", "the client went away")
        except Exception as error:
            log.error("a request to %s failed: %s", self._route(scope), where(error))
            return Refusal("internal", "the server failed on this request")
        finally:
            if works:
                requests.give(1)
        return None

    def _check(self, scope: Scope, exchange: "_Exchange") -> None:
        """Raise Refusal for a request that no route gets to see."""
        headers = Headers(scope=scope)
        self._check_key(scope, headers)
        if scope["method"] != "POST":
            return
        if self.service.stopping:
            raise Refusal("not_ready", "the server is stopping")
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise Refusal("media_type", "compressed bodies are not taken: send it as it is")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json" and not re.fullmatch(r"application/\S+\+json", kind):
            raise Refusal("media_type", "the body is JSON: send Content-Type: application/json")
        length = headers.get("content-length", "")
        if length.isdecimal():
            exchange.check_size(int(length))

    def _check_key(self, scope: Scope, headers: Headers) -> None:
        key = self.service.settings.api_key
        if key is None or scope["method"] == "OPTIONS" or scope["path"] in OPEN:
            return
        scheme, _, given = headers.get("authorization", "").partition(" ")
        right = hmac.compare_digest(given.strip().encode("latin-1"), key.encode())
        if scheme.lower() != "bearer" or not right:
            raise Refusal("unauthorized", "give the server's key: Authorization: Bearer KEY")


class _Exchange:
    """One request, of whose body at most ``most`` bytes are taken, and its answer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, most: int) -> None:
        self._scope, self._receive, self._send, self._most = scope, receive, send, most
        self._arrived = 0
        self._whole = False
        self.status = 0

    def check_size(self, length: int) -> None:
        """Raise Refusal for a body of more bytes than are taken."""
        if length > self._most:
            raise Refusal("too_large", f"the body has more than the {self._most:,} bytes that the server takes")

    async def receive(self) -> Message:
        """A part of the body; raises Refusal where there is more than is taken."""
        message: Any = await self._receive()
        self._arrived += len(message.get("body", b""))
        self._whole = self._whole or not message.get("more_body", False)
        self.check_size(self._arrived)
        return message

    async def send(self, message: Message) -> None:
        """A part of the answer.

        What is left of the body is taken in before the end: a client that sends it first would find the connection
        broken, and no answer.
        """
        if message["type"] == "http.response.start":
            self.status = message["status"]
        ends = message["type"] == "http.response.body" and not message.get("more_body", False)
        await self._send({**message, "more_body": True} if ends else message)
        if ends:
            await self._take_in()
            await self._send({"type": "http.response.body"})

    async def _take_in(self) -> None:
        """Read the rest of the body; a client that asks before it sends has its answer instead."""
        if not self._arrived and "expect" in Headers(scope=self._scope):
            return
        while not self._whole:
            self._whole = not (await self._receive()).get("more_body", False)
