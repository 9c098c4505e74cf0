"""The exceptions that Longform raises for what a user can put right.

::

    Exception
    └── LongformError
        ├── ConfigurationError      (ValueError)   options that do not go together
        ├── InputError              (ValueError)   tensors, masks, lengths
        ├── DataError               (ValueError)   files, records, labels
        ├── ConversionError         (ValueError)   a source model that cannot be converted
        ├── CheckpointError         (ValueError)   a saved model or run that cannot be read
        └── MissingDependencyError  (ImportError)  an optional package is not installed
"""

import importlib
from collections.abc import Iterable
from types import ModuleType
from typing import Any

NO_MEMORY = (
    "can't allocate memory", "cannot allocate memory", "out of memory",
    "could not create a primitive",  # oneDNN
)  # fmt: skip


class LongformError(Exception):
    """Base of every error that Longform raises on purpose."""


class ConfigurationError(LongformError, ValueError):
    """Options that do not go together; the message names them, their values and the way out."""


class InputError(LongformError, ValueError):
    """A tensor, mask or length that a model cannot take."""


class DataError(LongformError, ValueError):
    """A file, record or label that cannot be used."""


class ConversionError(LongformError, ValueError):
    """A source model that cannot be converted."""


class CheckpointError(LongformError, ValueError):
    """A saved model or an interrupted run that cannot be read."""


class MissingDependencyError(LongformError, ImportError):
    """An optional package that the called function needs."""


def some(names: Iterable[Any], most: int = 3) -> str:
    """Names for a message, of many the first few."""
    listed = list(map(str, names))
    return ", ".join([*listed[:most], *(["..."] if listed[most:] else [])])


def installing(*extras: str) -> str:
    """The command that installs extras; there is no package of Longform on a registry, so it is the clone's."""
    return f'pip install -e ".[{",".join(extras)}]" in the clone of Longform'


def require(module_name: str, *, extra: str) -> ModuleType:
    """Import an optional module, or raise MissingDependencyError that says which extra installs it."""
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise
        raise missing(error.name.split(".")[0], extra=extra) from error


def missing(package: str, *, extra: str) -> MissingDependencyError:
    """The error that says which extra installs a package."""
    return MissingDependencyError(f'this needs the package "{package}", which is not installed: {installing(extra)}')


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory has run out, of the machine or of a GPU."""
    said = str(error).lower()
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and any(p in said for p in NO_MEMORY))
