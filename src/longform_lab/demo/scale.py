"""How much the demo does: every number that decides about its time and its result."""

from dataclasses import dataclass, field
from typing import Any

from longform.errors import ConfigurationError
from longform.training.settings import DistillationSettings, FinetuningSettings


@dataclass(frozen=True)
class Scale:
    """Lengths are in tokens, special ones included.

    Args:
        name: "full", or "tiny" for tests.
        length: of the Longform. ``projected_length``, ``attention_window``: "auto" for the conversion's defaults.
        original_length: of the encoder it is converted from. ``original_window``: covers all of it from the middle.
        heal: the distillation; it sees texts without their labels.
        finetune: the fine-tuning of both models, which differ in ``max_length`` alone.
        texts_per_group: most training texts from one group of near duplicates.
        validation_texts: measured while fine-tuning, to choose the best checkpoint.
        heldout_texts: validation texts on which the agreement with the original is measured.
        learning_minutes: for fitting both heads and fine-tuning both models; fewer texts are used where the machine is
            too slow for all of them.
        measured: lengths at which time and memory are measured, for each model. ``repetitions``: of each.
        pooling: what the classifiers of both models see (``classifier_pooling``).
    """

    name: str
    length: int
    original_length: int
    original_window: int
    projected_length: int | str
    attention_window: int | str
    heal: DistillationSettings
    finetune: FinetuningSettings
    texts_per_group: int
    validation_texts: int
    heldout_texts: int
    learning_minutes: float
    measured: dict[str, tuple[int, ...]] = field(default_factory=dict)
    repetitions: int = 3
    pooling: str = "lead"

    @property
    def lengths(self) -> dict[str, int]:
        """Tokens that the two models read, in training and in testing."""
        return {"longform": self.length, "original": self.original_length}


def scale_named(name: str, *, seed: int) -> Scale:
    """The scale called "full" or "tiny", with ``seed`` in its settings. Raises ConfigurationError for another name."""
    if name not in _SCALES:
        raise ConfigurationError(f'scale="{name}"; it is one of {", ".join(_SCALES)}')
    return _SCALES[name](seed)


def _full(seed: int) -> Scale:
    return Scale(
        name="full", length=4096, original_length=512, original_window=256, projected_length="auto",
        attention_window="auto",
        heal=DistillationSettings(
            length=4096, min_length=512, tokens_per_step=4096, tokens_per_forward=8192, max_tokens=100_000,
            optimizer="adamw", learning_rate=4e-5, evaluations=0, seed=seed,
        ),
        # Few tokens_per_forward: a text shares a pass with texts as long only; padding would cost a third. The rate is
        # low because the heads are fitted to all texts and fine-tuning sees a part of them.
        finetune=_finetuning(
            seed, batch_size=8, learning_rate=1e-5, head_learning_rate=3e-5, tokens_per_forward=1024,
            save_every_steps=25,
        ),
        texts_per_group=1, validation_texts=48, heldout_texts=12,
        learning_minutes=5.0, repetitions=2,
        measured={
            "longform": (256, 512, 1024, 2048, 4096, 8192, 16384),
            "original": (256, 512),
            "original, longer table": (1024, 2048, 4096, 8192),
        },
    )  # fmt: skip


def _tiny(seed: int) -> Scale:
    return Scale(
        name="tiny", length=96, original_length=48, original_window=24, projected_length=12,
        attention_window=8,
        heal=DistillationSettings(
            length=96, min_length=24, tokens_per_step=128, tokens_per_forward=512, max_steps=4, evaluations=0,
            save_every_steps=2, seed=seed,
        ),
        finetune=_finetuning(seed, batch_size=4, learning_rate=5e-3, head_learning_rate=2e-2, tokens_per_forward=512),
        texts_per_group=2, validation_texts=8, heldout_texts=2,
        learning_minutes=1.0, repetitions=1,
        measured={"longform": (24, 48, 96), "original": (24, 48), "original, longer table": (96,)},
    )  # fmt: skip


def _finetuning(seed: int, **chosen: Any) -> FinetuningSettings:
    return FinetuningSettings(
        task="single-label", epochs=1, evaluations_per_epoch=1, metric="macro_f1", seed=seed, **chosen
    )


_SCALES = {"full": _full, "tiny": _tiny}
