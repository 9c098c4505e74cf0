"""Calls of public programs that use Linformer attention, with ours in the place of theirs and synthetic input.

Each row has what the program is, how it makes and calls its layer or stack, the same of ours, and its shape of output;
ours differs in at most three lines. Sizes are the programs' own, widths and depths made smaller where that is all.
"""

from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torchvision_stand_in import torchvision

from longform import (
    LinformerAttention,
    LinformerEncoder,
    LinformerEncoderLayer,
    LinformerMultiheadAttention,
    Projection,
)

with torchvision():
    from timm.models.vision_transformer import VisionTransformer
    from vit_pytorch.efficient import ViT


class Program(NamedTuple):
    make: Any
    call: Any
    shape: tuple[int, ...]


def padded(batch, length, texts):
    """A mask of texts of so many tokens, True for text."""
    return torch.arange(length) < torch.tensor(texts)[:batch, None]


PROGRAMS = {
    "ViT, cats and dogs: k > n": Program(
        lambda: LinformerEncoder(128, 12, 8, 50, projected_length=64),
        lambda stack: stack(torch.randn(2, 50, 128)), (2, 50, 128)),
    "ViT of 8 bands": Program(
        lambda: LinformerEncoder(64, 2, 8, 65, projected_length=64),
        lambda stack: stack(torch.randn(2, 65, 64)), (2, 65, 64)),
    "ViT of volumes, n 344": Program(
        lambda: LinformerEncoder(64, 2, 8, 344, projected_length=64),
        lambda stack: stack(torch.randn(1, 344, 64)), (1, 344, 64)),
    "volumes as they are, class token apart": Program(
        lambda: LinformerEncoder(64, 2, 8, tile=(1, 2, 2), num_prefix_tokens=1),
        lambda stack: stack(torch.randn(1, 1 + 7 * 7 * 7, 64), grid=(7, 7, 7)), (1, 344, 64)),
    "faces 48 x 48 as (B, H, W, D)": Program(
        lambda: LinformerEncoder(32, 2, 4, tile=(4, 4), attention_window=(8, 8)),
        lambda stack: stack(torch.randn(1, 48, 48, 32)), (1, 48, 48, 32)),
    "sign language poses: n 33, dropout 0.4": Program(
        lambda: LinformerEncoder(256, 2, 8, 33, projected_length=16, dropout=0.4).train(),
        lambda stack: stack(torch.randn(2, 33, 256)), (2, 33, 256)),
    "MEG: n 306, D 600, k 2048": Program(
        lambda: LinformerEncoder(600, 1, 6, 306, projected_length=2048),
        lambda stack: stack(torch.randn(1, 306, 600)), (1, 306, 600)),
    "light curves: src_key_padding_mask of nn.TransformerEncoder": Program(
        lambda: nn.TransformerEncoder(
            LinformerEncoderLayer(32, 4, 64, batch_first=True, tokens_per_slot=4), 2, enable_nested_tensor=False),
        lambda stack: stack(torch.randn(2, 200, 32), src_key_padding_mask=~padded(2, 200, [200, 120])), (2, 200, 32)),
    "multi-omics VAE: n 2,000, wants maps": Program(
        lambda: LinformerAttention(32, 4, max_length=2000, projected_length=64, projection="weighted_mean"),
        lambda layer: layer(torch.randn(1, 2000, 32), output_attentions=True)[1], (1, 4, 2000, 63)),
    "single cell: n 2,001, E per head": Program(
        lambda: LinformerAttention(32, 4, max_length=2001, projected_length=[16, 16, 32, 64],
                                   projection=Projection("linear", "none")),
        lambda layer: layer(torch.randn(1, 2001, 32)), (1, 2001, 32)),
    "spatial transcriptomics: any number of spots": Program(
        lambda: LinformerEncoder(32, 1, 4),
        lambda stack: torch.cat([stack(torch.randn(1, n, 32)) for n in (17, 301)], dim=1), (1, 318, 32)),
    "peptides: n 190, padded, now with a mask": Program(
        lambda: LinformerEncoder(32, 2, 4, 190),
        lambda stack: stack(torch.randn(2, 190, 32), padded(2, 190, [190, 77])), (2, 190, 32)),
    "finance: n 10 of at most 50": Program(
        lambda: LinformerEncoder(32, 2, 4, 50, projected_length=16),
        lambda stack: stack(torch.randn(4, 10, 32)), (4, 10, 32)),
    "temporal graphs: n is the batch, a learned E": Program(
        lambda: LinformerAttention(32, 4, max_length=200, projected_length=32, num_key_value_heads=1),
        lambda layer: layer(torch.randn(1, 173, 32)), (1, 173, 32)),
    "PDE operators: n 7,225": Program(
        lambda: LinformerAttention(32, 4, max_length=7225, projected_length=256, projection="mean"),
        lambda layer: layer(torch.randn(1, 7225, 32)), (1, 7225, 32)),
    "PDE operators: (B, H, W, D), 85 x 85": Program(
        lambda: LinformerAttention(32, 4, tile=(5, 5), projection="mean"),
        lambda layer: layer(torch.randn(1, 85, 85, 32)), (1, 85, 85, 32)),
    "physics-informed: a second gradient, in autocast": Program(
        lambda: LinformerAttention(16, 2, max_length=64, projected_length=8),
        lambda layer: second_gradient(layer, torch.randn(1, 64, 16)), (1, 64, 16)),
    "sets of dynamics: nn.MultiheadAttention": Program(
        lambda: LinformerMultiheadAttention(32, 4, batch_first=True),
        lambda layer: layer(x := torch.randn(2, 60, 32), x, x)[0], (2, 60, 32)),
    "particle jets: sequence first, one class query on n keys": Program(
        lambda: LinformerMultiheadAttention(32, 4),
        lambda layer: layer(torch.randn(1, 2, 32), k := torch.randn(128, 2, 32), k,
                            key_padding_mask=~padded(2, 128, [128, 40]))[0], (1, 2, 32)),
    "particle reconstruction: attention across, a mask of keys": Program(
        lambda: LinformerAttention(32, 4, max_length=900, projected_length=64),
        lambda layer: layer(torch.randn(2, 100, 32), context=torch.randn(2, 900, 32),
                            context_mask=padded(2, 900, [900, 333])), (2, 100, 32)),
    "video grounding: post-norm": Program(
        lambda: LinformerEncoder(32, 2, 4, 256, pre_norm=False, dropout=0.1),
        lambda stack: stack(torch.randn(2, 256, 32)), (2, 256, 32)),
    "audio codec: n 2,048, a mask": Program(
        lambda: LinformerEncoder(96, 1, 4, 2048, projected_length=128),
        lambda stack: stack(torch.randn(2, 2048, 96), padded(2, 2048, [2048, 1500])), (2, 2048, 96)),
    "U-Net bottleneck: 4 heads of 512": Program(
        lambda: LinformerEncoder(64, 1, 4, 256, projected_length=64, head_dim=512),
        lambda stack: stack(torch.randn(1, 64, 16, 16).flatten(2).mT).mT, (1, 64, 256)),
    "decision transformer: causal, padding on the left": Program(
        lambda: LinformerEncoder(32, 2, 4, 60, tokens_per_slot=3, attention_window=12, causal=True),
        lambda stack: stack(torch.randn(2, 60, 32), padded(2, 60, [60, 33]).flip(1)), (2, 60, 32)),
    "fields 128 x 128: attn(x, context)": Program(
        lambda: LinformerAttention(16, 2, max_length=16384, projected_length=64, projection="mean", context_size=8),
        lambda layer: layer(torch.randn(1, 400, 16), context=torch.randn(1, 16384, 8)), (1, 400, 16)),
    "ECG spectrogram 16 x 16": Program(
        lambda: nn.DataParallel(LinformerEncoder(32, 2, 4, 256, projected_length=64)),
        lambda stack: stack(torch.randn(2, 256, 32)), (2, 256, 32)),
}  # fmt: skip


