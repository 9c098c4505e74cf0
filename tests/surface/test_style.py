"""Sentences and sizes of the source, which ruff has no rule for: part of `make lint`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from radon.visitors import ComplexityVisitor

ROOT = Path(__file__).parents[2]
FILES = sorted(path for folder in ("src", "benchmarks") for path in (ROOT / folder).rglob("*.py"))
FRAGMENT = re.compile(r"(What|Of|That|Those|The same|All)\b")
BRANCHES = 12  # of a function, as radon counts them: with every and, or, ternary and condition of a comprehension
SKIPS = 60  # statements that are laid out by hand


def _described(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield getattr(node, "lineno", 1), ast.get_docstring(node) or ""


def test_a_docstring_begins_with_a_noun_phrase_or_a_verb() -> None:
    fragments = [
        f"{path.relative_to(ROOT)}:{line}: {said.splitlines()[0]}"
        for path in FILES
        for line, said in _described(ast.parse(path.read_text()))
        if FRAGMENT.match(said)
    ]
    assert fragments == []


def test_no_function_has_many_branches() -> None:
    crowded = [
        f"{path.relative_to(ROOT)}:{block.lineno}: {block.name} has {block.complexity}"
        for path in FILES
        for block in ComplexityVisitor.from_code(path.read_text()).blocks
        if not hasattr(block, "methods") and block.complexity > BRANCHES
    ]
    assert crowded == []


def test_few_statements_are_laid_out_by_hand() -> None:
    assert sum(path.read_text().count("# fmt: skip") for path in FILES) <= SKIPS
