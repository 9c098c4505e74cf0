"""Images: handwritten digits as 64 tokens, one a pixel, and enlarged to 32 x 32 pixels as a grid of patches.

    python examples/images.py

Beside full attention in the same stack: the default projection, plain means, the paper's learned E, all after the same
short convolution, and a linear classifier of the pixels. The digits come with scikit-learn; two minutes on two cores.
"""

import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from torch import nn

from longform import LinformerEncoder, parameter_groups

WIDTH, LAYERS, HEADS, STEPS, BATCH, TRAINED = 32, 2, 4, 500, 64, 1300
digits = load_digits()
pixels, labels = torch.tensor(digits.images, dtype=torch.float32) / 8 - 1, torch.tensor(digits.target)
flat = pixels.flatten(1)[..., None]  # (B, 64, 1)
large = nn.functional.interpolate(pixels[:, None], size=32, mode="bilinear")[:, 0]
patches = large.unfold(1, 4, 4).unfold(2, 4, 4).flatten(3)  # (B, 8, 8, 16)

STACKS = {
    "full attention": {"max_length": 64, "projected_length": 64, "projection": "mean"},
    "default": {"max_length": 64, "projected_length": 16},
    "mean": {"max_length": 64, "projected_length": 16, "projection": "mean"},
    "paper's E": {"max_length": 64, "projected_length": 16, "projection": "linear"},
    "tiles and a window": {"tile": (2, 2), "attention_window": (2, 2), "short_convolution": 3},
}


class Network(nn.Module):
    """Pixels or patches -> a linear layer and learned places -> the stack -> mean -> ten numbers."""

    def __init__(self, shape: tuple[int, ...], options: dict) -> None:
        super().__init__()
        self.embed = nn.Linear(shape[-1], WIDTH)
        self.places = nn.Parameter(0.5 * torch.randn(*shape[:-1], WIDTH))
        self.encoder = LinformerEncoder(WIDTH, LAYERS, HEADS, intermediate_size=2 * WIDTH, **options)
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embed(x) + self.places).flatten(1, -2).mean(dim=1))


def accuracy(x: torch.Tensor, options: dict) -> float:
    """On the digits that were not trained on."""
    torch.manual_seed(0)
    network = Network(tuple(x.shape[1:]), options)
    optimizer = torch.optim.AdamW(parameter_groups(network, lr=6e-3, weight_decay=0.01))
    rates = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, [group["lr"] for group in optimizer.param_groups], total_steps=STEPS
    )
    for _ in range(STEPS):
        some = torch.randint(TRAINED, (BATCH,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x[some]), labels[some]).backward()
        optimizer.step()
        rates.step()
    with torch.no_grad():
        return float((network.eval()(x[TRAINED:]).argmax(dim=1) == labels[TRAINED:]).float().mean())


plain = LogisticRegression(max_iter=1000).fit(flat[:TRAINED, :, 0], labels[:TRAINED])
print(f"a linear classifier of the pixels: {plain.score(flat[TRAINED:, :, 0], labels[TRAINED:]):.3f}")
for name, options in STACKS.items():
    if "tile" not in options:
        print(f"8 x 8 pixels, n = 64, {name}: {accuracy(flat, options):.3f}")
print(f"32 x 32 pixels, 64 patches, tiles and a window: {accuracy(patches, STACKS['tiles and a window']):.3f}")
