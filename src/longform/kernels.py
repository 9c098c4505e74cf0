"""Kernels for users: which one serves each operation of a model and why not the others, and forcing one.

::

    import longform

    print(longform.kernels.explain(model, length=4096))
    with longform.kernels.use(window="formula"):
        model(**inputs)
"""

from dataclasses import dataclass
from typing import Any

import torch

from longform.errors import ConfigurationError
from longform.functional.dispatch import OPERATIONS, Choice, listening, use
from longform.models.text_reader import reader_of

__all__ = ["Explanation", "explain", "tables", "use"]


@dataclass(frozen=True)
class Explanation:
    """Kernels that served each operation; printed, a paragraph each, with the first unmet need of every other one."""

    choices: tuple[Choice, ...]

    def __str__(self) -> str:
        lines = []
        for choice, times in self.counted().items():
            lines.append(f"{choice.operation}: {choice.kernel}" + (f" ({times} calls)" if times > 1 else ""))
            lines += [f"    not {kernel}: {_reason(unmet)}" for kernel, unmet in choice.unmet]
        return "\n".join(lines)

    def counted(self) -> dict[Choice, int]:
        """Different choices in the order in which they were made, and how often each was made."""
        found: dict[Choice, int] = {}
        for choice in self.choices:
            found[choice] = found.get(choice, 0) + 1
        return found


def _reason(unmet: str | None) -> str:
    return "comes after it in the table" if unmet is None else f"needs {unmet}"


def explain(model: torch.nn.Module, inputs: dict[str, Any] | None = None, *, length: int | None = None) -> Explanation:
    """Which kernel serves each operation of ``model`` (one of Longform's, or any module with its layers).

    ``inputs``: what the model is called with, as it is called there (gradients, autocast, compile); or ``length``: a
    text of so many tokens, without gradients, for Longform's own models. Raises ConfigurationError for a length with
    another module.
    """
    with listening() as choices:
        if inputs is not None:
            model(**inputs)
        else:
            if (reader := reader_of(model)) is None:
                raise ConfigurationError(
                    f"explain(length={length}) makes the inputs of Longform's own models alone, and this is a "
                    f"{type(model).__name__}: give what it is called with, explain(model, inputs)"
                )
            tokens = length or min(512, reader.config.max_position_embeddings)
            with torch.inference_mode():
                model(torch.zeros(1, tokens, dtype=torch.long, device=reader.embeddings.word_embeddings.weight.device))
    return Explanation(tuple(choices))


def tables() -> dict[str, list[str]]:
    """The kernels of every operation, the one that is asked first in front."""
    return {name: [kernel.name for kernel in kernels] for name, kernels in OPERATIONS.items()}