def second_gradient(layer, x):
    x.requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        out = layer(x)
    first = torch.autograd.grad(out.float().square().sum(), x, create_graph=True)[0]
    return torch.autograd.grad(first.square().sum(), x, create_graph=True)[0]


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_calls_of_programs(program):
    module = program.make()
    out = program.call(module)
    assert out.shape == program.shape
    out.float().sum().backward()
    assert out.isfinite().all()
    assert all(x.grad is None or x.grad.isfinite().all() for x in module.parameters())


def test_vit_pytorchs_efficient_vit():
    stack = LinformerEncoder(128, 2, 8, 49 + 1, projected_length=64)
    model = ViT(dim=128, image_size=224, patch_size=32, num_classes=2, transformer=stack, channels=3)
    model(torch.randn(2, 3, 224, 224)).sum().backward()
    assert model.cls_token.grad.abs().max() > 0


class Attention(LinformerAttention):
    """In timm's call."""

    def forward(self, x, attn_mask=None, is_causal=False):
        return super().forward(x)


@pytest.mark.parametrize("grid", [False, True])
def test_timms_vision_transformer(grid):
    model = VisionTransformer(img_size=224, patch_size=16, embed_dim=48, depth=2, num_heads=3, num_classes=5)
    options = {"tile": (2, 2), "grid": (14, 14), "attention_window": (4, 4)} if grid else {"tokens_per_slot": 4}
    for block in model.blocks:
        block.attn = Attention(48, 3, projection="weighted_mean", num_prefix_tokens=1, **options)
    model(torch.randn(2, 3, 224, 224)).sum().backward()
    assert model.cls_token.grad.abs().max() > 0
