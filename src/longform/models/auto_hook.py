"""Late registration with Hugging Face's Auto classes, so that ``import longform`` need import neither torch nor them.

It has two moments. An import hook enters LinformerConfig in transformers' table of configurations as soon as that table
is imported. The models follow when the first LinformerConfig is made: an Auto class for models looks into its own table
with a configuration in hand, whether it was given one or read it from a folder. A hook on those tables would not do:
``transformers.modeling_layers``, which the models need, imports them before it has defined anything.
"""

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

TABLE = "transformers.models.auto.configuration_auto"


def register_late() -> None:
    """Enter LinformerConfig now, where transformers' table of configurations is imported, or else when it will be."""
    if TABLE in sys.modules:
        _register_config()
    else:
        sys.meta_path.insert(0, _TableFinder())


def _register_config() -> None:
    from transformers.models.auto.configuration_auto import AutoConfig

    from longform.models.configuration_linformer import LinformerConfig

    AutoConfig.register(LinformerConfig.model_type, LinformerConfig, exist_ok=True)


class _TableFinder(MetaPathFinder):
    """Finds TABLE by the finders after this one, and wraps its loader."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != TABLE:
            return None
        others = sys.meta_path[sys.meta_path.index(self) + 1 :]
        spec = next((found for finder in others if (found := finder.find_spec(fullname, path, target))), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _TableLoader(spec.loader)
        return spec


class _TableLoader(Loader):
    """Runs the module by its own ``loader``, which the module shows as ever, and then enters LinformerConfig."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self.loader
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        _register_config()
