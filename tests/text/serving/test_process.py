"""The server as a process: signals, ports, slow clients, pipelined requests, folders that cannot be served."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from longform_text.inference.encoders import Encoder

pytestmark = pytest.mark.nightly
BODY = b'{"input": ["near far"]}'
LENGTH = str(len(BODY)).encode()
HEAD = (
    b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
    + LENGTH
    + b"\r\n\r\n"
)


class Server:
    """``longform serve`` in a process of its own, ready."""

    def __init__(self, folder: Path, *options: str, port: int = 0) -> None:
        self.process = command(folder, "--port", str(port), *options)
        assert self.process.stdout is not None
        found = None
        while found is None:
            line = self.process.stdout.readline()
            assert line, self.process.communicate()[1]
            found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        self.port = int(found[1])

    def ask(self, body: bytes = BODY) -> Any:
        kind = {"Content-Type": "application/json"}
        asked = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/embeddings", body, kind)
        with urllib.request.urlopen(asked, timeout=300) as answer:
            return json.load(answer)

    def connection(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=120)

    def taken(self) -> int:
        """Requests for vectors that were accepted, answered or not."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=300) as answer:
            lines = answer.read().decode().splitlines()
        named = ("longform_requests_running ", 'longform_requests_total{route="/v1/embeddings"')
        return int(sum(float(line.split()[-1]) for line in lines if line.startswith(named))) - 1  # this one

    def ends(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        self.said = self.process.communicate(timeout=300)[1]
        return self.process.returncode


def command(folder: Path, *options: str) -> "subprocess.Popen[str]":
    asked = [sys.executable, "-m", "longform", "serve", str(folder), *options]
    return subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def refused(folder: Path, *options: str) -> str:
    process = command(folder, "--port", "0", *options)
    said = process.communicate(timeout=300)[1]
    assert process.returncode == 2, said
    assert said.count("\n") == 1, said
    return said


def everything(connection: socket.socket) -> bytes:
    found = b""
    while part := connection.recv(65536):
        found += part
    return found


@pytest.fixture(scope="module")
def server(sentence_folder: Path) -> Iterator[Server]:
    started = Server(sentence_folder)
    yield started
    assert started.ends(signal.SIGINT) == 0
    assert set(started.said.splitlines()) <= {"WARNING:  Invalid HTTP request received."}


def test_slow_clients_do_not_hold_up_others(server: Server) -> None:
    with server.connection() as header, server.connection() as body, server.connection():
        header.sendall(HEAD[:40])
        body.sendall(HEAD + BODY[:5])
        for _ in range(4):
            server.ask()
        for slow, rest in ((header, HEAD[40:] + BODY), (body, BODY[5:])):
            slow.sendall(rest)
            assert slow.recv(65536).startswith(b"HTTP/1.1 200 ")


def everything_or_reset(connection: socket.socket) -> bytes:
    try:
        return everything(connection)
    except ConnectionError:
        return b""


def test_pipelined_requests_are_answered_in_order(server: Server) -> None:
    bodies = [json.dumps({"input": [text]}).encode() for text in ("near", "far " * 20, "long")]
    with server.connection() as connection:
        heads = [HEAD.replace(LENGTH, str(len(body)).encode()) for body in bodies]
        heads[-1] = heads[-1].replace(b"Host: x\r\n", b"Host: x\r\nConnection: close\r\n")
        connection.sendall(b"".join(head + body for head, body in zip(heads, bodies, strict=True)))
        found = re.findall(rb'\r\n\r\n(\{"object".*?"usage":\{.*?\}\})', everything(connection))
    assert [json.loads(each) for each in found] == [server.ask(body) for body in bodies]


def test_what_is_no_http_and_bodies_that_are_too_long(server: Server) -> None:
    for sent in (
        b"\x16\x03\x01 hello\r\n\r\n",
        b"GET / HTTP/1.1\r\nno header\r\n\r\n",
        HEAD.replace(LENGTH, b"-5") + BODY,
    ):
        with server.connection() as connection:
            connection.sendall(sent)
            assert everything_or_reset(connection)[:13] in (b"HTTP/1.1 400 ", b"")
    with server.connection() as connection:
        connection.sendall(HEAD.replace(LENGTH, b"99999999999"))
        assert connection.recv(65536).startswith(b"HTTP/1.1 413 ")
    server.ask()


def test_a_thousand_requests_at_once(server: Server, sentence_folder: Path) -> None:
    texts = [f"near {number} " * (1 + number % 5) for number in range(1000)]
    found: dict[int, Any] = {}

    def ask(numbers: range) -> None:
        sockets = [server.connection() for _ in numbers]
        for number, connection in zip(numbers, sockets, strict=True):
            body = json.dumps({"input": [texts[number]]}).encode()
            head = HEAD.replace(LENGTH, str(len(body)).encode())
            connection.sendall(head.replace(b"Host: x\r\n", b"Host: x\r\nConnection: close\r\n") + body)
        for number, connection in zip(numbers, sockets, strict=True):
            with connection:
                status, _, body = everything(connection).partition(b"\r\n\r\n")
            assert status.startswith(b"HTTP/1.1 200 "), status
            found[number] = json.loads(body)["data"][0]["embedding"]

    threads = [threading.Thread(target=ask, args=(range(first, 1000, 4),)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    vectors = np.array([found[number] for number in range(1000)])
    np.testing.assert_allclose(vectors, Encoder.from_pretrained(sentence_folder).encode(texts), rtol=0, atol=1e-5)


def test_a_stop_under_load_answers_what_was_accepted(sentence_folder: Path) -> None:
    server = Server(sentence_folder, "--batch-wait-ms", "700")
    connections = [server.connection() for _ in range(20)]
    for connection in connections:
        connection.sendall(HEAD + BODY)
    while server.taken() < len(connections):
        time.sleep(0.01)
    assert server.ends() == 0
    for connection in connections:
        with connection:
            assert everything(connection).startswith(b"HTTP/1.1 200 ")
    with pytest.raises(ConnectionRefusedError):
        server.connection()


def test_a_kill_and_a_new_start_on_the_same_port(sentence_folder: Path) -> None:
    server = Server(sentence_folder)
    expected = server.ask()
    assert server.ends(signal.SIGKILL) == -signal.SIGKILL
    again = Server(sentence_folder, port=server.port)
    assert again.port == server.port
    assert again.ask() == expected
    assert f"port {server.port} of 127.0.0.1 is in use" in refused(sentence_folder, "--port", str(server.port))
    beside = Server(sentence_folder)  # on the same folder
    assert beside.ask() == expected
    assert (beside.ends(), again.ends()) == (0, 0)


def test_folders_that_cannot_be_served(sentence_folder: Path, tmp_path: Path) -> None:
    assert 'longform: error: "' in refused(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    assert "empty" in refused(tmp_path / "empty")
    cut = shutil.copytree(sentence_folder, tmp_path / "cut")
    weights = cut / "model.safetensors"
    os.truncate(weights, weights.stat().st_size // 2)
    assert "cut" in refused(cut)
    assert "it is from 0" in refused(sentence_folder, "--port", "70000")
    assert "cannot listen on nowhere.invalid" in refused(sentence_folder, "--host", "nowhere.invalid")
