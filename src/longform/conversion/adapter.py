"""An adapter: what a training changed in a converted encoder, in a small folder, added to a new conversion.

The folder has PEFT's two files (a low-rank change of linear layers), ``longform.json`` (how the encoder was converted,
and a key of its weights before the training), and where tokens are weighted in the mean, their weights.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from longform.conversion.pooling_modules import with_token_weights
from longform.conversion.shipped import ACCOUNT, SHIPPED, shipped
from longform.errors import CheckpointError, ConfigurationError, ConversionError
from longform.files import read_json
from longform.layers.options import by_our_names
from longform.pretrained.checkpoint_files import model_key

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"  # PEFT's names
TOKEN_WEIGHTS = "token_weights.safetensors"
PREFIX, DOWN, UP = "base_model.model.", ".lora_A.weight", ".lora_B.weight"


@dataclass(frozen=True)
class Adapter:
    """An adapter, read.

    ``source``: the encoder that was converted, by name; ``options``: of ``convert``; ``key``: of the weights that it
    changes. ``products``: for a linear layer's name the thin matrices (r, in) and (out, r), float32; ``scale``: of
    their product. ``token_weights``: (vocabulary,) float32, None where no token is weighted.
    """

    name: str
    source: str
    options: Mapping[str, Any]
    key: str
    scale: float
    products: Mapping[str, tuple[Tensor, Tensor]]
    token_weights: Tensor | None

    def options_beside(self, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
        """Options of the conversion: the adapter's, and what is ``given`` beside them.

        Raises ConfigurationError where another value than the adapter's or the default one is given.
        """
        if unknown := sorted(self.options.keys() - given.keys()):
            raise ConversionError(
                f'the adapter "{self.name}" has options that this version of Longform does not know '
                f"({', '.join(unknown)}): update Longform"
            )
        other = {
            name: given[name] for name, value in self.options.items() if given[name] not in (value, defaults[name])
        }
        if other:
            said = ", ".join(f"{name}={value!r} (it has {self.options[name]!r})" for name, value in other.items())
            raise ConfigurationError(f'the adapter "{self.name}" is not for {said}: leave these out, or the adapter')
        if given["idf"] is not None and self.token_weights is not None:
            raise ConfigurationError(f'the adapter "{self.name}" has weights of tokens: leave idf out')
        return {**given, **self.options}

    def add_to(self, made: Any) -> Any:
        """A ConversionResult with the change in its weights, in place, and the weights of tokens in its folder.

        Raises ConversionError where its weights are not those that the adapter was trained on.
        """
        if model_key(made.model) != self.key:
            raise ConversionError(
                f'the adapter "{self.name}" was trained on {self.source}; {made.report.source} has other weights, on '
                "which it would do harm: give that encoder, or train an adapter for this one (longform align "
                "--lora-rank)"
            )
        add_products(made.model, self.products, self.scale)
        made.report.source, made.report.adapter = self.source, self.name  # its name, wherever its folder is
        made.report.notes.append(f"the adapter {self.name} is part of the weights")
        if self.token_weights is None:
            return made
        folder = with_token_weights(
            made.sentence_folder, made.tokenizer, self.token_weights.numpy(), width=made.model.config.hidden_size
        )
        return replace(made, sentence_folder=folder)


def add_products(model: nn.Module, products: Mapping[str, tuple[Tensor, Tensor]], scale: float) -> None:
    """Add ``scale`` * up @ down to the weight (out, in) of each layer named."""
    with torch.no_grad():
        for name, (down, up) in products.items():
            layer: Any = model.get_submodule(name)
            layer.weight += (scale * (up @ down)).to(layer.weight.dtype)


def adapter_folder(adapter: str | Path) -> Path:
    """Where an adapter is: a folder, or the name of one that comes with Longform."""
    folder = Path(adapter).expanduser()
    return folder if folder.is_dir() or adapter not in shipped() else SHIPPED / adapter


def read_adapter(folder: str | Path) -> Adapter:
    """The adapter in a folder. Raises ConversionError where there is none, or it cannot be read."""
    place = Path(folder)
    if not (place / ACCOUNT).is_file():
        raise ConversionError(
            f"{place} is no adapter (it has no {ACCOUNT}): longform align --lora-rank writes one, the folder adapter/ "
            f"of its output; with Longform come: {', '.join(shipped()) or 'none'}"
        )
    try:
        account, config = (read_json(place / name, way_out="copy it again") for name in (ACCOUNT, CONFIG))
        tensors = {name.removeprefix(PREFIX): value.float() for name, value in load_file(place / WEIGHTS).items()}
        downs = {name.removesuffix(DOWN): value for name, value in tensors.items() if name.endswith(DOWN)}
        weights = place / TOKEN_WEIGHTS
        return Adapter(
            name=place.name,
            source=account["source"],
            options={"selected_slots": 0, **by_our_names(account["options"])},  # older ones do not say so
            key=account["weights_key"],
            scale=config["lora_alpha"] / config["r"],
            products={name: (down, tensors[name + UP]) for name, down in downs.items()},
            token_weights=load_file(weights)["weights"].float() if weights.is_file() else None,
        )
    except (KeyError, TypeError, OSError, SafetensorError, CheckpointError) as error:
        raise ConversionError(f"{place} cannot be read as an adapter ({error}); it may be incomplete") from error


def write_account(
    folder: Path, *, report: Mapping[str, Any], key: str, token_weights: Tensor | None, sublinear_tf: bool
) -> None:
    """Write what an adapter has beside PEFT's files.

    ``report``: the conversion's; ``key``: of the weights that the adapter changes; ``token_weights``: (vocabulary,),
    rounded to float16; ``sublinear_tf``: whether its vectors are pooled so.
    """
    options = dict(report["options"]) | {name: report[name] for name in ("max_length", "positions")}
    if sublinear_tf:
        options["sublinear_tf"] = True
    if options["projection"] != "linear":
        del options["projection_init"]  # of no consequence
    source = Path(report["source"]).name if Path(report["source"]).is_dir() else report["source"]
    account = {"source": source, "weights_key": key, "options": options}
    (folder / ACCOUNT).write_text(json.dumps(account, indent=2) + "\n", encoding="utf-8")
    if token_weights is not None:
        save_file({"weights": token_weights.half().contiguous()}, folder / TOKEN_WEIGHTS)
