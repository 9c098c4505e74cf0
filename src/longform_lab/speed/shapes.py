"""Sizes of encoders, and cells of the grid: one length, batch, dtype and kind of pass for all competitors."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from longform.conversion.defaults import WINDOW, default_slots
from longform.errors import ConfigurationError
from longform_text.settings import check_choices, check_least


@dataclass(frozen=True)
class Size:
    """Width and depth of an encoder."""

    layers: int
    hidden: int
    heads: int
    intermediate: int

    @property
    def initial_deviation(self) -> float:
        """Deviation of random weights: so large that attention decides about the output, and a check notices it."""
        return self.hidden**-0.5


SIZES = {
    "tiny": Size(layers=2, hidden=32, heads=2, intermediate=64),  # for tests
    "minilm": Size(layers=6, hidden=384, heads=12, intermediate=1_536),
    "base": Size(layers=12, hidden=768, heads=12, intermediate=3_072),
}
DTYPES = ("float32", "bfloat16")
MODES = ("eager", "compiled")
PASSES = ("inference", "train")


@dataclass(frozen=True)
class Shape:
    """Shape that a model is built for: its size, the tokens of its texts, and k of a pure Linformer."""

    size: Size
    length: int
    slots: int

    @property
    def window_slots(self) -> int:
        """k beside the window, as ``longform convert`` chooses it for this length."""
        return default_slots(max_length=self.length, window=self.window)

    @property
    def window(self) -> int:
        """Tokens that a windowed model sees exactly on each side: the default, or more where that costs less.

        A token sees 3 w others and, where slots of w tokens are the widest, n / w slots; that is least at √(n / 3).
        """
        return max(WINDOW, 2 ** round(math.log2(math.sqrt(self.length / 3))))


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell of the grid: all that its competitors have in common."""

    size: str  # name in SIZES
    length: int  # n, tokens of each text; models are built for just this length
    batch: int  # texts in a pass
    slots: int  # k of pure Linformers; where it exceeds n / 2, n / 2 is taken
    dtype: str  # of weights in inference; in training of the matrix products (autocast), weights are float32
    mode: str  # "eager" or "compiled" (torch.compile, static shapes)
    work: str  # "inference" (forward, no gradients) or "train" (forward, backward, AdamW)
    device: str  # "cpu" or "cuda"
    threads: int  # of the CPU

    def __post_init__(self) -> None:
        check_choices(self, size=SIZES, dtype=DTYPES, mode=MODES)
        if self.work not in PASSES:
            raise ConfigurationError(f'passes="{self.work}"; it is one of {", ".join(PASSES)}')
        check_least(self, length=1, batch=1, slots=1, threads=1)
        if self.length < 2:
            raise ConfigurationError(f"length={self.length}: a Linformer shortens a text, so it needs 2 tokens or more")

    @property
    def shape(self) -> Shape:
        """Shape that the models of the cell are built for."""
        return Shape(SIZES[self.size], self.length, min(self.slots, self.length // 2))

    @property
    def tokens(self) -> int:
        """Tokens of a pass."""
        return self.length * self.batch

    def settings(self, competitor: str) -> dict[str, Any]:
        """The settings of a record: they tell every row of the grid apart."""
        return {"competitor": competitor, **asdict(self), "slots": self.shape.slots}

    def __str__(self) -> str:
        return f"{self.size} {self.work} {self.dtype} {self.mode}, n={self.length:,} x {self.batch}, k={self.slots}"
