"""README and the pages of docs, and the blocks of them that are to be run."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"(?P<before>[^\n]*)\n```(?P<language>python|sh)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)
NOT_RUN = re.compile(r"<!-- not run: \S.* -->")


def blocks(document: Path, language: str) -> list[tuple[int, str]]:
    """Line number and code of each block that is to be run."""
    text = document.read_text()
    return [
        (text.count("\n", 0, found.start("code")) + 1, found["code"])
        for found in BLOCK.finditer(text)
        if found["language"] == language and not NOT_RUN.fullmatch(found["before"])
    ]


def name_of(document: Path) -> str:
    return str(document.relative_to(ROOT))
