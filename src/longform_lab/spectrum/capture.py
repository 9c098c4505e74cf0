"""An encoder's attention on a text, one layer in memory at a time.

Axes: B batch, n tokens, h heads, d head dimension.
"""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from longform.errors import ConfigurationError
from longform.functional.masks import checked_mask, document_lengths
from longform.layers.attention import LinformerAttention
from longform.layers.effective_attention import implied_map
from longform.layers.self_attention import NOTHING_SHARED

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
# Models that form a map in any case and give it away only when asked; others would keep those of all layers.
ASKED = frozenset(("deberta", "deberta-v2", "flaubert", "mpnet", "xlm"))
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


def captured_layers(model: Any, input_ids: Tensor, attention_mask: Tensor | None = None) -> Iterator[LayerAttention]:
    """The attention of every layer of ``model`` on input_ids long (B, n) under attention_mask (B, n) of 1 and 0.

    For encoders of Hugging Face loaded with ``attn_implementation="eager"``, with or without a head, and for ours,
    whose map is the n x n one that their slots imply. The model runs while the layers are consumed and waits at each,
    so that one layer is alive at a time. Dropout plays no part; no gradients.
    Raises ConfigurationError for a decoder and for a model that gives no attention weights, InputError for a bad mask.
    """
    attentions = attention_modules(model)
    mask = checked_mask(attention_mask, batch=input_ids.shape[0], length=input_ids.shape[1])
    return _Run(model.base_model, attentions, input_ids, mask).layers()


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


class _Stop(BaseException):
    """The consumer wants no more layers."""


