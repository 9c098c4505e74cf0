"""The steps of a demo: each step's result is kept in its folder when the step is complete, and not made again."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from longform.files import open_run_folder, read_json, write_json

IDENTITY, RESULTS = "demo.json", "results.json"
WORK, DOCUMENTS = "work", "documents"  # folders of pictures, and of what is searched
HEADINGS = 2  # parts of the demo
OTHERWISE = "another --output, or --restart to begin anew"


@dataclass
class Pipeline:
    """The results of the steps, kept in ``folder``. ``identity``: what must be the same to go on in the folder."""

    folder: Path
    identity: dict[str, Any]
    results: dict[str, dict[str, Any]] = field(default_factory=dict)

    def open(self) -> None:
        """Take up what is there. Raises ConfigurationError when the folder holds something else."""
        open_run_folder(self.folder, IDENTITY, self.identity, what="demo", otherwise=OTHERWISE)
        path = self.folder / RESULTS
        self.results = read_json(path, way_out=f"give {OTHERWISE}") if path.exists() else {}

    def step(self, name: str, action: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The result of a step: as it was written down, or by doing it now; with the ``seconds`` that it took.

        ``seconds`` of a step that was interrupted count from its last start.
        """
        if name not in self.results:
            began = time.perf_counter()
            result = action()
            self.results[name] = json.loads(json.dumps({**result, "seconds": round(time.perf_counter() - began, 1)}))
            write_json(self.folder / RESULTS, self.results)
        return self.results[name]
