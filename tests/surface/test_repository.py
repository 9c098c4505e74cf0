"""What the repository promises as a whole: versions agree, public names are documented, tables are generated."""

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import longform
from longform_lab.tables import write as tables

ROOT = Path(__file__).parents[2]
LARGEST_FILE = 1_000_000
SHAPE = re.compile(r"\(\s*(?:[A-Za-z]\w*|\d+|\.\.\.)\s*,|\bshapes?\b|\bscalar\b", re.IGNORECASE)
NUMERIC_PACKAGES = ("longform.functional", "longform.layers")


def tracked_files() -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in listing.split("\0") if name and (ROOT / name).is_file()]


def numeric_modules() -> list[ModuleType]:
    return [
        importlib.import_module(module.name)
        for package_name in NUMERIC_PACKAGES
        for module in pkgutil.walk_packages(importlib.import_module(package_name).__path__, f"{package_name}.")
    ]


def public_definitions(module: ModuleType) -> list[tuple[str, object]]:
    return [
        (name, value)
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__ == module.__name__
    ]


def handles_tensors(value: object) -> bool:
    """Whether a function's signature, or a class's fields or forward method, has a tensor; predicates do not count."""
    described = vars(value).get("forward", value) if inspect.isclass(value) else value
    annotations = inspect.get_annotations(described)
    return annotations.get("return") is not bool and "Tensor" in str(annotations)


def described_shapes(value: object) -> str:
    """All that says a shape: the docstring, and for a class its forward method's."""
    forward = vars(value).get("forward") if inspect.isclass(value) else None
    return "\n".join(inspect.getdoc(part) or "" for part in (value, forward) if part)


def test_changelog_project_and_package_have_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    changelog = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    citation = re.search(r"^version: (\S+)", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert changelog is not None
    assert citation is not None
    assert longform.__version__ == project == changelog[1] == citation[1]


def test_every_public_name_exists_and_is_documented() -> None:
    assert longform.__all__, "longform.__all__ is the public surface and cannot be empty"
    public = {name: getattr(longform, name) for name in longform.__all__ if not name.startswith("__")}
    undocumented = [name for name, value in public.items() if callable(value) and not inspect.getdoc(value)]
    assert undocumented == []


def test_every_module_of_the_numeric_core_documents_its_shapes() -> None:
    without_shapes = [
        f"{module.__name__}.{name}"
        for module in numeric_modules()
        for name, value in public_definitions(module)
        if handles_tensors(value) and not SHAPE.search(described_shapes(value))
    ]
    assert without_shapes == []


@pytest.mark.parametrize("package", NUMERIC_PACKAGES)
def test_the_numeric_core_does_not_import_transformers(package: str) -> None:
    program = f"import sys, {package}; sys.modules.keys() & {{'transformers', 'datasets'}} and sys.exit(1)"
    bare = f"import types, sys; p = types.ModuleType('longform'); p.__path__ = {[str(ROOT / 'src/longform')]!r}; "
    assert subprocess.run([sys.executable, "-c", bare + "sys.modules['longform'] = p; " + program]).returncode == 0


def test_no_tracked_file_is_large() -> None:
    large = [str(path.relative_to(ROOT)) for path in tracked_files() if path.stat().st_size > LARGEST_FILE]
    assert large == []


def test_no_source_postpones_annotations() -> None:
    statement = "from __future__ import " + "annotations"
    sources = [path for path in tracked_files() if path.suffix == ".py"]
    assert [str(path) for path in sources if statement in path.read_text()] == []


def test_constraints_pin_versions_by_name_only() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!]+", line)] == []


def test_generated_tables_are_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert tables.main(["--check"]) == 0, capsys.readouterr().out
