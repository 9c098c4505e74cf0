"""Hugging Face encoders as functions of hidden states, so that all competitors take the same input."""

from typing import Any

from torch import Tensor, nn


class FromEmbeddings(nn.Module):
    """``inputs_embeds`` (B, n, D) -> last_hidden_state (B, n, D). Vocabularies have a few words that are never read."""

    model: Any

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, hidden: Tensor, **options: Any) -> Tensor:
        """hidden (B, n, D) -> (B, n, D)."""
        return self.model(inputs_embeds=hidden, **options).last_hidden_state


def with_weights_formed(model: nn.Module, hidden: Tensor) -> Tensor:
    """The output (B, n, D) by plain attention that forms its weights: the slower way to the same numbers."""
    return model(hidden, output_attentions=True)
