"""An encoder's attention on a text, layer by layer.

Axes: B batch, n tokens, h heads, d head dimension.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from longform.errors import ConfigurationError
from longform.functional.masks import checked_mask, document_lengths
from longform.models.effective_maps import effective_maps

# What the linear layers for queries, keys and values are called; where they are one, only the map is known.
LAYOUTS: tuple[tuple[str, ...], ...] = (
    ("query", "key", "value"),  # BERT, RoBERTa, XLM-RoBERTa, CamemBERT, ELECTRA, MiniLM, ALBERT; and ours
    ("q_lin", "k_lin", "v_lin"),  # DistilBERT
    ("q", "k", "v"),  # MPNet
    ("query_proj", "key_proj", "value_proj"),  # DeBERTa v2 and v3
    ("q_proj", "k_proj", "v_proj"),  # EuroBERT, NomicBERT, Jina v3
    ("in_proj",),  # DeBERTa
    ("Wqkv",),  # ModernBERT
)
# Models whose attention is no n x n map of all pairs: they approximate it, leave pairs out, or have none.
WITHOUT_MAP = frozenset(
    ("big_bird", "bigbird_pegasus", "fnet", "led", "longformer", "mra", "nystromformer", "reformer", "yoso")
)
DECODERS = ("is_decoder", "is_encoder_decoder", "add_cross_attention", "causal")  # flags of a configuration


class LayerAttention(NamedTuple):
    """Attention of one layer, 0 the first; all float32.

    ``probabilities``: P (B, h, n, n), each row over all n columns; rows of padding are there and mean nothing, columns
    of padding are 0. ``values``: V (B, h, n, d), P @ V is the context. ``logits``: Q Kᵀ / sqrt(d) (B, h, n, n) before
    the mask. ``values`` and ``logits`` are None where the model does not compute them one by one.
    """

    layer: int
    probabilities: Tensor
    values: Tensor | None
    logits: Tensor | None


@torch.no_grad()
def captured_layers(model: Any, input_ids: Tensor, attention_mask: Tensor | None = None) -> Iterator[LayerAttention]:
    """The attention of every layer of ``model`` on input_ids long (B, n) under attention_mask (B, n) of 1 and 0.

    For encoders of Hugging Face loaded with ``attn_implementation="eager"``, with or without a head, and for ours,
    whose map is the n x n one that their slots imply. Dropout plays no part; no gradients.
    Raises ConfigurationError for a decoder, for a model that gives no attention weights and for weights that are not
    finite, InputError for a bad mask.
    """
    attentions = attention_modules(model)
    mask = checked_mask(attention_mask, batch=input_ids.shape[0], length=input_ids.shape[1])
    given = {"input_ids": input_ids} if mask is None else {"input_ids": input_ids, "attention_mask": mask.long()}
    if model.config.model_type == "linformer":
        maps = effective_maps(model, **given)
        return _layers(model, maps, [()] * len(maps), mask)
    names = attentions[0][1]
    projected: list[list[Tensor]] = [[] for _ in names]  # of each name what every layer makes, in order
    training = model.base_model.training
    with ExitStack() as hooks:
        for module, _ in attentions:
            for name, sides in zip(names, projected, strict=True):
                keep = getattr(module, name).register_forward_hook(lambda _module, _args, out, to=sides: to.append(out))
                hooks.callback(keep.remove)
        hooks.callback(model.base_model.train, training)
        maps = model.base_model.eval()(**given, output_attentions=True).attentions
    if not maps or maps[0] is None:
        raise ConfigurationError(_no_weights(model))
    return _layers(model, maps, list(zip(*projected, strict=True)), mask)


def _check_encoder(model: Any) -> None:
    flags = [name for name in DECODERS if getattr(model.config, name, 0)]
    causal = any(getattr(module, "is_causal", False) for module in model.modules())
    if flags or causal:
        reason = f"{flags[0]}=True in its configuration" if flags else "its attention is causal"
        raise ConfigurationError(
            f"{_name(model)} is a decoder ({reason}); the spectrum is that of encoders, which read in both directions"
        )


def attention_modules(model: Any) -> list[tuple[nn.Module, tuple[str, ...]]]:
    """The self-attention modules of an encoder and the names of their linear layers, in order.

    Raises ConfigurationError for a decoder, for attention that keeps no weights and for one that is not known.
    """
    config = model.config
    _check_encoder(model)
    if config.model_type in WITHOUT_MAP:
        raise ConfigurationError(
            f"{_name(model)} (model_type {config.model_type!r}) makes no map of all pairs of tokens: its attention "
            "approximates one or leaves pairs out. The spectrum is that of full attention (BERT, RoBERTa, ...) and ours"
        )
    if config.model_type != "linformer" and config._attn_implementation != "eager":
        raise ConfigurationError(_no_weights(model))
    found = [
        (module, names)
        for module in model.base_model.modules()
        for names in LAYOUTS
        if all(isinstance(getattr(module, name, None), nn.Module) for name in names)
    ]
    if not found:
        raise ConfigurationError(
            f"{_name(model)} (model_type {config.model_type!r}) has no attention that is known here: no module with "
            f"linear layers named {' or '.join(', '.join(names) for names in LAYOUTS)}"
        )
    return found


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


def _layers(
    model: Any, maps: Sequence[Tensor], projected: Sequence[Sequence[Tensor]], mask: Tensor | None
) -> Iterator[LayerAttention]:
    """The layers of maps (B, h, n, n) each; ``projected``: what queries, keys and values of a layer are, if known."""
    for layer, (weights, sides) in enumerate(zip(maps, projected, strict=True)):
        _require_finite(model, layer, weights, mask)
        if len(sides) != 3:
            yield LayerAttention(layer, weights.float(), None, None)
            continue
        query, key, value = _by_head(sides, weights.shape[1])
        logits = query @ key.transpose(2, 3) * query.shape[-1] ** -0.5
        # Rotary or relative positions, or another scale: then these are not the logits.
        yield LayerAttention(layer, weights.float(), value, logits if _explain(logits, weights, mask) else None)


def _require_finite(model: Any, layer: int, weights: Tensor, mask: Tensor | None) -> None:
    """Raise ConfigurationError where a valid row of ``weights`` (B, h, n, columns) holds NaN or infinity."""
    broken = ~weights.isfinite().all(-1)
    if bool((broken if mask is None else broken & mask[:, None]).any()):
        raise ConfigurationError(
            f"the attention of {_name(model)} is not finite in layer {layer + 1}: its weights hold NaN or infinity, or "
            "the numbers overflow (load it in float32)"
        )


def _explain(logits: Tensor, weights: Tensor, mask: Tensor | None) -> bool:
    """Whether the row of each text's last token is the softmax of its logits, both (B, h, n, n)."""
    last = document_lengths(mask, batch=len(logits), length=logits.shape[2], device=logits.device) - 1
    rows, expected = (x[torch.arange(len(x)), :, last] for x in (logits, weights.float()))
    if mask is not None:
        rows = rows.masked_fill(~mask[:, None], torch.finfo(rows.dtype).min)
    return torch.allclose(rows.softmax(-1), expected, rtol=1e-2, atol=1e-3)


def _by_head(projected: Sequence[Tensor], heads: int) -> list[Tensor]:
    """Queries, keys and values (B, n, ...) as float32 (B, h, n, d) each; fewer keys than queries serve several."""
    width = projected[0].shape[2] // heads
    split = [x.unflatten(2, (-1, width)).transpose(1, 2).float() for x in projected]
    return [x.repeat_interleave(heads // x.shape[1], dim=1) for x in split]
