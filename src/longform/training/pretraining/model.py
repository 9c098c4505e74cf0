"""A model with new weights for pre-training, and its loss at the hidden tokens alone.

Axes: B blocks, n tokens, D hidden, m hidden tokens, V vocabulary.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel

from longform.data.special_tokens import vocabulary_size
from longform.distributed.token_losses import over_parts, own_places
from longform.errors import ConfigurationError
from longform.models.configuration_linformer import LinformerConfig
from longform.models.task_heads import LinformerForMaskedLM
from longform.runs.subject import model_identity
from longform.training.engine.students import load_encoder
from longform.training.pretraining.masking import MaskedBlocks


def full_attention_twin(model: Mapping[str, Any]) -> dict[str, Any]:
    """Twin of a model without projection: fields of a LinformerConfig whose window reaches across the whole text.

    The layers then are full attention, and own no projection.
    """
    length = model.get("max_position_embeddings", 512)
    dropped = ("projection", "projection_sharing", "projection_init", "freeze_projection", "memory_budget")
    kept = {name: value for name, value in model.items() if name not in dropped}
    return {**kept, "projection": "mean", "projected_length": length, "attention_window": length}


def with_attention(model: Mapping[str, Any], **attention: Any) -> dict[str, Any]:
    """Fields of a LinformerConfig with other attention: options of it that are not given are as by default."""
    dropped = (
        "projection",
        "projection_sharing",
        "projection_init",
        "freeze_projection",
        "attention_window",
        "memory_budget",
        "projected_length",
        "sink_tokens",
        "short_convolution",
    )
    return {**{name: value for name, value in model.items() if name not in dropped}, **attention}


def config_for(model: LinformerConfig | Mapping[str, Any] | None, tokenizer: Any) -> LinformerConfig:
    """The configuration with the tokenizer's vocabulary and special tokens, whatever it says about them."""
    given: dict[str, Any] = model.to_dict() if isinstance(model, LinformerConfig) else dict(model or {})
    for name in ("model_type", "transformers_version", "architectures"):
        given.pop(name, None)
    known: dict[str, Any] = {
        "type_vocab_size": 0,
        **given,
        "vocab_size": vocabulary_size(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.cls_token_id,
        "eos_token_id": tokenizer.sep_token_id,
    }
    return LinformerConfig(**known)


def described(config: LinformerConfig) -> dict[str, Any]:
    """Architecture in a configuration: the fields of LinformerConfig, without Hugging Face's own."""
    return {name: getattr(config, name) for name in LinformerConfig.__annotations__ if hasattr(config, name)}


def new_model(config: LinformerConfig, seed: int) -> LinformerForMaskedLM:
    """A model whose weights depend on ``seed`` and on each module's name and size alone.

    Two models that differ in their attention start with the same weights wherever both have some.
    """
    model = LinformerForMaskedLM(config)
    embeddings = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Embedding)]
    others = [(name, module) for name, module in model.named_modules() if not isinstance(module, nn.Embedding)]
    with torch.random.fork_rng(devices=[]):
        for name, module in [*others, *embeddings]:  # word vectors last: the decoder shares theirs
            digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
            torch.manual_seed(int.from_bytes(digest[:8], "big") >> 1)
            model._init_weights(module)
    return model


class HiddenTokensLoss:
    """Cross-entropy at hidden tokens; only these pass through the masked-language head.

    The head is hooked rather than called, so that distributed wrappers see a whole forward pass.
    """

    def __init__(self, model: LinformerForMaskedLM) -> None:
        self.model, self.places = model, torch.zeros(0, dtype=torch.long)
        self.own = own_places(model, self.places)
        self._handle = model.lm_head.register_forward_pre_hook(self._gather)

    def _gather(self, _module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor]:
        """(B, n, D) -> (1, m, D); where the model shares texts out, of the part that is here."""
        self.own = own_places(self.model, self.places)
        return (inputs[0].flatten(0, 1).index_select(0, self.own.places)[None],)

    def __call__(self, model: nn.Module, part: MaskedBlocks, device: torch.device) -> Tensor:
        """A scalar in nats: ``model`` (perhaps wrapped) on the part's blocks (B, n)."""
        return self.each(model, part, device).mean()

    def each(self, model: nn.Module, part: MaskedBlocks, device: torch.device) -> Tensor:
        """The cross-entropy in nats at each hidden token, float32 (m,)."""
        self.places = part.places.to(device)
        mask = None if part.attention_mask is None else part.attention_mask.to(device)
        logits = model(input_ids=part.input_ids.to(device), attention_mask=mask).logits
        losses = cross_entropy(logits[0].float(), part.labels.to(device)[self.own.which], reduction="none")
        return over_parts(self.model, losses.new_zeros(len(part.labels)).index_copy(0, self.own.which, losses))

    def remove(self) -> None:
        """Give the model its own head back."""
        self._handle.remove()


# What one kind of attention has and another has not.
OF_THE_KIND = ("shared_projection", ".attention.groups.", ".memory_bias", ".attention.convolution.")


class Start:
    """A pre-trained Longform in a folder. Raises ConfigurationError where there is none with a masked-language head."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).expanduser()
        if not self.folder.is_dir():
            raise ConfigurationError(f'start="{folder}" is not a folder; longform pretrain --output makes one')
        model = load_encoder(self.folder)
        if not isinstance(model, LinformerForMaskedLM):
            raise ConfigurationError(
                f'start="{folder}" holds a {type(model).__name__}; pre-training begins with a LinformerForMaskedLM, '
                "as longform pretrain writes it"
            )
        self.model, self.key = model, model_identity(str(self.folder))["weights_key"]

    def described(self) -> dict[str, Any]:
        """Fields of its LinformerConfig."""
        return described(self.model.config)

    def begin(self, model: LinformerForMaskedLM) -> None:
        """Copy into ``model`` what both have.

        Positions go on as in ``resize_sequence_length`` (tiled), and E and F are stretched where both have some of
        one k; a projection or memory that this one lacks stays as it is. ``self`` is used up.

        Raises ConfigurationError, which names them, for weights of another size.
        """
        self.model.resize_sequence_length(model.config.max_position_embeddings)
        _take_up(model, self.model.state_dict(), self.folder)


@torch.no_grad()
def _take_up(model: PreTrainedModel, weights: Mapping[str, torch.Tensor], folder: Path) -> None:
    other = []
    for name, value in model.state_dict().items():
        found = weights.get(name)
        if found is not None and found.shape == value.shape:
            value.copy_(found)
        elif not any(part in name for part in OF_THE_KIND):
            other.append(f"{name} {tuple(value.shape)}, there {'none' if found is None else tuple(found.shape)}")
    if other:
        raise ConfigurationError(
            f'the weights of start="{folder}" do not fit the model, which has {"; ".join(other[:3])}'
            f"{f' and {len(other) - 3} more' if other[3:] else ''}: it takes the same tokenizer, layers, widths and "
            "heads; attention and length may be others"
        )
