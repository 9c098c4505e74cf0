"""Settings of ``longform bound``, in two scales."""

from dataclasses import dataclass, field

from longform.errors import ConfigurationError
from longform.runs.settings import check_least, check_positive
from longform_lab.bounds.theorems import decay

EVERY = 10_000  # layers or heads: as many as there are


@dataclass(frozen=True)
class BoundSettings:
    """Settings of what is computed and measured; a run that was interrupted goes on only with the same.

    Raises ConfigurationError on values that mean nothing.

    Args:
        length: n, tokens of a text, special ones included; a list. Texts are cut at n, and shorter ones passed over;
            the error against k is measured at the largest
        epsilon: errors relative to the norms, each above 0 and below 1; a list
        head_size: d of random maps and of the table where no model is given
        trials: random projections drawn for each source of maps, k and n
        trial_texts: texts on whose maps they are tried
        trial_slots: k of the trials; a list, the theorems' k come on top
        projected_length: k of the error; a list, none above the largest length
        layer_count: layers looked at, spread from the first to the last, or all
        head_count: heads of each layer looked at, spread from the first to the last, or all
        fit_texts: texts on which E and F and the convolution are fitted
        held_out_texts: other texts, on which every error is measured
        fit_steps: steps of gradient descent, one text each
        learning_rate: of E and F, at its peak
        seed: of the random maps, the projections and the order of texts
    """

    length: list[int] = field(default_factory=lambda: [128, 512])
    epsilon: list[float] = field(default_factory=lambda: [0.25, 0.5, 0.75])
    head_size: int = 64
    trials: int = 40
    trial_texts: int = 1
    trial_slots: list[int] = field(default_factory=lambda: [16, 64, 256, 1024, 2048])
    projected_length: list[int] = field(default_factory=lambda: [16, 32, 64, 128, 256])
    layer_count: int = 3
    head_count: int = 3
    fit_texts: int = 16
    held_out_texts: int = 4
    fit_steps: int = 80
    learning_rate: float = 1e-3
    seed: int = 0

    def __post_init__(self) -> None:
        lists = ("length", "epsilon", "trial_slots", "projected_length")
        empty = [name for name in lists if not getattr(self, name)]
        if empty:
            raise ConfigurationError(f"{empty[0]} is an empty list; give one value or more")
        for epsilon in self.epsilon:
            decay(epsilon)
        check_least(
            self,
            length=2,
            head_size=2,
            trials=2,
            trial_texts=1,
            trial_slots=1,
            projected_length=1,
            layer_count=1,
            head_count=1,
            fit_texts=1,
            held_out_texts=1,
            fit_steps=1,
        )
        check_positive(self, "learning_rate")
        if max(self.projected_length) > max(self.length):
            raise ConfigurationError(
                f"projected_length {max(self.projected_length)} is above the largest length {max(self.length)}: there "
                "are no more slots than tokens to shorten"
            )


SCALES = {
    "small": BoundSettings(),
    "paper": BoundSettings(
        length=[128, 256, 512],
        epsilon=[0.1, 0.25, 0.5, 0.75, 0.9],
        trials=1000,
        trial_texts=8,
        trial_slots=[16, 32, 64, 128, 256, 512, 1024, 2048, 4096],
        layer_count=EVERY,
        head_count=EVERY,
        fit_texts=128,
        held_out_texts=32,
        fit_steps=3000,
    ),
}
