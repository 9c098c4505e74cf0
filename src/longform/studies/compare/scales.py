"""The tasks of ``longform compare`` in two scales: models, budget and how many examples there are."""

from dataclasses import dataclass, field, replace
from typing import Any

from longform.errors import ConfigurationError
from longform.studies.compare.learning import LearningSettings

TASKS = ("text", "listops", "digits", "cifar10")
SCALES = ("small", "paper")


@dataclass(frozen=True)
class Scale:
    """``sizes``: fields of Sizes that do not follow from the data; ``examples``: of the generated parts."""

    sizes: dict[str, Any]
    learning: LearningSettings
    examples: tuple[int, int, int] = (0, 0, 0)
    data: dict[str, Any] = field(default_factory=dict)


# Long Range Arena as Nyströmformer (arXiv 2102.03902) ran it: 2 layers, width 64, feed-forward 128, 2 heads, mean
# pooling; ListOps at ten times its rate. Attention weights have no dropout,
# because with it there is no fused attention: on a CPU 2 (Linformer) to 3 times (full attention) the time, float32.
_ARENA: dict[str, Any] = {"hidden_size": 64, "layers": 2, "heads": 2, "intermediate_size": 128, "dropout": 0.1}
_TABLE: dict[tuple[str, str], Scale] = {
    ("listops", "paper"): Scale(
        {**_ARENA, "length": 2_000, "projected_length": 256},
        LearningSettings(steps=5_000, batch_size=32, learning_rate=1e-3, warmup=0.05, evaluations=20),
        examples=(96_000, 2_000, 2_000), data={"min_length": 500},
    ),
    ("listops", "small"): Scale(
        {**_ARENA, "length": 500, "projected_length": 64, "window": 32},
        LearningSettings(steps=1_000, batch_size=32, learning_rate=1e-3),
        examples=(16_000, 500, 1_000), data={"min_length": 100},
    ),
    ("digits", "small"): Scale(
        {**_ARENA, "length": 64, "projected_length": 16, "window": 8, "block": 4, "landmarks": 16},
        LearningSettings(steps=1_000, batch_size=32, learning_rate=2e-3),
    ),
    ("cifar10", "small"): Scale(
        {**_ARENA, "length": 1_024, "projected_length": 128, "window": 32},
        LearningSettings(steps=500, batch_size=32, learning_rate=1e-3, evaluations=5),
    ),
    ("cifar10", "paper"): Scale(
        {**_ARENA, "length": 1_024, "projected_length": 256},
        LearningSettings(steps=35_000, batch_size=256, tokens_per_forward=2**18, learning_rate=1e-4, warmup=0.005),
    ),
    ("text", "small"): Scale(
        {**_ARENA, "hidden_size": 128, "heads": 4, "intermediate_size": 256, "length": 1_024, "projected_length": 128,
         "window": 32},
        LearningSettings(steps=400, batch_size=16, learning_rate=1e-3),
        data={"vocabulary": 4_096},
    ),
    ("text", "paper"): Scale(
        {"hidden_size": 768, "layers": 12, "heads": 12, "intermediate_size": 3_072, "length": 4_096},
        LearningSettings(steps=5_000, batch_size=32, tokens_per_forward=2**17, learning_rate=1e-4, dtype="auto"),
        data={"vocabulary": 30_522},
    ),
}  # fmt: skip
_TABLE["digits", "paper"] = _TABLE["digits", "small"]


def scale(
    task: str, name: str, *, length: int | None = None, pooling: str | None = None, projection_init: str | None = None,
    test_texts: int | None = None, **learning: Any,
) -> Scale:  # fmt: skip
    """The row of the table, with other sizes, generated ``test_texts`` and LearningSettings where they are not None.

    Raises ConfigurationError for a task or scale that is not in the table.
    """
    if (task, name) not in _TABLE:
        raise ConfigurationError(
            f'there is no task "{task}" at scale "{name}"; tasks: {", ".join(TASKS)}; scales: {", ".join(SCALES)}'
        )
    found = _TABLE[task, name]
    sizes = found.sizes | _given(length=length, pooling=pooling, projection_init=projection_init)
    examples = found.examples if test_texts is None else (*found.examples[:2], test_texts)
    return replace(found, sizes=sizes, examples=examples, learning=replace(found.learning, **_given(**learning)))


def _given(**asked: Any) -> dict[str, Any]:
    return {name: value for name, value in asked.items() if value is not None}
