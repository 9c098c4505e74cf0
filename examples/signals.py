"""Signals: three channels of 1,460 steps, of other lengths; which of two patterns came first?

    python examples/signals.py

The signals are made here (noise, and two bursts far apart), so that the answer needs both ends and chance is 0.5; the
mask says where a signal ends. Beside full attention: the default projection, plain means and the paper's learned E, all
after the same short convolution; two minutes on two cores.
"""

import torch
from torch import nn

from longform import LinformerEncoder, parameter_groups

LENGTH, CHANNELS, PATCH, WIDTH, STEPS, BATCH = 1460, 3, 10, 32, 150, 32
TOKENS = LENGTH // PATCH  # 146 tokens of 10 steps

STACKS = {
    "full attention": {"max_length": TOKENS, "projected_length": TOKENS, "projection": "mean"},
    "default": {"max_length": TOKENS, "projected_length": 37},
    "mean": {"max_length": TOKENS, "projected_length": 37, "projection": "mean"},
    "paper's E": {"max_length": TOKENS, "projected_length": 37, "projection": "linear"},
}


def signals(count: int, source: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Patches (B, n, 30), their mask (B, n), and 1 where the fast burst comes before the slow one."""
    x = 0.5 * torch.randn(count, LENGTH, CHANNELS, generator=source)
    label = torch.randint(2, (count,), generator=source)
    steps, ends = torch.arange(60.0), torch.randint(900, LENGTH, (count,), generator=source)
    bursts = torch.stack([torch.sin(steps * 0.3), torch.sin(steps * 1.1)])  # slow, fast
    for row in range(count):
        first, last = (int(torch.randint(0, 300, (1,), generator=source)) for _ in range(2))
        where = first, int(ends[row]) - 60 - last
        for place, burst in zip(where, (int(label[row]), 1 - int(label[row])), strict=True):
            x[row, place : place + 60, row % CHANNELS] += 2 * bursts[burst]
    mask = torch.arange(TOKENS) < (ends // PATCH)[:, None]
    return x.unflatten(1, (TOKENS, PATCH)).flatten(2) * mask[..., None], mask, label


class Network(nn.Module):
    def __init__(self, options: dict) -> None:
        super().__init__()
        self.embed = nn.Linear(PATCH * CHANNELS, WIDTH)
        self.encoder = LinformerEncoder(WIDTH, 2, 4, positions="sine", intermediate_size=2 * WIDTH, **options)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        out = self.encoder(self.embed(x), mask) * mask[..., None]
        return self.head(out.sum(dim=1) / mask.sum(dim=1, keepdim=True))


def trained(network: nn.Module, *, lr: float) -> nn.Module:
    source = torch.Generator().manual_seed(1)
    optimizer = torch.optim.AdamW(parameter_groups(network, lr=lr, weight_decay=0.01))
    for _ in range(STEPS):
        x, mask, label = signals(BATCH, source)
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x, mask), label).backward()
        optimizer.step()
    return network.eval()


x, mask, label = signals(500, torch.Generator().manual_seed(2))
for name, options in STACKS.items():
    torch.manual_seed(0)
    network = trained(Network(options), lr=4e-3)
    with torch.no_grad():
        print(f"{name}: {(network(x, mask).argmax(dim=1) == label).float().mean():.3f}")
