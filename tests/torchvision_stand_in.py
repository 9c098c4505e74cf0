"""A stand-in for torchvision, which vit-pytorch and timm import at their tops: names, and nothing behind them.

torchvision has to be of the build of torch beside it, which not every registry has.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType


class Names(type):
    """A class whose attributes are their names."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class StandIn(ModuleType):
    __path__: list[str] = []  # noqa: RUF012  a package

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Names(name, (), {})


class Finder:
    def find_spec(self, name, path, target=None):
        return ModuleSpec(name, self, is_package=True) if name.split(".")[0] == "torchvision" else None

    def create_module(self, spec):
        return StandIn(spec.name)

    def exec_module(self, module):
        pass


@contextmanager
def torchvision() -> Iterator[None]:
    """While it lasts, ``import torchvision`` gives names alone, unless it is installed."""
    finder = Finder()
    sys.meta_path.append(finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            if isinstance(sys.modules[name], StandIn):
                del sys.modules[name]
