"""The queue: batches by tokens and length, two lanes that take turns, nothing lost, nothing kept for those who left."""

import asyncio
import threading
import time

from longform.data.batching import TokenizedText
from longform.serving.waiting import Piece, Waiting, Work


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
