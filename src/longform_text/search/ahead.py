"""Tokens that are still to be read, estimated by the kinds of files, for a bar that knows how long it will take."""

from collections.abc import Mapping


class Ahead:
    """Tokens of files: those that were read, and for the others as many a byte as files of their kind had so far.

    ``files``: kind and bytes of each, by name. ``tokens``: that were read.
    """

    def __init__(self, files: Mapping[str, tuple[str, int]]) -> None:
        self._left = dict(files)
        self._seen = {"": (1, 4)}  # tokens and bytes of all files, before any was read
        self._begun: dict[str, int] = {}
        self.tokens = 0

    def read(self, name: str, tokens: int) -> None:
        """Count ``tokens`` of a file."""
        self._begun[name] = self._begun.get(name, 0) + tokens
        self.tokens += tokens

    def ended(self, name: str) -> None:
        """Count a file as read."""
        found, (kind, size) = self._begun.pop(name, 0), self._left.pop(name)
        for known in {kind, ""} if found else ():
            tokens, read = self._seen.get(known, (0, 0))
            self._seen[known] = tokens + found, read + size

    def total(self) -> int:
        """Tokens of all files, as far as can be told."""
        left = 0.0
        for name, (kind, size) in self._left.items():
            tokens, read = self._seen.get(kind, self._seen[""])
            left += max(0.0, size * tokens / read - self._begun.get(name, 0))
        return self.tokens + int(left)
