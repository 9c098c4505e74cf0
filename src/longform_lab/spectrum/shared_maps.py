"""An encoder whose heads use another head's attention map instead of their own, and what becomes of its output.

Axes: B batch, n tokens, D hidden, h heads, d head dimension, H heads of the whole model.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from longform.errors import ConfigurationError
from longform_lab.spectrum.capture import attention_modules

TOLERANCE = 2e-2  # of a context made anew, relative: more than rounding in bfloat16


@dataclass(frozen=True)
class Fidelity:
    """``cosine`` of the mean-pooled embeddings, and relative ``error`` of the last hidden states, |H' - H| / |H|."""

    cosine: float
    error: float


@torch.no_grad()
def last_states(model: Any, texts: Sequence[Tensor]) -> list[Tensor]:
    """The last hidden states of the encoder on ``texts``, long (m,) each: float32 (1, m, D) each."""
    return [model.base_model(input_ids=ids[None].to(model.device)).last_hidden_state.float() for ids in texts]


def sharing_fidelity(model: Any, texts: Sequence[Tensor], states: Sequence[Tensor], leaders: Sequence[int]) -> Fidelity:
    """The model on ``texts``, long (m,) each, with maps shared as ``leaders`` (H) says, beside the model as it is.

    ``states``: ``last_states`` of the same texts without sharing. ``leaders``: for each head, counted layer by layer,
    the head whose map it uses; it stands at or before it.
    Raises ConfigurationError for attention whose maps cannot be exchanged, see ``shared_maps``.
    """
    cosines, errors = [], []
    for ids, own in zip(texts, states, strict=True):
        with shared_maps(model, leaders):
            other = last_states(model, [ids])[0]
        cosines.append(float(cosine_similarity(own.mean(1), other.mean(1)).mean()))
        errors.append(float((other - own).norm() / own.norm()))
    return Fidelity(sum(cosines) / len(cosines), sum(errors) / len(errors))


@contextmanager
def shared_maps(model: Any, leaders: Sequence[int]) -> Generator[None]:
    """Inside, heads of ``model`` use the maps of their ``leaders``.

    That takes modules that give their maps and whose output is those maps times the values and nothing else, as BERT,
    RoBERTa, ELECTRA and DistilBERT have them. A forward pass inside raises ConfigurationError where a module's own
    maps do not make its output.
    """
    exchange = _Exchange(leaders, model.config.model_type)
    handles = [
        handle
        for layer, (module, names) in enumerate(attention_modules(model))
        for handle in exchange.hooks(layer, module, names)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@dataclass
class _Exchange:
    leaders: Sequence[int]
    model_type: str
    maps: dict[int, Tensor] = field(default_factory=dict)  # of heads that lead, by number

    def hooks(self, layer: int, module: nn.Module, names: tuple[str, ...]) -> list[Any]:
        values: list[Tensor] = []
        value_layer = getattr(module, names[-1])
        kept = value_layer.register_forward_hook(lambda _module, _args, output: values.append(output))

        def after(module: nn.Module, args: Any, output: Any) -> tuple[Tensor, Tensor]:
            value = values.pop()
            context, own = output if isinstance(output, tuple) and len(output) == 2 else (output, None)
            alike = isinstance(own, Tensor) and value.shape == context.shape
            if not (alike and _is_close(_context(module, own, value), context)):
                raise ConfigurationError(
                    f"the attention maps of model_type {self.model_type!r} cannot be exchanged: its layer {layer + 1} "
                    "does not give maps that make its output with the values alone, as BERT's, RoBERTa's, ELECTRA's "
                    "and DistilBERT's do"
                )
            weights = self._exchanged(layer, own)
            return _context(module, weights, value), weights

        return [kept, module.register_forward_hook(after)]

    def _exchanged(self, layer: int, weights: Tensor) -> Tensor:
        heads = weights.shape[1]
        first = layer * heads
        if layer == 0:
            self.maps.clear()
        for head in set(self.leaders) & set(range(first, first + heads)):
            self.maps[head] = weights[:, head - first]
        return torch.stack([self.maps[self.leaders[first + head]] for head in range(heads)], dim=1)


def _context(module: nn.Module, weights: Tensor, value: Tensor) -> Tensor:
    """Context (B, n, D) that heads with maps ``weights`` (B, h, n, n) make of ``value`` (B, n, h d)."""
    heads = weights.shape[1]
    context = (weights @ value.unflatten(2, (heads, -1)).transpose(1, 2)).transpose(1, 2).flatten(2)
    finish = getattr(module, "out_lin", None)  # DistilBERT's output layer is inside
    return context if finish is None else finish(context)


def _is_close(found: Tensor, expected: Tensor) -> bool:
    return bool((found - expected).norm() <= TOLERANCE * expected.norm())
