"""A competitor: an architecture that can be built for a shape, checked and timed, as a function of hidden states."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from torch import Tensor, nn

from longform.errors import installing
from longform_lab.speed.shapes import Cell, Shape

VOCABULARY = 8  # words, of Hugging Face models; they are never read


def common_settings(shape: Shape) -> dict[str, Any]:
    """Settings of Hugging Face's encoders for a shape, without dropout."""
    size = shape.size
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": size.hidden,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "intermediate_size": size.intermediate,
        "max_position_embeddings": shape.length,
        "initializer_range": size.initial_deviation,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }


class FromEmbeddings(nn.Module):
    """A Hugging Face encoder as others are: ``inputs_embeds`` (B, n, D) -> last_hidden_state (B, n, D)."""

    model: Any

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, hidden: Tensor, **options: Any) -> Tensor:
        """hidden (B, n, D) -> (B, n, D)."""
        return self.model(inputs_embeds=hidden, **options).last_hidden_state


@dataclass(frozen=True, kw_only=True)
class Competitor:
    """One architecture in one setting.

    ``family``: "ours"; "full" (full attention); "peer" (other implementations of Linformer); "sparse" (other
    architectures).
    ``build``: makes the float32 model, without dropout: hidden states (B, n, D) -> (B, n, D).
    ``details``: what of its attention depends on the shape and is not a setting of the cell, for its records.
    """

    name: str  # on the command line and in records
    label: str  # in tables and pictures
    family: str
    build: Callable[[Shape], nn.Module]
    packages: tuple[str, ...] = ()  # that it needs beyond the package's own dependencies
    extra: str = "peers"  # which installs them
    autocast: bool = False  # in bfloat16 its weights stay in float32, because it does not run otherwise
    longest: int | None = 65_536  # most tokens that it is measured with, or None
    refuses: Callable[[Shape], str] = lambda shape: ""  # why it has no model of a shape; "" where it has one
    details: Callable[[Shape], dict[str, int]] = lambda shape: {}

    @property
    def has_slots(self) -> bool:
        """Whether k means something to it: full attention and other architectures shorten nothing to k slots."""
        return self.family not in ("full", "sparse")

    def missing(self, cell: Cell) -> str:
        """Why it cannot run in this cell, as far as that is known without trying; "" where it can."""
        absent = [name for name in self.packages if find_spec(name) is None]
        if absent:
            return f"not installed: {', '.join(absent)} ({installing(self.extra)})"
        if self.longest is not None and cell.length > self.longest:
            return f"above {self.longest:,} tokens only Longform is measured"
        return self.refuses(cell.shape)
