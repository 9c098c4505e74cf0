"""Worth of a learning rate of its own to a learned projection, on a small task of vectors.

Which of two peaks in 256 vectors is higher? The answer is read off the first vector, after two layers of attention that
shorten 256 to 32. ``--rates``: the projection's, over the network's; none: that of longform.parameter_groups.

::

    python -m longform_lab.experiments.own_rates linear --rates 1 0.1 0.01
    python -m longform_lab.experiments.own_rates linear
    python -m longform_lab.experiments.own_rates mean
"""

import argparse
import statistics
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

import longform
from longform.layers.sequence_projection import SequenceProjection
from longform_lab.records import RECORDS, Record, append_record

LENGTH, SLOTS, WIDTH, LAYERS, CHANNELS = 256, 32, 32, 2, 3
STEPS, BATCH, RATE, TESTED = 250, 16, 3e-3, 1000


class PeakFinder(nn.Module):
    """Signals (B, n, 3) -> logits (B, 2). ``projection``: its kind, None: full attention; ``start``: how it begins."""

    def __init__(self, projection: str | None, start: str) -> None:
        super().__init__()
        options: dict[str, Any] = {"projection": "mean", "attention_window": LENGTH}
        if projection is not None:
            options = {"projection": longform.Projection(projection, init=start)}
        self.inward, self.outward = nn.Linear(CHANNELS, WIDTH), nn.Linear(WIDTH, 2)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(LAYERS))
        self.attentions = nn.ModuleList(
            longform.LinformerAttention(WIDTH, 4, max_length=LENGTH, projected_length=SLOTS, **options)
            for _ in range(LAYERS)
        )

    def forward(self, signals: Tensor) -> Tensor:
        hidden = self.inward(signals)
        for norm, attention in zip(self.norms, self.attentions, strict=True):
            hidden = hidden + attention(norm(hidden))
        return self.outward(hidden[:, 0])


def signals(count: int, source: torch.Generator) -> tuple[Tensor, Tensor]:
    """Noise with one peak in channel 0 and one in channel 1, (B, n, 3), and which is higher, long (B)."""
    made = torch.randn(count, LENGTH, CHANNELS, generator=source) * 0.1
    heights = torch.rand(count, 2, generator=source) * 4
    for channel in range(2):
        made[torch.arange(count), torch.randint(LENGTH, (count,), generator=source), channel] += heights[:, channel]
    return made, heights.argmax(dim=1)


def accuracy(projection: str | None, start: str, rate: float | None, seed: int) -> float:
    """Accuracy of a model of this seed on unseen signals. ``rate``: of the projection over the network's."""
    torch.manual_seed(seed)
    model, source = PeakFinder(projection, start), torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, SequenceProjection) and rate is not None:
            module.learning_rate_multiplier = rate
    optimiser = torch.optim.AdamW(longform.parameter_groups(model, lr=RATE))
    for _ in range(STEPS):
        given, higher = signals(BATCH, source)
        nn.functional.cross_entropy(model(given), higher).backward()
        optimiser.step()
        optimiser.zero_grad()
    given, higher = signals(TESTED, torch.Generator().manual_seed(10**6))
    with torch.no_grad():
        return (model(given).argmax(dim=1) == higher).float().mean().item()


def main() -> None:
    """Train, test, append, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("projection", help="of LinformerAttention, or full for full attention")
    parser.add_argument("--start", default="block_mean", choices=("block_mean", "normal"))
    parser.add_argument("--rates", nargs="+", type=float, default=[None])
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    for rate in chosen.rates:
        projection = None if chosen.projection == "full" else chosen.projection
        seeds = tqdm(range(chosen.seeds), desc=f"{chosen.projection} {rate}", leave=False)
        found = [accuracy(projection, chosen.start, rate, seed) for seed in seeds]
        learns = chosen.projection in ("linear", "convolution")
        own = "own" if rate is None else f"{rate:g}"
        settings = {
            "projection": chosen.projection,
            "start": chosen.start if learns else None,
            "rate": own if learns else None,
            "seeds": chosen.seeds,
            "steps": STEPS,
            "length": LENGTH,
            "slots": SLOTS,
            "learning_rate": RATE,
        }
        metrics = {"accuracy": statistics.mean(found), "lowest": min(found), "highest": max(found)}
        append_record(RECORDS / "own_rates.jsonl", Record(name="own_rates", settings=settings, metrics=metrics))
        tqdm.write(f"{settings} {metrics}")


if __name__ == "__main__":
    main()
