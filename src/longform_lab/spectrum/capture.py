"""An encoder's attention maps on a text.

Axes: B batch, n tokens, h heads.
"""

from typing import Any

import torch
from torch import Tensor

from longform.errors import ConfigurationError
from longform.functional.masks import checked_mask
from longform_lab.spectrum.effective_maps import effective_maps

# Models whose attention is no n x n map of all pairs: they approximate it, leave pairs out, or have none.
WITHOUT_MAP = frozenset(
    ("big_bird", "bigbird_pegasus", "fnet", "led", "longformer", "mra", "nystromformer", "reformer", "yoso")
)
DECODERS = ("is_decoder", "is_encoder_decoder", "add_cross_attention", "causal")  # flags of a configuration


@torch.no_grad()
def captured_maps(model: Any, input_ids: Tensor, attention_mask: Tensor | None = None) -> list[Tensor]:
    """The attention P (B, h, n, n) of every layer on input_ids long (B, n) under attention_mask (B, n) of 1 and 0.

    float32, each row over all n columns; rows of padding are there and mean nothing, columns of padding are 0. For
    encoders of Hugging Face loaded with ``attn_implementation="eager"``, with or without a head, and for ours, whose
    map is the n x n one that their slots imply. Dropout plays no part; no gradients.
    Raises ConfigurationError for a decoder, for a model that gives no attention weights and for weights that are not
    finite, InputError for a bad mask.
    """
    check_encoder(model)
    mask = checked_mask(attention_mask, batch=input_ids.shape[0], length=input_ids.shape[1])
    given = {"input_ids": input_ids} if mask is None else {"input_ids": input_ids, "attention_mask": mask.long()}
    if model.config.model_type == "linformer":
        maps = effective_maps(model, **given)
    else:
        training = model.base_model.training
        maps = model.base_model.eval()(**given, output_attentions=True).attentions
        model.base_model.train(training)
    if not maps or maps[0] is None:
        raise ConfigurationError(_no_weights(model))
    for layer, weights in enumerate(maps, start=1):
        broken = ~weights.isfinite().all(-1)
        if bool((broken if mask is None else broken & mask[:, None]).any()):
            raise ConfigurationError(
                f"the attention of {_name(model)} is not finite in layer {layer}: its weights hold NaN or infinity, or "
                "the numbers overflow (load it in float32)"
            )
    return [weights.float() for weights in maps]


def check_encoder(model: Any) -> None:
    """Raise ConfigurationError for a decoder and for attention that keeps no weights."""
    config = model.config
    flags = [name for name in DECODERS if getattr(config, name, 0)]
    causal = any(getattr(module, "is_causal", False) for module in model.modules())
    if flags or causal:
        reason = f"{flags[0]}=True in its configuration" if flags else "its attention is causal"
        raise ConfigurationError(
            f"{_name(model)} is a decoder ({reason}); the spectrum is that of encoders, which read in both directions"
        )
    if config.model_type in WITHOUT_MAP:
        raise ConfigurationError(
            f"{_name(model)} (model_type {config.model_type!r}) makes no map of all pairs of tokens: its attention "
            "approximates one or leaves pairs out. The spectrum is that of full attention (BERT, RoBERTa, ...) and ours"
        )
    if config.model_type != "linformer" and config._attn_implementation != "eager":
        raise ConfigurationError(_no_weights(model))


def _name(model: Any) -> str:
    return model.config._name_or_path or type(model).__name__


def _no_weights(model: Any) -> str:
    chosen = model.config._attn_implementation
    said = f"{_name(model)} gives no attention weights (attn_implementation={chosen!r})"
    if chosen == "eager":
        return f"{said}: model_type {model.config.model_type!r} keeps them to itself, and its spectrum cannot be had"
    return (
        f'{said}. Load it eagerly: AutoModel.from_pretrained(..., attn_implementation="eager"), or '
        'model.set_attn_implementation("eager")'
    )
