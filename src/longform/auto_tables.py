"""The tables in which transformers, PEFT and sentence-transformers look up names, with entries for ours as soon as they
are imported.

``import longform`` imports none of them: transformers' table alone needs torch, and half of torch's time again. None
has entry points for models, so that only an import hook can tell when a table is there. transformers' entry is of the
kind that it has for its own models: a module and a name in it, looked up when a folder asks for it.
sentence-transformers takes modules of other packages with ``trust_remote_code=True``, or as classes that it knows.
"""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from longform.choices import AUTO_MODELS


def _enter_configuration(table: Any) -> None:
    table.CONFIG_MAPPING._mapping["linformer"] = "LinformerConfig"
    table.CONFIG_MAPPING._modules["linformer"] = sys.modules["longform"]


def _enter_models(table: Any) -> None:
    for auto, name in AUTO_MODELS.items():
        models = getattr(table, auto)._model_mapping
        models._reverse_config_mapping["LinformerConfig"] = "linformer"
        models._model_mapping["linformer"] = name
        models._modules["linformer"] = sys.modules["longform"]


def _enter_adapted_layers(table: Any) -> None:
    table.TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING["linformer"] = ["query", "value"]  # as for BERT


def _enter_module(table: Any) -> None:
    name = "longform.conversion.sublinear_tf.SublinearTF"
    module, _, kind = name.rpartition(".")
    table.BaseModel._module_classes = {**table.BaseModel._module_classes, name: getattr(import_module(module), kind)}


TABLES: dict[str, Callable[[ModuleType], None]] = {
    "transformers.models.auto.configuration_auto": _enter_configuration,
    "transformers.models.auto.modeling_auto": _enter_models,
    "peft.utils.constants": _enter_adapted_layers,
    "sentence_transformers.base.model": _enter_module,
}


class _TableFinder:
    """Finds the modules of TABLES as Python does, and has the entry made once they have run."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in TABLES else None
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_enter(module: ModuleType) -> None:
                execute(module)
                TABLES[name](module)

            spec.loader.exec_module = execute_and_enter
        return spec


def enter_late() -> None:
    """Enter now in the tables that are imported already, and in the others when they will be."""
    sys.meta_path.insert(0, _TableFinder())
    for name in TABLES.keys() & sys.modules.keys():
        TABLES[name](import_module(name))  # waits where another thread is about to import it
