"""Models for tests of engines, which other processes can import: they make nothing of a text, or die of it.

As a program: ``python -m ray_tasks SOURCE OUTPUT ADDRESS PAUSE`` has such a model run over a file on a cluster.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from longform_text.data.text import Document
from longform_text.inference.parts.run import run_parts
from longform_text.inference.prepared import Made, Prepared
from longform_text.inference.settings import InferenceResult, InferenceSettings


def prepare(model: str, settings: InferenceSettings, pause: float = 0.0) -> Prepared:
    """A model whose vector of a text is its length and first character; it takes ``pause`` seconds for each text.

    The text "die" kills its process, "fail" raises.
    """

    def results(documents: Iterator[Document], computed: Any) -> Iterator[Made]:
        for document in documents:
            time.sleep(pause)
            if document.text == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if document.text == "fail":
                raise RuntimeError("this text fails")
            value = np.array([[len(document.text), ord(document.text[:1] or " ")]], dtype=np.float32)
            yield Made(value, [{"tokens": len(document.text), "truncated": 0}])

    return Prepared(results, lambda row: {"embedding": row}, 64, settings, {"command": "test"})


def settings_for(address: str | None, **options: Any) -> InferenceSettings:
    """Small parts; on the Ray at ``address``, None: in this process."""
    engine = "local" if address is None else "ray"
    options = {"actors": 1, "num_cpus": 0.5, "part_rows": 7, "progress": False, **options}
    return InferenceSettings(text_field="text", engine=engine, ray_address=address, **options)


def run(source: Path, output: Path, settings: InferenceSettings, pause: float = 0.0) -> InferenceResult:
    """Such a model, over a file or folder."""
    return run_parts(partial(prepare, settings=settings, pause=pause), "test", [source], output, settings)


if __name__ == "__main__":
    from ray_tasks import run as run_imported  # by the name that other processes know

    chosen = settings_for(sys.argv[3], actors=2, num_cpus=1)
    run_imported(Path(sys.argv[1]), Path(sys.argv[2]), chosen, float(sys.argv[4]))
