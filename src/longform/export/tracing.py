"""A model as one graph of torch.export for every batch and length up to its maximum.

It holds torch's plain operations alone: the kernels that no graph can hold are passed over by name, in the table of
kernels. transformers.exporters (5.23) trace the same graph, replacing functions of torch meanwhile; measured on a
converted MiniLM their file was no faster, and they call themselves experimental.

Axes: B batch, n tokens, D hidden, L labels.
"""

import warnings

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export
from transformers import PreTrainedModel

from longform import kernels

PLAIN = {  # kernels that are torch's operations and no more
    "attention": "sdpa", "window": "formula", "linear": "torch", "slot_means": "torch",
    "norm": "torch",
}  # fmt: skip
LARGEST_BATCH = 2**16
TREES = r"`isinstance\(treespec, LeafSpec\)` is deprecated"  # torch warns of its own code


class OneOutput(nn.Module):
    """A model that gives one of its outputs."""

    def __init__(self, model: nn.Module, output: str) -> None:
        super().__init__()
        self.model, self.output = model, output

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Tensors long (B, n) -> (B, n, D) or (B, L)."""
        return self.model(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)[
            self.output
        ]


def traced(model: PreTrainedModel, inputs: tuple[str, ...], output: str) -> ExportedProgram:
    """The graph of ``model`` from ``inputs`` (names of arguments of ``OneOutput``) to one ``output``."""
    longest = model.config.max_position_embeddings
    axes = {0: Dim("batch", min=1, max=LARGEST_BATCH), 1: Dim("length", min=1, max=longest)}
    given = sample(inputs, batch=2, length=max(2, longest - 1))
    with torch.no_grad(), kernels.use(**PLAIN), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=TREES, category=FutureWarning)
        wrapped = OneOutput(model, output).eval()
        return export(wrapped, (), given, dynamic_shapes=dict.fromkeys(given, axes), strict=False)


def sample(inputs: tuple[str, ...], *, batch: int, length: int) -> dict[str, Tensor]:
    """Inputs of the right shape, by name: long (B, n), all text."""
    fill = {"attention_mask": 1}
    return {name: torch.full((batch, length), fill.get(name, 0), dtype=torch.long) for name in inputs}
