"""The server under load: every answer checked, latencies, throughput beside ``longform embed``, memory.

::

    python -m longform_lab.experiments.serving  # 10,000 short texts and 50 documents over 1,000 connections
    python -m longform_lab.experiments.serving --texts 500 --documents 2 --connections 100 --no-record

Two parts, over all-MiniLM-L6-v2 converted for 16,384 tokens, on the loopback interface. "load": short texts of 20 to
200 tokens and documents of 8,192 over many connections; what the server refuses with 429 or 503 is sent again. "lanes":
texts of 100 tokens one after another, alone and while documents of 16,384 tokens are encoded.
"""

import argparse
import asyncio
import base64
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import orjson

import longform
from longform.data.bundled import bundled_encoder_folder
from longform_lab.demo.licences import licence_documents
from longform_lab.records import RECORDS, Record, append_record

LENGTH, DOCUMENT, SHORT = 16_384, 8_192, (20, 200)
NEAR = 1e-5  # of an element of a unit vector
AGAIN = (429, 503)


@dataclass
class Client:
    """Connections to a server; ``texts``: what is asked, ``expected`` (N, D): the right vectors."""

    port: int
    texts: Sequence[str]
    expected: np.ndarray
    seconds: dict[int, float] = field(default_factory=dict)  # from first sending to the answer, by number of the text
    statuses: Counter[int] = field(default_factory=Counter)
    wrong: int = 0

    async def ask_all(self, numbers: Iterator[int]) -> None:
        """Over one connection, one after another."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        for number in numbers:
            started = time.perf_counter()
            while (answer := await self._ask(reader, writer, number)) is None:
                await asyncio.sleep(0.5 + random.random())
            self.seconds[number] = time.perf_counter() - started
            (item,) = orjson.loads(answer)["data"]
            vector = np.frombuffer(base64.b64decode(item["embedding"]), "<f4")
            self.wrong += not np.allclose(vector, self.expected[number], rtol=0, atol=NEAR)
        writer.close()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> bytes | None:
        body = orjson.dumps({"input": self.texts[number], "encoding_format": "base64"})
        head = (
            f"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        )
        writer.write(head.encode() + b"\r\n\r\n" + body)
        header = await reader.readuntil(b"\r\n\r\n")
        status, length = int(header[9:12]), int(re.search(rb"content-length: (\d+)", header)[1])  # ty: ignore
        answer = await reader.readexactly(length)
        self.statuses[status] += 1
        if status not in (200, *AGAIN):
            raise RuntimeError(f"status {status}: {answer[:300]!r}")
        return answer if status == 200 else None

    async def run(self, connections: int) -> float:
        """Seconds for all texts."""
        numbers, started = iter(range(len(self.texts))), time.perf_counter()
        await asyncio.gather(*(self.ask_all(numbers) for _ in range(connections)))
        return time.perf_counter() - started


class Server:
    """``longform serve`` in a process of its own, ready."""

    def __init__(self, folder: Path, *options: str) -> None:
        command = [sys.executable, "-m", "longform", "serve", str(folder), "--port", "0", *options]
        started = time.perf_counter()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        address = None
        while address is None:
            line = self.process.stdout.readline()
            if not line:
                raise RuntimeError("the server did not start")
            address = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        self.port, self.ready_after = int(address[1]), time.perf_counter() - started

    def peak_mib(self) -> float:
        """Peak resident memory so far, MiB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s*(\d+)", status)[1]) / 1024  # ty: ignore[not-subscriptable]

    def stop(self) -> int:
        """End it; its exit status."""
        self.process.terminate()
        return self.process.wait(timeout=120)


def texts_of(encoder: longform.Encoder, lengths: Sequence[int], seed: int) -> list[str]:
    """Runs of words of licence texts that have about so many tokens, special ones included, and never more."""
    words, counts = counted_words(encoder.tokenizer)
    chosen, found = random.Random(seed), []
    for length in lengths:
        first, tokens = chosen.randrange(len(counts) - length), 2
        last = first
        while tokens + counts[last] <= length:
            tokens += counts[last]
            last += 1
        found.append(" ".join(words[first:last]))
    return found


