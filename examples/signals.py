"""By content: signals of three channels and up to 1,460 steps; which of two patterns, anywhere in it, came first?

    python examples/signals.py

A pattern may begin at any step, so a slot is a mean of neighbours weighted by what they are: the default. Beside it
full attention in the same stack and mixtures of places. The signals are noise with two bursts far apart, so that the
answer needs both and chance is 0.5; the mask says where a signal ends. A minute on one core.
"""

import torch
from torch import nn

from longform import LinformerEncoder, parameter_groups

LENGTH, CHANNELS, PATCH, WIDTH, STEPS, BATCH = 1460, 3, 10, 32, 150, 32
TOKENS = LENGTH // PATCH  # 146 tokens of 10 steps
STACKS = {
    "full attention": {"max_length": TOKENS, "projected_length": TOKENS},
    "default": {},
    "by place": {"max_length": TOKENS, "projected_length": 37, "projection": "by_place"},
}


def signals(count: int, source: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Tokens (B, n, 30), their mask (B, n), and 1 where the fast burst comes before the slow one."""
    x = 0.5 * torch.randn(count, LENGTH, CHANNELS, generator=source)
    label = torch.randint(2, (count,), generator=source)
    steps, ends = torch.arange(60.0), torch.randint(900, LENGTH, (count,), generator=source)
    bursts = torch.stack([torch.sin(steps * 0.3), torch.sin(steps * 1.1)])  # slow, fast
    for row in range(count):
        first, last = (int(torch.randint(0, 300, (1,), generator=source)) for _ in range(2))
        for place, burst in ((first, int(label[row])), (int(ends[row]) - 60 - last, 1 - int(label[row]))):
            x[row, place : place + 60, row % CHANNELS] += 2 * bursts[burst]
    mask = torch.arange(TOKENS) < (ends // PATCH)[:, None]
    return x.unflatten(1, (TOKENS, PATCH)).flatten(2) * mask[..., None], mask, label


class Network(nn.Module):
    def __init__(self, options: dict) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(PATCH * CHANNELS, WIDTH), nn.Linear(WIDTH, 2)
        self.encoder = LinformerEncoder(WIDTH, num_layers=2, num_heads=4, positions="sine", **options)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        out = self.encoder(self.embed(x), mask) * mask[..., None]
        return self.head(out.sum(dim=1) / mask.sum(dim=1, keepdim=True))


test, mask, label = signals(500, torch.Generator().manual_seed(2))
for name, options in STACKS.items():
    torch.manual_seed(0)
    network, source = Network(options), torch.Generator().manual_seed(1)
    optimizer = torch.optim.AdamW(parameter_groups(network, lr=4e-3, weight_decay=0.01))
    for _ in range(STEPS):
        *given, right = signals(BATCH, source)
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(*given), right).backward()
        optimizer.step()
    with torch.no_grad():
        print(f"{name}: {(network.eval()(test, mask).argmax(dim=1) == label).float().mean():.3f}")
