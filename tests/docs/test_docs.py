"""What README and docs print, runs: Python blocks from the top of each document, and command lines as far as options.

A folder with the name of the hub model that they convert, and files with the names that they read, lie in the working
directory: a tiny random BERT and short texts.
"""

import json
import re
import shlex
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tiny_models import make_sentence_transformer, save_bert

import longform
from longform.cli.arguments import parse
from longform.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SOURCE = "sentence-transformers/all-MiniLM-L6-v2"
BLOCK = re.compile(r"(?P<before>[^\n]*)\n```(?P<language>python|sh)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)
NOT_RUN = re.compile(r"<!-- not run: \S.* -->")
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


def blocks(document: Path, language: str) -> list[tuple[int, str]]:
    """Line number and code of each block that is to be run."""
    text = document.read_text()
    return [
        (text.count("\n", 0, found.start("code")) + 1, found["code"])
        for found in BLOCK.finditer(text)
        if found["language"] == language and not NOT_RUN.fullmatch(found["before"])
    ]


def command_lines() -> list[str]:
    code = "\n".join(code for document in DOCUMENTS for _, code in blocks(document, "sh"))
    return [line for line in code.splitlines() if line.startswith("longform ")]


def with_blocks(language: str) -> list[Path]:
    return [document for document in DOCUMENTS if blocks(document, language)]


@pytest.fixture
def _working_directory(tiny_tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = save_bert(tmp_path / SOURCE, tiny_tokenizer)
    pooling = {"word_embedding_dimension": 24, "pooling_mode_mean_tokens": True}
    make_sentence_transformer(folder, pooling=pooling, normalise=True)
    labelled = [
        {"text": f"{kind} text {number} is long", "label": kind} for kind in ("good", "bad") for number in range(8)
    ]
    Path("labelled.jsonl").write_text("".join(json.dumps(record) + "\n" for record in labelled))


@pytest.mark.usefixtures("_working_directory")
@pytest.mark.parametrize("document", with_blocks("python"), ids=lambda path: path.stem)
def test_python_blocks_run(document: Path) -> None:
    shared: dict[str, Any] = {"__name__": "__main__"}
    for line, code in blocks(document, "python"):
        exec(compile("\n" * (line - 1) + code, str(document), "exec"), shared)


def test_the_readme_shows_python_by_line_25_and_its_shape_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    line, code = blocks(ROOT / "README.md", "python")[0]
    assert line <= 25
    exec(compile(code, "README.md", "exec"), {})
    printed = capsys.readouterr().out.strip()
    assert f"# {printed}\n" in code


@pytest.mark.parametrize("line", command_lines())
def test_printed_commands_have_the_options_that_they_use(line: str) -> None:
    _, command, *arguments = shlex.split(line)
    parse(import_module(COMMANDS[command].module).parser(), arguments)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    targets = LINK.findall(document.read_text())
    assert [target for target in targets if not (document.parent / target).exists()] == []


def test_the_reference_has_every_public_name() -> None:
    named = re.findall(r"^::: ([\w.]+)$", (ROOT / "docs" / "reference.md").read_text(), re.MULTILINE)
    assert {f"longform.{name}" for name in longform.__all__} <= set(named)
    assert sorted(named) == sorted(set(named))
    for name in named:
        module, _, last = name.rpartition(".")
        assert hasattr(import_module(module), last) or find_spec(name) is not None, name
