"""The clients that the guide shows, run as it shows them, beside a server on a port of this machine."""

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[3] / "docs/guides/serve.md"
ADDRESS = "127.0.0.1:8080"
CODE = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
BLOCKS = [code for code in CODE if ADDRESS in code]  # the others need no server


@pytest.mark.parametrize("code", BLOCKS, ids=lambda code: code.split()[1])
def test_clients_of_the_guide(address: str, code: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(code.replace(ADDRESS, address), str(GUIDE), "exec"), {})
    expected = {"openai": r"2 24 \d+\n", "langchain_openai": r"2 24\n"}
    assert re.fullmatch(expected[code.split()[1]], capsys.readouterr().out)
