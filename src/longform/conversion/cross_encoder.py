"""Activation that sentence-transformers' CrossEncoder puts on a classifier's logits, wherever a folder names it."""

from collections.abc import Mapping
from typing import Any

IDENTITY = "torch.nn.modules.linear.Identity"
FIELD, NAME = "sentence_transformers", "activation_fn"
OLDER = "sbert_ce_default_activation_function"  # before its version 4


def activation_of(config: Any, settings: Mapping[str, Any] | None = None) -> str | None:
    """The activation's class by its full name, None for the default: a sigmoid of one label, nothing of several.

    ``config``: the classifier's; ``settings``: the folder's config_sentence_transformers.json, which comes first.
    """
    theirs = getattr(config, FIELD, None) or {}
    return (settings or {}).get(NAME) or theirs.get(NAME) or getattr(config, OLDER, None)


def with_activation(config: Any, activation: str | None) -> dict[str, Any]:
    """Fields for a config like ``config`` with which a CrossEncoder takes this ``activation``, None for the default."""
    theirs = {name: value for name, value in (getattr(config, FIELD, None) or {}).items() if name != NAME}
    return {FIELD: theirs if activation is None else theirs | {NAME: activation}}
