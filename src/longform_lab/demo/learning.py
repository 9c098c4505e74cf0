"""The demo's layer that learns: name the one digit that is inverted among 256 handwritten ones.

The digits are scikit-learn's, each a vector of 64 pixels. To find one of them a layer has to look at content: its place
says nothing. All stacks see the same batches; Longform's are the same but for their slots.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from tqdm import tqdm

import longform
from longform_lab.demo.pipeline import HEADINGS, Pipeline
from longform_lab.evaluation.comparison import bootstrap

PIXELS, DIGITS, TRAINED = 64, 10, 1300  # of the 1,797 images, the first are trained on
WIDTH, HEADS, LAYERS, BATCH = 64, 4, 2, 32
RATE = 4e-3  # of 1e-3, 2e-3 and 4e-3 best for each stack that learns
LAYER_WIDTH, LAYER_SLOTS = 256, 256  # of the layer whose time is measured


class LearningScale(NamedTuple):
    """``tokens`` of a text, ``steps`` of training, texts that are ``tested``, ``lengths`` at which a layer is timed."""

    tokens: int
    steps: int
    tested: int
    lengths: tuple[int, ...]


SCALES = {
    "full": LearningScale(256, 150, 400, (512, 1024, 2048, 4096, 8192)),
    "tiny": LearningScale(8, 2, 4, (16, 32)),
}


def longform_stack(tokens: int, tokens_per_slot: int, projection: str) -> nn.Module:
    """LinformerEncoder with a slot for so many tokens; all have the same short convolution."""
    slots: dict[str, Any] = {"projected_length": tokens // tokens_per_slot, "projection": projection}
    return longform.LinformerEncoder(WIDTH, LAYERS, HEADS, tokens, intermediate_size=2 * WIDTH, **slots)


def torch_stack(tokens: int) -> nn.Module:
    """nn.TransformerEncoder as it comes, without dropout: full attention."""
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, LAYERS)


def lucidrains_stack(tokens: int) -> nn.Module:
    """The package ``linformer``: a learned E and F for each layer, as many slots as the default has."""
    from linformer import Linformer

    return Linformer(WIDTH, tokens, LAYERS, k=tokens // 4, heads=HEADS)


STACKS: dict[str, Callable[[int], nn.Module]] = {
    "longform, default": partial(longform_stack, tokens_per_slot=4, projection="weighted_mean"),
    "full attention": partial(longform_stack, tokens_per_slot=1, projection="mean"),
    "nn.TransformerEncoder": torch_stack,
    "the paper's learned E": partial(longform_stack, tokens_per_slot=4, projection="linear"),
    "the package linformer": lucidrains_stack,
    "plain means": partial(longform_stack, tokens_per_slot=4, projection="mean"),
}


class Network(nn.Module):
    """Images (B, n, 64) -> a linear layer -> ``stack`` -> mean -> logits of the ten digits (B, 10)."""

    def __init__(self, stack: nn.Module) -> None:
        super().__init__()
        self.embed = nn.Linear(PIXELS, WIDTH)
        self.encoder = stack
        self.head = nn.Linear(WIDTH, DIGITS)

    def forward(self, images: Tensor) -> Tensor:
        """Logits of the inverted digit."""
        return self.head(self.encoder(self.embed(images)).mean(dim=1))


class Texts:
    """Rows of digit images, one of each inverted; the images trained on, or the others."""

    def __init__(self, tokens: int, *, tested: bool, seed: int) -> None:
        from sklearn.datasets import load_digits

        digits, own = load_digits(), slice(TRAINED, None) if tested else slice(TRAINED)
        self.images = torch.tensor(digits.images[own], dtype=torch.float32).flatten(1) / 8 - 1
        self.labels = torch.tensor(digits.target[own])
        self.tokens, self.source = tokens, torch.Generator().manual_seed(seed)

    def draw(self, count: int) -> tuple[Tensor, Tensor]:
        """Images (count, n, 64), and which digit is inverted (count)."""
        rows = torch.arange(count)
        chosen = torch.randint(len(self.images), (count, self.tokens), generator=self.source)
        places = torch.randint(self.tokens, (count,), generator=self.source)
        images = self.images[chosen]
        images[rows, places] *= -1
        return images, self.labels[chosen[rows, places]]


def run_learning(pipeline: Pipeline, scale: LearningScale, seed: int, say: Callable[[str], None]) -> None:
    """Train each stack, and time a layer against length; the results are steps of the ``pipeline``."""
    say(f"\n[1/{HEADINGS}] A layer that learns: which digit of {scale.tokens} is inverted, after {scale.steps} steps")
    for name, stack in STACKS.items():
        row = pipeline.step(name, lambda stack=stack: learned(stack, scale, seed))
        say(f"{'':14}{row['accuracy']:4.1f} %  {name}")
    pipeline.step("layer", lambda: {"rows": timed(scale.lengths)})


def learned(stack: Callable[[int], nn.Module], scale: LearningScale, seed: int) -> dict[str, Any]:
    """Accuracy in % on digits that were not trained on, its 95 % interval, and which answers were right."""
    torch.manual_seed(seed)
    network, texts = Network(stack(scale.tokens)), Texts(scale.tokens, tested=False, seed=seed)
    optimizer = torch.optim.AdamW(longform.parameter_groups(network, lr=RATE, weight_decay=0.01))
    highest = [group["lr"] for group in optimizer.param_groups]
    rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, highest, total_steps=scale.steps)
    for _ in tqdm(range(scale.steps), unit="step", leave=False, disable=None):
        images, labels = texts.draw(BATCH)
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(images), labels).backward()
        optimizer.step()
        rates.step()
    images, labels = Texts(scale.tokens, tested=True, seed=seed).draw(scale.tested)
    with torch.no_grad():
        found = torch.cat([network.eval()(some) for some in images.split(50)]).argmax(dim=1)
    right = 100.0 * (found == labels).double()
    accuracy = bootstrap(right.numpy())
    return {"accuracy": accuracy.mean, "interval": [accuracy.low, accuracy.high], "per_text": right.tolist()}


def timed(lengths: tuple[int, ...]) -> list[dict[str, Any]]:
    """Milliseconds of one layer, forward and backward, at each length: the best of three."""
    rows = []
    for length in lengths:
        ours, full = (
            longform.LinformerAttention(
                LAYER_WIDTH,
                HEADS,
                max_length=length,
                projected_length=slots,
                projection=projection,
                short_convolution=5,
            )
            for slots, projection in ((LAYER_SLOTS, "weighted_mean"), (length, "mean"))
        )
        x = torch.randn(1, length, LAYER_WIDTH)
        rows.append({"length": length, "longform": _milliseconds(ours, x), "full": _milliseconds(full, x)})
    return rows


def _milliseconds(layer: nn.Module, x: Tensor) -> float:
    found = []
    for _ in range(4):  # the first warms up
        began = time.perf_counter()
        layer(x).sum().backward()
        found.append(1000 * (time.perf_counter() - began))
    return min(found[1:])
