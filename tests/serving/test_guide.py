"""The clients that the guide shows, run as it shows them, beside a server on a port of this machine."""

import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn

from longform.serving.app import create_app
from longform.serving.engine import Engine
from longform.serving.settings import ServingSettings

GUIDE = Path(__file__).parents[2] / "docs/guides/serve.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def address(engine: Engine) -> Iterator[str]:
    server = uvicorn.Server(uvicorn.Config(create_app(ServingSettings(), lambda: engine), port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


@pytest.mark.parametrize("code", BLOCKS, ids=lambda code: code.split()[1])
def test_clients_of_the_guide(address: str, code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "127.0.0.1:8080" in code
    exec(compile(code.replace("127.0.0.1:8080", address), str(GUIDE), "exec"), {})
    expected = {"openai": r"2 24 \d+\n", "langchain_openai": r"2 24\n", "json": r"2\n"}
    assert re.fullmatch(expected[code.split()[1]], capsys.readouterr().out)
