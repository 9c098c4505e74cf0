"""The one object behind all routes: the model, what waits for it, and the sums that are limited."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from starlette.requests import Request

from longform_text.data.text import Text
from longform_text.inference.encoders import Encoder
from longform_text.serving.documents import Documents
from longform_text.serving.engine import Engine
from longform_text.serving.errors import Refusal
from longform_text.serving.metrics import Metrics
from longform_text.serving.reading import Rows, id_rows, text_rows
from longform_text.serving.settings import ServingSettings
from longform_text.serving.waiting import Piece, Waiting, Work
from longform_text.serving.worker import Worker

AT_ONCE = 16_384  # characters that are tokenised in the event loop: sooner done than handed to another thread
Result = TypeVar("Result")


class Budget:
    """A sum that is limited: what is over it is refused. Belongs to the event loop's thread."""

    def __init__(self, most: int, what: str) -> None:
        self.most, self.what, self.taken = most, what, 0

    def take(self, amount: int) -> None:
        """Add an amount, or raise Refusal; the first one is always taken."""
        if self.taken and self.taken + amount > self.most:
            raise Refusal(
                "overloaded", f"the server has {self.taken:,} {self.what} waiting, of at most {self.most:,}: come again"
            )
        self.taken += amount

    def give(self, amount: int) -> None:
        """Take an amount off."""
        self.taken -= amount


class Service:
    """``load`` gives the model; it runs in a thread when ``start`` is called, and ``failure`` is what it raised."""

    def __init__(self, settings: ServingSettings, load: Callable[[], Engine]) -> None:
        self.settings, self._load = settings, load
        self.metrics = Metrics()
        self.waiting = Waiting(batch_tokens=settings.batch_tokens, wait=settings.batch_wait_ms / 1000)
        self.metrics.watch(self.waiting.counts)
        self.requests = Budget(settings.max_concurrent_requests, "requests")
        self.tokens = Budget(settings.max_waiting_tokens, "tokens")
        self.stopping = False
        self.failure: BaseException | None = None
        self.on_loaded: Callable[[], None] = lambda: None  # also called where that failed
        self.documents = (
            Documents(Path(settings.documents).expanduser(), settings.text_field) if settings.documents else None
        )
        self._engine: Engine | None = None
        self._texts = ThreadPoolExecutor(1, thread_name_prefix="longform-text")
        self._unfinished: set[Work] = set()
        self.workers: list[Worker] = []

    @property
    def engine(self) -> Engine:
        """The model; raises Refusal until it is there, and when a thread of it is gone."""
        if self._engine is None:
            raise Refusal("not_ready", "the model is being loaded: come again")
        if not all(worker.is_alive() for worker in self.workers):
            raise Refusal("not_ready", "the server has stopped")
        return self._engine

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Load the model and begin, in threads of their own."""
        threading.Thread(target=self._begin, args=(loop,), name="longform-load", daemon=True).start()

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            engine = self._load()
            loop.call_soon_threadsafe(self._ready, engine, loop)
        except BaseException as error:
            self.failure = error
            loop.call_soon_threadsafe(self.on_loaded)

    def _ready(self, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
        self.workers = [Worker(engine, self.waiting, self.metrics, loop) for _ in range(self.settings.workers)]
        for worker in self.workers:
            worker.start()
        self._engine = engine
        self.metrics.model_bytes.set(engine.weight_bytes)
        self.metrics.ready.set(1)
        if self.documents is not None:
            self.documents.start(engine)
        self.on_loaded()

    def stop(self) -> None:
        """Refuse all that is not answered yet; threads end after what they are doing."""
        self.stopping = True
        self.waiting.close()
        for work in list(self._unfinished):
            work.settle(0, Refusal("not_ready", "the server has stopped"))
        self._texts.shutdown(wait=False, cancel_futures=True)

    async def read(self, characters: int, make: Callable[[Engine], Result]) -> Result:
        """``make`` called with the model; in a thread of its own where the texts are long."""
        engine, started = self.engine, time.monotonic()
        if characters <= AT_ONCE:
            made = make(engine)
        else:
            made = await asyncio.get_running_loop().run_in_executor(self._texts, make, engine)
        self.metrics.seconds.labels("tokenize").observe(time.monotonic() - started)
        return made

    async def text_rows(self, texts: Sequence[Text], finish: Callable[[Any], Any], prompt: str = "") -> Rows:
        """A row a text or pair; one over the limit is cut, or refused, as the settings say."""
        self.check_count(len(texts))
        characters = sum(len(text) if isinstance(text, str) else len(text[0]) + len(text[1] or "") for text in texts)
        how: Any = {"truncate": self.settings.on_long == "truncate", "prompt": prompt}
        return await self.read(characters, lambda engine: text_rows(engine, texts, finish, **how))

    async def id_rows(self, texts: Sequence[Sequence[int]], encoder: Encoder) -> Rows:
        """A row a list of token ids, which the ``encoder`` finishes."""
        self.check_count(len(texts))
        cut = self.settings.on_long == "truncate"
        return await self.read(sum(map(len, texts)), lambda engine: id_rows(engine, texts, encoder, truncate=cut))

    def check_count(self, texts: int) -> None:
        """Raise Refusal for too many texts in a request."""
        if texts > self.settings.max_texts:
            raise Refusal("too_large", f"the request has {texts:,} texts, the server takes {self.settings.max_texts:,}")

    async def vectors(self, request: Request, encoder: Encoder, rows: Rows) -> np.ndarray:
        """Vectors float32 (N, D) of rows that ``pooled_by`` finishes."""
        return encoder.finished(np.stack(await self.results(request, rows)))

    async def results(self, request: Request, rows: Rows) -> list[Any]:
        """Results of each row, in order; nothing is computed for a client that went away. Raises Refusal."""
        limit, tokens = self.settings.max_request_tokens, rows.tokens
        if tokens > limit:
            raise Refusal("too_large", f"the request has {tokens:,} tokens, the server takes {limit:,} at a time")
        self.tokens.take(tokens)
        try:
            self.metrics.truncated.inc(rows.truncated)
            work = Work(asyncio.get_running_loop().create_future(), len(rows.rows))
            pieces = [Piece(row, finish, work, place) for place, (row, finish) in enumerate(rows.rows)]
            if not self.waiting.put(pieces):
                raise Refusal("not_ready", "the server is stopping")
            return await self._awaited(request, work)
        finally:
            self.tokens.give(tokens)

    async def _awaited(self, request: Request, work: Work) -> list[Any]:
        gone = asyncio.ensure_future(_disconnected(request))
        self._unfinished.add(work)
        try:
            await asyncio.wait({work.future, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not work.future.done():
                raise Refusal("gone", "the client went away")
            return work.future.result()
        finally:
            gone.cancel()
            self._unfinished.discard(work)
            if not work.future.done() or work.future.cancelled() or work.future.exception() is not None:
                work.future.cancel()
                self.waiting.discard(work)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
