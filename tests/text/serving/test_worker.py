"""The worker, and its queue: batches by tokens and length, two lanes that take turns, nothing lost."""

import asyncio
import dataclasses
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from longform_text.data.batching import TokenizedText
from longform_text.serving.engine import Engine
from longform_text.serving.waiting import Piece, Waiting, Work

from .conftest import running

TEXTS = [f"the text {number} is near" for number in range(12)]
SECRET = "zebra"


class Failing:
    """A model that raises, or gives NaN, where a row has a marked token."""

    def __init__(self, model: Any, marked: int, failure: Callable[[Any], Any]) -> None:
        self._model, self._marked, self._failure = model, marked, failure
        self.batches: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, input_ids: torch.Tensor, **inputs: Any) -> Any:
        found = self._model(input_ids=input_ids, **inputs)
        self.batches.append(len(input_ids))
        return self._failure(found) if (input_ids == self._marked).any() else found


def no_memory(found: Any) -> Any:
    raise MemoryError(f"not for {SECRET}")


def not_a_number(found: Any) -> Any:
    return type(found)(last_hidden_state=found.last_hidden_state * float("nan"))


@pytest.mark.parametrize("failure", [no_memory, not_a_number])
def test_one_text_fails_alone(engine: Engine, failure: Any, caplog: pytest.LogCaptureFixture) -> None:
    encoder = engine.encoder()
    marked = encoder.tokenizer.convert_tokens_to_ids("##z")
    model = Failing(encoder.model, marked, failure)
    failing = dataclasses.replace(engine, runner=dataclasses.replace(encoder, model=model))
    texts = [*TEXTS[:5], "a fuzz", *TEXTS[5:]]

    async def ask() -> list[Any]:
        async with running(failing, batch_wait_ms=200) as (client, _):
            return await asyncio.gather(*(client.post("/v1/embeddings", json={"input": [text]}) for text in texts))

    with caplog.at_level(logging.INFO):
        found = asyncio.run(ask())
    assert [each.status_code for each in found] == [500 if text == "a fuzz" else 200 for text in texts]
    assert found[5].json()["error"]["message"] == "the model failed on this input"
    expected = encoder.encode(TEXTS)
    vectors = [each.json()["data"][0]["embedding"] for each in found if each.status_code == 200]
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)
    assert max(model.batches) > 1 == min(model.batches)  # together first, then in halves
    assert SECRET not in caplog.text
    assert "fuzz" not in caplog.text
    assert "a batch of 1 texts failed: " in caplog.text


def test_results_are_the_same_alone_in_a_batch_and_by_two_threads(engine: Engine) -> None:
    texts = [text * (1 + number % 3) for number, text in enumerate(TEXTS)]

    async def ask(together: bool, **settings: Any) -> Any:
        async with running(engine, batch_tokens=256, **settings) as (client, service):
            asked = [client.post("/v1/embeddings", json={"input": [text]}) for text in texts]
            answers = await asyncio.gather(*asked) if together else [await each for each in asked]
            assert sum(worker.is_alive() for worker in service.workers) == settings.get("workers", 1)
            return np.array([each.json()["data"][0]["embedding"] for each in answers])

    alone = asyncio.run(ask(False))
    for settings in ({}, {"workers": 2}):
        np.testing.assert_allclose(asyncio.run(ask(True, **settings)), alone, rtol=0, atol=1e-5)
    np.testing.assert_allclose(engine.encoder().encode(texts), alone, rtol=0, atol=1e-5)


def piece(length: int, work: Work | None = None, *, arrived: float | None = None) -> Piece:
    loop = asyncio.new_event_loop()
    loop.close()
    work = work or Work(loop.create_future(), 1)
    made = Piece(TokenizedText([1] * length), lambda row: row, work, 0)
    made.arrived = time.monotonic() if arrived is None else arrived
    return made


def lengths(waiting: Waiting) -> list[int]:
    return [each.length for each in waiting.take() or []]


def test_a_batch_is_full_by_tokens_and_of_similar_length() -> None:
    waiting = Waiting(batch_tokens=4096, wait=0.0)
    waiting.put([piece(length) for length in (1000, 20, 1000, 21, 1000, 1000, 19)])
    assert lengths(waiting) == [1000] * 4  # those of the length of the oldest
    assert lengths(waiting) == [21, 20, 19]
    waiting.put([piece(1000) for _ in range(5)])
    assert [lengths(waiting), lengths(waiting)] == [[1000] * 4, [1000]]
    assert waiting.counts() == (0, 0)


def test_long_documents_and_short_texts_take_turns() -> None:
    waiting = Waiting(batch_tokens=100, wait=0.0)
    waiting.put([piece(9000), piece(8000), piece(7000), *(piece(60) for _ in range(3))])
    taken = [lengths(waiting) for _ in range(6)]
    assert taken == [[60], [9000], [60], [8000], [60], [7000]]


def test_a_text_waits_for_others_for_its_time_only() -> None:
    waiting = Waiting(batch_tokens=100, wait=0.2)
    threading.Timer(0.05, waiting.put, [[piece(30)]]).start()
    waiting.put([piece(30)])
    assert lengths(waiting) == [30, 30]
    waiting.put([piece(60), piece(60)])
    waiting.wait = 60.0
    assert lengths(waiting) == [60]  # at once: there are tokens enough


def test_nothing_is_computed_for_who_went_away() -> None:
    waiting = Waiting(batch_tokens=100, wait=0.0)
    left, stays = piece(10), piece(11)
    waiting.put([left, piece(12, left.work), stays])
    waiting.discard(left.work)
    assert lengths(waiting) == [11]
    assert waiting.counts() == (0, 0)


def test_after_the_end_nothing_is_taken() -> None:
    waiting = Waiting(batch_tokens=100, wait=60.0)
    taken: list[object] = []
    thread = threading.Thread(target=lambda: taken.append(waiting.take()))
    thread.start()
    waiting.put([piece(10)])
    waiting.close()
    thread.join(timeout=600)  # which ends a test that hangs
    assert taken == [None]
    assert waiting.put([piece(10)]) is False
    assert waiting.counts() == (0, 0)
