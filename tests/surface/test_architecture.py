"""ARCHITECTURE.md's list of files and layers is the tree's and import-linter's."""

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENTRY = re.compile(r"^(?P<indent> {4,})(?P<name>[\w./]+)(?: {2,}|$)")


def section(title: str) -> str:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    return text.split(f"{title}\n", 1)[1].split("\n## ", 1)[0]


def listed_paths() -> list[str]:
    """Paths of the file list: an entry that ends in a slash is the folder of what is indented below it."""
    folders: dict[int, str] = {}
    paths = []
    for line in section("## Files").splitlines():
        found = ENTRY.match(line)
        if found is None:
            continue
        depth = len(found["indent"])
        above = [folders[other] for other in sorted(folders) if other < depth]
        path = (above[-1] if above else "") + found["name"]
        paths.append(path)
        folders = {other: name for other, name in folders.items() if other < depth}
        if path.endswith("/"):
            folders[depth] = path
    return paths


def test_every_listed_path_exists() -> None:
    paths = listed_paths()
    assert "src/longform/functional/slots.py" in paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_no_path_is_listed_twice() -> None:
    paths = listed_paths()
    assert sorted(paths) == sorted(set(paths))


def test_every_module_is_listed() -> None:
    files = [*(ROOT / "src/longform").rglob("*.py"), *(ROOT / "benchmarks").glob("*.py")]
    modules = {str(path.relative_to(ROOT)) for path in files}
    packages = {path for path in modules - {"src/longform/__init__.py"} if path.endswith("/__init__.py")}
    assert modules - packages - set(listed_paths()) == set()


def test_the_layers_are_those_of_the_import_contract() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contract = next(entry for entry in project["tool"]["importlinter"]["contracts"] if entry["id"] == "layers")
    enforced = [re.findall(r"\w+", layer) for layer in contract["layers"]]
    drawn = []
    for line in section("## Layers").splitlines():
        found = re.match(r"^ {4}(\w+(?: \| \w+)*)(?: {2,}|$)", line)
        if found is not None:
            drawn.append(re.findall(r"\w+", found[1]))
    assert drawn == enforced


def test_no_import_of_ours_is_hidden_from_the_import_contracts() -> None:
    """Only the tables of public names and of commands name our modules in strings."""
    tables = {ROOT / "src/longform/__init__.py", ROOT / "src/longform/cli/main.py"}
    hidden = [
        f"{path.relative_to(ROOT)}:{call.lineno}: {ast.unparse(call)}"
        for path in (ROOT / "src/longform").rglob("*.py")
        if path not in tables
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call)
        and ast.unparse(call.func).split(".")[-1] in ("import_module", "__import__", "require", "resolve_name")
        and "longform." in ast.unparse(call)
    ]
    assert hidden == []
