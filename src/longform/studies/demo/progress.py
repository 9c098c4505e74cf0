"""Where the demo stands: each step's result is a file that appears when the step is complete."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from longform.data.text import atomic_write
from longform.errors import CheckpointError, ConfigurationError

IDENTITY = "demo.json"
WORK = "work"


@dataclass
class Progress:
    """The results of the steps, kept in ``folder``. ``identity``: what must be the same to go on in the folder."""

    folder: Path
    identity: dict[str, Any]
    results: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def work(self) -> Path:
        """What is needed to go on, and may be deleted in the end."""
        return self.folder / WORK

    def open(self) -> None:
        """Take up what is there. Raises ConfigurationError when the folder holds something else."""
        path = self.folder / IDENTITY
        if path.exists():
            before = _read(path)
            if before.get("identity") != self.identity:
                raise ConfigurationError(
                    f'"{self.folder}" holds a demo that was started with {_said(before.get("identity") or {})}, '
                    f"this one has {_said(self.identity)}: give the same, another --output, or --fresh"
                )
            self.results = before["results"]
            return
        if self.folder.is_dir() and any(self.folder.iterdir()):
            raise ConfigurationError(
                f'"{self.folder}" is not empty, and no demo was run in it: give another folder (--output)'
            )
        self._write()

    def step(self, name: str, action: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The result of a step: as it was written down, or by doing it now; with the ``seconds`` that it took.

        ``seconds`` of a step that was interrupted count from its last start.
        """
        if name not in self.results:
            began = time.perf_counter()
            result = action()
            self.results[name] = json.loads(json.dumps({**result, "seconds": round(time.perf_counter() - began, 1)}))
            self._write()
        return self.results[name]

    def _write(self) -> None:
        with atomic_write(self.folder / IDENTITY) as file:
            json.dump({"identity": self.identity, "results": self.results}, file, indent=1)


def _read(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f'"{path}" is damaged ({error}): start anew with --fresh') from error


def _said(identity: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in identity.items())
