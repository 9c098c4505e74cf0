"""A model with new weights for pre-training, and its loss at the tokens that it is asked for alone.

Axes: B blocks, n tokens, D hidden, m tokens that are asked for, V vocabulary.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from longform.layers.options import AttentionOptions
from longform.models.configuration_linformer import LinformerConfig
from longform.models.task_heads import LinformerForCausalLM, LinformerForMaskedLM
from longform.pretrained.tokenizers import vocabulary_size
from longform_text.training.trainer import IGNORED


def full_attention_twin(model: Mapping[str, Any]) -> dict[str, Any]:
    """Twin of a model without projection: fields of a LinformerConfig whose window reaches across the whole text.

    The layers then are full attention, and own no projection.
    """
    length = model.get("max_position_embeddings", 512)
    dropped = {
        "projection", "projection_sharing", "projection_init", "freeze_projection", "memory_budget", "selected_slots",
        "tokens_per_slot",
    }  # fmt: skip
    kept = {name: value for name, value in model.items() if name not in dropped}
    attention = {name: model[name] for name in ("projection", "projection_init", "short_convolution") if name in model}
    taps = AttentionOptions(**attention).taps
    whole = {"projected_length": length, "attention_window": length, "short_convolution": taps}
    return {**kept, "projection": "mean", **whole}


def config_for(
    model: LinformerConfig | Mapping[str, Any] | None, tokenizer: Any, *, causal: bool = False
) -> LinformerConfig:
    """The configuration with the tokenizer's vocabulary and special tokens, whatever it says about them."""
    given: dict[str, Any] = model.to_dict() if isinstance(model, LinformerConfig) else dict(model or {})
    for name in ("model_type", "transformers_version", "architectures"):
        given.pop(name, None)
    known: dict[str, Any] = {
        "type_vocab_size": 0,
        **given,
        "causal": causal,
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
    """A model, causal where ``config`` is, whose weights depend on ``seed`` and each module's name and size alone.

    Two models that differ in their attention start with the same weights wherever both have some.
    """
    model = LinformerForCausalLM(config) if config.causal else LinformerForMaskedLM(config)
    embeddings = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Embedding)]
    others = [(name, module) for name, module in model.named_modules() if not isinstance(module, nn.Embedding)]
    with torch.random.fork_rng(devices=[]):
        for name, module in [*others, *embeddings]:  # word vectors last: the decoder shares theirs
            digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
            torch.manual_seed(int.from_bytes(digest[:8], "big") >> 1)
            model._init_weights(module)
    return model


class AskedTokensLoss:
    """Cross-entropy at the tokens that a model is asked for; only their states pass through its head.

    The head is hooked rather than called, so that distributed wrappers see a whole forward pass. A causal model says a
    token from the state before it.
    """

    def __init__(self, model: Any) -> None:
        self.places = torch.zeros(0, dtype=torch.long)
        self.before = 1 if model.config.causal else 0
        self._handle = model.lm_head.register_forward_pre_hook(self._gather)

    def _gather(self, _module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor]:
        """(B, n, D) -> (1, m, D)."""
        return (inputs[0].flatten(0, 1).index_select(0, self.places - self.before)[None],)

    def __call__(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        """The mean over what is asked for, in nats: ``model`` (perhaps wrapped) on a batch of blocks (B, n)."""
        return self.each(model, batch).sum() / (batch["labels"] != IGNORED).sum().clamp_min(1)

    def each(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        """The cross-entropy in nats at each token that is asked for, float32 (m,)."""
        labels, mask = batch["labels"].flatten(), batch["attention_mask"]
        self.places = (labels != IGNORED).nonzero()[:, 0]
        logits = model(input_ids=batch["input_ids"], attention_mask=None if bool(mask.all()) else mask).logits
        return cross_entropy(logits[0].float(), labels[self.places], reduction="none")

    def remove(self) -> None:
        """Give the model its own head back."""
        self._handle.remove()
