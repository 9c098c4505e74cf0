"""Late registration with Hugging Face's Auto classes and PEFT, so that ``import longform`` need import none of them.

It has two moments. An import hook enters LinformerConfig in transformers' table of configurations as soon as that table
is imported, and the layers that LoRA adapts in PEFT's table. The models follow when the first LinformerConfig is made:
an Auto class for models looks into its own table with a configuration in hand, whether it was given one or read it from
a folder. A hook on those tables would not do: ``transformers.modeling_layers``, which the models need, imports them
before it has defined anything.
"""

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

CONFIGURATIONS, ADAPTED = "transformers.models.auto.configuration_auto", "peft.utils.constants"
LORA_TARGETS = ["query", "value"]  # as PEFT has it for BERT


def register_late() -> None:
    """Register now with what is imported already, and with the others when they will be."""
    for name, register in TABLES.items():
        if name in sys.modules:
            register()
    if not TABLES.keys() <= sys.modules.keys():
        sys.meta_path.insert(0, _TableFinder())


def _register_config() -> None:
    from transformers.models.auto.configuration_auto import AutoConfig

    from longform.models.configuration_linformer import LinformerConfig

    AutoConfig.register(LinformerConfig.model_type, LinformerConfig, exist_ok=True)


def _register_adapted_layers() -> None:
    targets = getattr(sys.modules[ADAPTED], "TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING", {})
    targets.setdefault("linformer", LORA_TARGETS)


TABLES: dict[str, Callable[[], None]] = {CONFIGURATIONS: _register_config, ADAPTED: _register_adapted_layers}


class _TableFinder(MetaPathFinder):
    """Finds the modules of TABLES by the finders after this one, and wraps their loaders."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in TABLES:
            return None
        others = sys.meta_path[sys.meta_path.index(self) + 1 :]
        spec = next((found for finder in others if (found := finder.find_spec(fullname, path, target))), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _TableLoader(spec.loader)
        return spec


class _TableLoader(Loader):
    """Runs the module by its own ``loader``, which the module shows as ever, and then registers with it."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self.loader
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        TABLES[module.__name__]()
