"""LinformerAttention in a network of your own: find which of two places of a long signal has the higher peak.

The layer knows nothing of Hugging Face. It takes and returns (batch, n, hidden_size), with a mask of 1 for values and 0
for padding, in time and memory linear in n.

    python examples/attention_layer_in_your_network.py
"""

import torch
from torch import Tensor, nn

import longform
from longform.layers.effective_attention import effective_attention

LONGEST, WIDTH, CHANNELS = 256, 32, 3


class SignalClassifier(nn.Module):
    """Signals (batch, n, channels), n <= LONGEST, and their mask (batch, n) -> logits (batch, 2)."""

    def __init__(self) -> None:
        super().__init__()
        self.inward = nn.Linear(CHANNELS, WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.attentions = nn.ModuleList(
            longform.LinformerAttention(WIDTH, num_heads=4, max_length=LONGEST, projected_length=32, projection="mean")
            for _ in range(2)
        )
        self.outward = nn.Linear(WIDTH, 2)

    def forward(self, signal: Tensor, mask: Tensor) -> Tensor:
        hidden = self.inward(signal)
        for norm, attention in zip(self.norms, self.attentions, strict=True):
            hidden = hidden + attention(norm(hidden), mask)
        peaks = hidden.masked_fill(mask[..., None] == 0, float("-inf")).amax(dim=1)
        return self.outward(peaks)


def make_batch(size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Noise of its own length each, with one peak in channel 0 and one in channel 1; label: the higher one."""
    lengths = torch.randint(LONGEST // 4, LONGEST + 1, (size,))
    mask = (torch.arange(LONGEST) < lengths[:, None]).long()
    signal = torch.randn(size, LONGEST, CHANNELS) * 0.1
    heights = torch.rand(size, 2) * 4
    for channel in range(2):
        signal[torch.arange(size), (torch.rand(size) * lengths).long(), channel] += heights[:, channel]
    signal[mask == 0] = float("nan")  # padding may hold anything: it is blanked, here and in the layer
    return signal, mask, heights.argmax(dim=1)


def main() -> None:
    torch.manual_seed(0)
    model = SignalClassifier()
    optimiser = torch.optim.AdamW(longform.parameter_groups(model, lr=3e-3))  # a learned E has a rate of its own
    for step in range(1, 61):
        signal, mask, labels = make_batch(16)
        loss = nn.functional.cross_entropy(model(signal.nan_to_num(), mask), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 20 == 0:
            print(f"step {step}: loss {loss.item():.3f}")
    signal, mask, labels = make_batch(200)
    with torch.no_grad():
        accuracy = (model(signal.nan_to_num(), mask).argmax(dim=1) == labels).float().mean().item()
        seen = effective_attention(model.attentions[0], model.inward(signal[:1]), mask[:1])
    print(f"accuracy on new signals: {accuracy:.2f}")
    print(f"weights over slots: {tuple(seen.weights.shape)}, and over positions: {tuple(seen.map.shape)}")


if __name__ == "__main__":
    main()
