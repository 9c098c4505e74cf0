"""Settings of the measurement of a spectrum, and of how its result is looked at."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from longform.errors import ConfigurationError
from longform_text.settings import check_least


class OpenedModel(NamedTuple):
    """An encoder that gives attention weights, its tokenizer, and the most tokens that it takes."""

    model: Any
    tokenizer: Any
    limit: int


TEXTS = {"small": 100, "paper": 10_000}  # of a corpus, by scale
Opener = Callable[[str], OpenedModel]


@dataclass(frozen=True)
class SpectrumSettings:
    """Settings of what is measured; a run that was interrupted goes on only with the same.

    Raises ConfigurationError on values that mean nothing.

    Args:
        max_length: tokens of a text, special ones included; longer texts are cut
        texts: texts taken of each corpus, the first ones that are not passed over; null: all
        min_tokens: texts of fewer tokens are passed over and counted; null: none are, and one without two tokens of
            its own is an error
        head_texts: texts on which heads are compared; 0: heads are not compared
    """

    max_length: int = 512
    texts: int | None = 100
    min_tokens: int | None = None
    head_texts: int = 8

    def __post_init__(self) -> None:
        check_least(self, max_length=2, texts=1, min_tokens=2, head_texts=0)
        if self.min_tokens is not None and self.min_tokens > self.max_length:
            raise ConfigurationError(
                f"min_tokens={self.min_tokens} is above max_length={self.max_length}, at which texts are cut"
            )


@dataclass(frozen=True)
class SpectrumView:
    """How a spectrum is looked at; may change from call to call, nothing is measured again.

    Raises ConfigurationError on values that mean nothing.

    Args:
        index: singular value, or a list of them, at which the share is shown, counted from 1; the first one is the
            heat map's
        keep: share of the singular values' sum that the chosen k keeps, above 0 and below 1
        total_k: k of all layers together, shared out so that each keeps as much as can be; null: not asked
        pooled: choose k only among those that mean, max and convolution projections can have, whose slots are runs
            of whole tokens; false: any k, as a learned projection can have
    """

    index: int | list[int] = 128
    keep: float = 0.9
    total_k: int | None = None
    pooled: bool = True

    def __post_init__(self) -> None:
        if not self.indices or min(self.indices) < 1:
            raise ConfigurationError(f"index is {self.index}; it counts singular values, from 1 for the largest")
        if not 0.0 < self.keep < 1.0:
            raise ConfigurationError(f"keep is {self.keep}; it is a share above 0 and below 1")

    @property
    def indices(self) -> list[int]:
        """``index`` as a list."""
        return [self.index] if isinstance(self.index, int) else self.index
