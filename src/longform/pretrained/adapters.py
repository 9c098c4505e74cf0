"""Adapters of PEFT, which become part of the weights of their base."""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor
from transformers.utils import cached_file, find_adapter_config_file

from longform.errors import require

LABELLED = ("out_proj.weight", "classifier.weight", "score.weight")  # weights with a row a label


def adapter_of(source: str | Path) -> dict[str, Any] | None:
    """The settings of the adapter in a folder or under a hub name, None for what is no adapter.

    Raises ValueError for one that does not name its base, the model that it was trained on.
    """
    found = find_adapter_config_file(str(source))
    settings = None if found is None else json.loads(Path(found).read_text(encoding="utf-8"))
    if settings is not None and not settings.get("base_model_name_or_path"):
        raise ValueError(
            "it is an adapter that does not name its base model; one of longform align is part of a conversion, "
            f"longform convert ENCODER OUTPUT --adapter {source}"
        )
    return settings


def adapter_weights(source: str | Path) -> dict[str, Tensor]:
    """Its tensors, by their names in the model that was trained."""
    file = cached_file(str(source), "adapter_model.safetensors")
    assert file is not None
    return {name.removeprefix("base_model.model."): tensor for name, tensor in load_file(file).items()}


def labels_of(weights: dict[str, Tensor]) -> dict[str, int]:
    """The field of a config that says how many labels the adapter's own head has, if it has one."""
    rows = [len(tensor) for name, tensor in weights.items() if name.endswith(LABELLED)]
    return {"num_labels": rows[0]} if rows else {}


def add_adapter(model: Any, source: str | Path, weights: dict[str, Tensor]) -> None:
    """Make the adapter of ``source`` part of the weights of its base ``model``, in place.

    Raises MissingDependencyError, ValueError where they do not fit, and what PEFT raises.
    """
    peft: Any = require("peft", extra="lora")
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    # It was trained on the encoder alone, or on one below a head; and so is this model.
    prefix, part = f"{model.base_model_prefix}.", model
    if model.base_model is model:
        weights = {name.removeprefix(prefix): tensor for name, tensor in weights.items()}
    elif not any(name.startswith(prefix) for name in weights):
        part = model.base_model
    peft.inject_adapter_in_model(peft.PeftConfig.from_pretrained(str(source)), part)
    needed = peft.get_peft_model_state_dict(part, save_embedding_layers=False)
    if lacking := sorted(needed.keys() - weights.keys()):
        raise ValueError(f"its adapter lacks {', '.join(lacking[:6])}")
    peft.set_peft_model_state_dict(part, weights)
    join_adapters(part)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in frozen)


def join_adapters(model: Any) -> None:
    """Make all adapters in a model part of the weights that they are on, in place; all weights then are trained."""
    done: tuple[str, ...] = ()
    for name, layer in list(model.named_modules()):
        if name.startswith(done):
            continue
        if hasattr(layer, "unload_and_optionally_merge_module"):  # a layer that learned as a whole
            new = layer.unload_and_optionally_merge_module(merge=True, safe_merge=False, adapter_names=None)
        elif hasattr(layer, "get_base_layer"):
            layer.merge()
            new = layer.get_base_layer()
        else:
            continue
        model.set_submodule(name, new)
        done += (f"{name}.",)
    model._hf_peft_config_loaded = False
    for kept in ("peft_config", "_weight_conversions"):  # the second has the names of an adapter's file
        vars(model).pop(kept, None)
    model.requires_grad_(True)