class _Run:
    """One forward pass in a thread of its own that stops at each layer until the layer has been consumed."""

    def __init__(
        self, model: Any, attentions: list[tuple[nn.Module, tuple[str, ...]]], ids: Tensor, mask: Tensor | None
    ) -> None:
        self.model, self.attentions, self.ids, self.mask = model, attentions, ids, mask
        self.made, self.taken = threading.Semaphore(0), threading.Semaphore(0)
        self.current: LayerAttention | None = None
        self.error: BaseException | None = None
        self.stopped = False
        self.count = 0
        self.is_asked = model.config.model_type in ASKED

    def layers(self) -> Iterator[LayerAttention]:
        thread = threading.Thread(target=self._forward, name="longform-capture", daemon=True)
        thread.start()
        try:
            while True:
                self.made.acquire()
                if self.current is None:
                    break
                captured, self.current = self.current, None
                yield captured
                del captured
                self.taken.release()
        finally:
            self.stopped = True
            self.taken.release()
            thread.join()
        if self.error is not None:
            raise self.error
        if not self.count:
            raise ConfigurationError(_no_weights(self.model))

    def _forward(self) -> None:
        training = self.model.training
        try:
            with torch.no_grad(), ExitStack() as hooks:
                for module, names in self.attentions:
                    for handle in self._hook(module, names):
                        hooks.callback(handle.remove)
                self.model.eval()
                mask = None if self.mask is None else self.mask.long()
                asked = {"output_attentions": True} if self.is_asked else {}
                self.model(input_ids=self.ids, attention_mask=mask, **asked)
        except _Stop:
            pass
        except BaseException as error:  # handed to the consumer's thread
            self.error = error
        finally:
            self.model.train(training)
            self.made.release()

    def _hook(self, module: nn.Module, names: tuple[str, ...]) -> list[Any]:
        if isinstance(module, LinformerAttention):
            before = module.register_forward_pre_hook(
                lambda _module, args, given: (args, {**given, "output_attentions": True}), with_kwargs=True
            )
            return [before, module.register_forward_hook(self._after_ours, with_kwargs=True)]
        projected: dict[str, Tensor] = {}
        handles = [
            getattr(module, name).register_forward_hook(
                lambda _module, _args, output, name=name: projected.__setitem__(name, output)
            )
            for name in (names if len(names) == 3 else ())
        ]

        def after(module: nn.Module, args: Any, output: Any) -> Any:
            self._after_theirs(module, output, [projected.pop(name) for name in names if name in projected])
            return (output[0], None) if self.is_asked else None  # or the model keeps every layer's map

        return [*handles, module.register_forward_hook(after)]

    def _after_theirs(self, module: nn.Module, output: Any, projected: list[Tensor]) -> None:
        weights = output[1] if isinstance(output, tuple) and len(output) > 1 else None
        if not isinstance(weights, Tensor) or weights.dim() != 4:
            raise ConfigurationError(_no_weights(self.model))
        self._require_finite(weights)
        if not self._is_map(weights):
            raise ConfigurationError(_no_weights(self.model))
        if len(projected) != 3:
            return self._hand_over(weights, None, None)
        query, key, value = _by_head(projected, weights.shape[1])
        logits = query @ key.transpose(2, 3) * query.shape[-1] ** -0.5
        # Rotary or relative positions, or another scale: then these are not the logits.
        return self._hand_over(weights, value, logits if self._explain(logits, weights) else None)

    def _require_finite(self, weights: Tensor) -> None:
        """Raise ConfigurationError where a valid row of ``weights`` (B, h, n, columns) holds NaN or infinity."""
        broken = ~weights.isfinite().all(-1)
        if bool((broken if self.mask is None else broken & self.mask[:, None]).any()):
            raise ConfigurationError(
                f"the attention of {_name(self.model)} is not finite in layer {self.count + 1}: its weights hold NaN "
                "or infinity, or the numbers overflow (load it in float32)"
            )

    def _is_map(self, weights: Tensor) -> bool:
        """Whether a row of each text and head sums to 1: not all that has four axes is a map."""
        total = self._last_rows(weights).float().sum(-1)
        return torch.allclose(total, torch.ones_like(total), atol=1e-2)

    def _explain(self, logits: Tensor, weights: Tensor) -> bool:
        """Whether the last row of each text's valid ones is the softmax of its logits."""
        rows, expected = self._last_rows(logits), self._last_rows(weights.float())
        if self.mask is not None:
            rows = rows.masked_fill(~self.mask[:, None], torch.finfo(rows.dtype).min)
        return torch.allclose(rows.softmax(-1), expected, rtol=1e-2, atol=1e-3)

    def _last_rows(self, x: Tensor) -> Tensor:
        """Row of each text's last token, (B, h, n), of x (B, h, n, n)."""
        last = document_lengths(self.mask, batch=len(x), length=x.shape[2], device=x.device) - 1
        return x[torch.arange(len(x)), :, last]

    def _after_ours(
        self, module: LinformerAttention, args: tuple[Any, ...], kwargs: dict[str, Any], output: tuple[Tensor, Tensor]
    ) -> Tensor:
        out, weights = output
        self._require_finite(weights)
        hidden, mask = module.checked(args[0], self.mask)
        shared = kwargs.get("shared", NOTHING_SHARED)
        implied = implied_map(module, weights, hidden, mask, shared_projection=shared.projection)
        values = module.value(hidden).unflatten(2, (module.num_heads, -1)).transpose(1, 2)
        self._hand_over(implied, values.float(), None)
        return out

    def _hand_over(self, weights: Tensor, values: Tensor | None, logits: Tensor | None) -> None:
        self.current = LayerAttention(self.count, weights.float(), values, logits)
        self.count += 1
        self.made.release()
        self.taken.acquire()
        if self.stopped:
            raise _Stop


def _by_head(projected: list[Tensor], heads: int) -> list[Tensor]:
    """Queries, keys and values (B, n, ...) as float32 (B, h, n, d) each; fewer keys than queries serve several."""
    width = projected[0].shape[2] // heads
    split = [x.unflatten(2, (-1, width)).transpose(1, 2).float() for x in projected]
    return [x.repeat_interleave(heads // x.shape[1], dim=1) for x in split]
