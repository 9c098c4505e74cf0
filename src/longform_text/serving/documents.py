"""Folder of documents that the server searches: it is read in a thread, and what is ready is searched meanwhile."""

import logging
import threading
from pathlib import Path

from longform.choices import INDEX_FOLDER
from longform.errors import LongformError
from longform_text.search.index import Index
from longform_text.serving.engine import Engine
from longform_text.serving.errors import Refusal

log = logging.getLogger("longform_text.serving")


class Documents:
    """Documents of ``folder``, whose index is in it. ``text_field``: of records."""

    def __init__(self, folder: Path, text_field: str = "text") -> None:
        self.folder, self.text_field = folder, text_field
        self.failure = ""  # why no more is read
        self._index: Index | None = None

    def start(self, engine: Engine) -> None:
        """Read what is new in a thread of its own, which ends with the process; what it was at, the next start does."""
        threading.Thread(target=self._read, args=(engine,), name="longform-documents", daemon=True).start()

    def _read(self, engine: Engine) -> None:
        try:
            self._index = Index(self.folder / INDEX_FOLDER, engine.encoder())
            self._index.add(self.folder, text_field=self.text_field)
            log.info("%d passages are searched", len(self._index))
            for name, reason in self._index.report.passed_over.items():
                log.warning("passed over %s: %s", name, reason)
        except Exception as error:
            expected = isinstance(error, LongformError | Refusal | OSError)
            self.failure = getattr(error, "message", str(error)) or type(error).__name__
            log.error("the documents are not read on: %s", self.failure, exc_info=None if expected else error)

    @property
    def index(self) -> Index:
        """The index as far as it is read. Raises Refusal before it is opened, and where it cannot be."""
        if self._index is None:
            raise Refusal("not_ready", self.failure or "the index is being opened: come again")
        return self._index
