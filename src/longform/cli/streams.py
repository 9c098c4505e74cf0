"""Standard streams that last as long as the work: whose reader goes away, or that were closed from the start."""

import errno
import io
import os
import sys
from typing import Any

from longform.choices import STANDARD_OUTPUT
from longform.errors import ConfigurationError

GONE = (errno.EPIPE, errno.EIO)  # the reader of a pipe; a terminal
NUMBERS = {"stdout": 1, "stderr": 2}


class _Lasting(io.FileIO):
    """An open file whose output goes nowhere once nobody takes it; ``lossy``: nor does any other error stop it."""

    lossy = False

    def write(self, data: Any) -> Any:
        """The bytes that were taken, as FileIO has it."""
        try:
            return super().write(data) or (len(data) if self.lossy else None)
        except OSError as error:
            if not self.lossy and error.errno not in GONE:
                raise
        _lead_nowhere(self.fileno())
        return len(data)


def keep_open(name: str, *, lossy: bool = False) -> None:
    """Let "stdout" or "stderr" last, where it is the process's own; see ``_Lasting``."""
    stream: Any = getattr(sys, name)
    if stream is not getattr(sys, f"__{name}__"):
        return
    if stream is None:
        _lead_nowhere(NUMBERS[name])  # or the next file that is opened would have its number
    elif type(getattr(stream.buffer, "raw", stream.buffer)) is io.FileIO:
        stream.flush()
    else:  # a console of Windows
        return
    raw = _Lasting(NUMBERS[name], "w", closefd=False)
    raw.lossy = lossy
    lines = stream is None or stream.line_buffering or stream.write_through
    encoding = "utf-8" if stream is None else stream.encoding
    setattr(sys, name, io.TextIOWrapper(io.BufferedWriter(raw), encoding, "backslashreplace", line_buffering=lines))


def keep_stdout(output: str | None) -> None:
    """Let standard output last where a command does but report there; ``output``: of the command.

    Raises ConfigurationError where records go there and it is closed.
    """
    if output != STANDARD_OUTPUT:
        keep_open("stdout")
    elif sys.stdout is None:
        raise ConfigurationError("records go to standard output, which is closed: give a file (--output)")


def _lead_nowhere(number: int) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    if nowhere != number:
        os.dup2(nowhere, number)
        os.close(nowhere)
