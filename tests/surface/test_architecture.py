"""What ARCHITECTURE.md names exists, and its layers are import-linter's."""

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
LARGEST = 9_216  # bytes: a guide, not a list of files


def test_every_path_named_exists() -> None:
    """Names of files and folders may be given from any folder on: ``formula.py`` is also ``window/formula.py``."""
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    files = [name for name in tracked.split("\0") if name and (ROOT / name).is_file()]
    paths = {f"/{path}" for name in files for path in (name, *(f"{folder}/" for folder in Path(name).parents))}
    named = re.findall(r"`([\w.*/-]+(?:/|\.(?:py|md|c|h|toml|yml|html)))`", TEXT)
    assert "functional/window/formula.py" in named
    missing = [name for name in named if "*" not in name and not any(path.endswith(f"/{name}") for path in paths)]
    assert missing == []


def test_it_stays_a_guide() -> None:
    assert len(TEXT.encode()) <= LARGEST


@pytest.mark.parametrize(("package", "contract"), [("longform", "core"), ("longform_text", "text")])
def test_the_rooms_drawn_are_those_of_the_import_contracts(package: str, contract: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    entry = next(entry for entry in project["tool"]["importlinter"]["contracts"] if entry["id"] == contract)
    drawn = TEXT.split(f"    {package}/\n", 1)[1].split("\n    longform", 1)[0]
    rooms = re.findall(r"^ {6}(\w+(?: \| \w+)*)(?: {2,}|$)", drawn, re.MULTILINE)
    assert [re.findall(r"\w+", line) for line in rooms] == [re.findall(r"\w+", layer) for layer in entry["layers"]]


def test_no_import_of_ours_is_hidden_from_the_import_contracts() -> None:
    """Only the tables of public names and of commands name our modules in strings."""
    tables = {
        ROOT / f"src/{name}" for name in ("longform/__init__.py", "longform/__main__.py", "longform_text/cli/main.py")
    }
    hidden = [
        f"{path.relative_to(ROOT)}:{call.lineno}: {ast.unparse(call)}"
        for path in (ROOT / "src").rglob("*.py")
        if path not in tables
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call)
        and ast.unparse(call.func).split(".")[-1] in ("import_module", "__import__", "require", "resolve_name")
        and re.search(r"longform(_text|_lab)?\.", ast.unparse(call))
    ]
    assert hidden == []
