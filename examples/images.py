"""By place: handwritten digits as 64 tokens, one a pixel. A pixel means the same in every image: slots mix places.

    python examples/images.py

`projection="by_place"` beside full attention in the same stack, the default (means by content), tiles with a window on
the same digits enlarged to 8 x 8 patches, and a linear classifier. The digits are scikit-learn's; a minute on one core.
"""

import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from torch import nn

from longform import LinformerEncoder, parameter_groups

WIDTH, STEPS, BATCH, TRAINED = 32, 100, 16, 1300
digits = load_digits()
images, labels = torch.tensor(digits.images, dtype=torch.float32) / 8 - 1, torch.tensor(digits.target)
pixels = images.flatten(1)[..., None]  # (B, 64, 1)
large = nn.functional.interpolate(images[:, None], size=32, mode="bilinear")[:, 0]
patches = large.unfold(1, 4, 4).unfold(2, 4, 4).flatten(3)  # (B, 8, 8, 16)

STACKS = {
    "full attention": (pixels, {"max_length": 64, "projected_length": 64}),
    "default": (pixels, {"max_length": 64, "projected_length": 16}),
    "by place": (pixels, {"max_length": 64, "projected_length": 16, "projection": "by_place"}),
    "patches, tiles and a window": (patches, {"tile": (2, 2), "attention_window": (2, 2), "short_convolution": 3}),
}


class Network(nn.Module):
    def __init__(self, shape: tuple[int, ...], options: dict) -> None:
        super().__init__()
        self.embed = nn.Linear(shape[-1], WIDTH)
        self.places = nn.Parameter(0.5 * torch.randn(*shape[:-1], WIDTH))
        self.encoder = LinformerEncoder(WIDTH, num_layers=2, num_heads=4, **options)
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embed(x) + self.places).flatten(1, -2).mean(dim=1))


plain = LogisticRegression(max_iter=1000).fit(pixels[:TRAINED, :, 0], labels[:TRAINED])
print(f"a linear classifier of the pixels: {plain.score(pixels[TRAINED:, :, 0], labels[TRAINED:]):.3f}")
for name, (x, options) in STACKS.items():
    torch.manual_seed(0)
    network = Network(tuple(x.shape[1:]), options)
    optimizer = torch.optim.AdamW(parameter_groups(network, lr=3e-3, weight_decay=0.01))
    for _ in range(STEPS):
        some = torch.randint(TRAINED, (BATCH,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x[some]), labels[some]).backward()
        optimizer.step()
    with torch.no_grad():
        right = network.eval()(x[TRAINED:]).argmax(dim=1) == labels[TRAINED:]
    print(f"{name}: {right.float().mean():.3f}")
