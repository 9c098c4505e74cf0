"""Files of JSON lines, written and read."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def write_lines(path: Path, rows: Iterable[Any]) -> Path:
    """``path``, in a folder that is made; strings among ``rows`` are texts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    records = ({"text": row} if isinstance(row, str) else row for row in rows)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def read_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]