@lru_cache(maxsize=1)
def counted_words(tokenizer: Any) -> tuple[list[str], list[int]]:
    """Words of licence texts, and the tokens of each."""
    words = " ".join(document.text for document in licence_documents()).split()[:100_000]
    return words, [len(ids) for ids in tokenizer(words, add_special_tokens=False)["input_ids"]]


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """50th, 95th and 99th of latencies."""
    return {f"p{share}_seconds": float(np.percentile(seconds, share)) for share in (50, 95, 99)}


def under_load(folder: Path, encoder: longform.Encoder, texts: int, documents: int, connections: int) -> Record:
    """The part "load"."""
    chosen = random.Random(0)
    lengths = [chosen.randint(*SHORT) for _ in range(texts)] + [DOCUMENT] * documents
    given = texts_of(encoder, lengths, seed=1)
    order = chosen.sample(range(len(given)), len(given))
    given = [given[place] for place in order]
    embedded = longform.embed(folder, given, progress=False)
    server = Server(folder)
    room = longform.InferenceSettings().batch_tokens
    warm = [texts_of(encoder, [room], seed=2)[0], *texts_of(encoder, [100] * (room // 100), seed=3)]
    asyncio.run(Client(server.port, warm, encoder.encode(warm)).run(len(warm)))
    before = server.peak_mib()
    client = Client(server.port, given, embedded.vectors)
    seconds = asyncio.run(client.run(connections))
    peak, exit_status = server.peak_mib(), server.stop()
    long = [client.seconds[number] for number, place in enumerate(order) if place >= texts]
    short = [client.seconds[number] for number, place in enumerate(order) if place < texts]
    return Record(
        name="serving",
        settings={
            "part": "load", "texts": texts, "documents": documents, "document_tokens": DOCUMENT,
            "connections": connections, "model": "all-MiniLM-L6-v2", "max_length": LENGTH,
        },
        metrics={
            "seconds": seconds, "embed_seconds": embedded.seconds, "tokens": embedded.tokens,
            "share_of_embed": embedded.seconds / seconds, **percentiles(short),
            **{f"document_{name}": value for name, value in percentiles(long).items()},
            "answered": client.statuses[200], "sent_again": sum(client.statuses[status] for status in AGAIN),
            "wrong": client.wrong, "ready_seconds": server.ready_after, "exit_status": exit_status,
            "peak_mib": peak, "peak_of_one_batch_mib": before, "memory_ratio": peak / before,
        },
    )  # fmt: skip


def lanes(folder: Path, encoder: longform.Encoder, texts: int) -> Record:
    """The part "lanes"."""
    short = texts_of(encoder, [100] * texts, seed=4)
    long = texts_of(encoder, [LENGTH] * 3, seed=5)
    expected, of_long = encoder.encode(short), encoder.encode(long)
    started = time.perf_counter()
    encoder.encode(long[:1])
    one_pass = time.perf_counter() - started
    server = Server(folder)

    async def beside() -> Client:
        busy = Client(server.port, long, of_long)
        forever = (number % len(long) for number in count())  # ends with the task
        tasks = [asyncio.create_task(busy.ask_all(forever)) for _ in range(2)]
        await asyncio.sleep(0.2)
        client = Client(server.port, short, expected)
        await client.run(1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        client.wrong += busy.wrong
        return client

    alone = Client(server.port, short, expected)
    asyncio.run(alone.run(1))
    found = asyncio.run(beside())
    server.stop()
    return Record(
        name="serving",
        settings={"part": "lanes", "texts": texts, "document_tokens": LENGTH, "model": "all-MiniLM-L6-v2"},
        metrics={
            **{f"alone_{name}": value for name, value in percentiles(list(alone.seconds.values())).items()},
            **percentiles(list(found.seconds.values())),
            "document_pass_seconds": one_pass,
            "wrong": alone.wrong + found.wrong,
        },
    )


def main() -> None:
    """Measure both parts, append, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=10_000)
    parser.add_argument("--documents", type=int, default=50)
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--lane-texts", type=int, default=100)
    parser.add_argument("--no-record", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "minilm"
        longform.convert(str(bundled_encoder_folder()), max_length=LENGTH).save_pretrained(folder)
        encoder = longform.Encoder.from_pretrained(folder)
        records: list[Any] = [
            under_load(folder, encoder, options.texts, options.documents, options.connections),
            lanes(folder, encoder, options.lane_texts),
        ]
    for record in records:
        if not options.no_record:
            append_record(RECORDS / "serving.jsonl", record)
        print(record.settings, record.metrics, sep="\n")


if __name__ == "__main__":
    main()
