"""Kernels of an operation, one by one, whatever the machine has: tests hold each against the twin."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from longform.functional import conditions, dispatch
from longform.functional.linear import amx as linear_amx
from longform.functional.native import library

OWN_UNITS = library.best_units()
UNITS = [library.PORTABLE, *(library.UNITS[library.UNITS.index(OWN_UNITS) :] if OWN_UNITS else ())]


@contextmanager
def only(**kernels: str) -> Iterator[None]:
    """Inside, an operation has the one kernel that is named, which needs nothing."""
    with pytest.MonkeyPatch.context() as patch:
        for operation, name in kernels.items():
            kernel = next(kernel for kernel in dispatch.OPERATIONS[operation] if kernel.name == name)
            patch.setitem(dispatch.OPERATIONS, operation, (kernel._replace(lacks=None, dtype=None),))
        yield


@contextmanager
def machine(units: str | None = None, *, has_library: bool = True) -> Iterator[None]:
    """Inside, kernels are chosen as on a machine with such units, which loops stand for where this one has none."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (conditions, linear_amx):
            patch.setattr(module, "best_units", lambda: units)
        patch.setattr(conditions, "native_library", lambda: "given" if has_library else None)
        yield


def taken(operation: str, call: Any) -> str:
    """The name of the kernel that would serve ``call``."""
    return dispatch.choose(operation, call).name
