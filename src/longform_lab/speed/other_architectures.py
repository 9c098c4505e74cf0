"""Other encoders at the same width and depth: those for long documents, as in their papers, and an LSTM."""

from typing import Any

import torch
import transformers
from torch import Tensor, nn

from longform_lab.speed import encoders
from longform_lab.speed.competitor import VOCABULARY, Competitor, FromEmbeddings, common_settings
from longform_lab.speed.shapes import Shape
from longform_lab.speed.sizes import Sizes

LONGFORMER_WINDOW = 512
LANDMARKS = 64
BLOCK = 64  # tokens, of BigBird
LONGEST_FULL = (5 + 2 * 3) * BLOCK  # up to here it turns to full attention: window, global and 3 random blocks
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "sep_token_id": 2}


def _settings(shape: Shape, **special: Any) -> dict[str, Any]:
    return {**common_settings(shape), **SPECIAL, **special}


def longformer(shape: Shape) -> nn.Module:
    """A window of 512 tokens (256 on each side), no global tokens."""
    window = min(LONGFORMER_WINDOW, shape.length + shape.length % 2)
    config = transformers.LongformerConfig(
        **_settings(shape, attention_window=window, max_position_embeddings=shape.length + window + 1)
    )
    return FromEmbeddings(transformers.LongformerModel(config, add_pooling_layer=False))


def big_bird(shape: Shape) -> nn.Module:
    """Blocks of 64, 3 random ones; on texts of 704 tokens or less the model itself changes to full attention."""
    return FromEmbeddings(
        transformers.BigBirdModel(transformers.BigBirdConfig(**_settings(shape)), add_pooling_layer=False)
    )


def _whole_blocks(shape: Shape) -> str:
    even = shape.length <= LONGEST_FULL or shape.length % BLOCK == 0
    return "" if even else f"above {LONGEST_FULL} tokens its texts are of whole blocks of {BLOCK}"


def _whole_segments(shape: Shape) -> str:
    even = shape.length % min(LANDMARKS, shape.length) == 0
    return "" if even else f"its {LANDMARKS} landmarks are means of segments of one length: n is a multiple of them"


def nystromformer(shape: Shape) -> nn.Module:
    """64 landmarks and a depthwise convolution of 65."""
    landmarks = min(LANDMARKS, shape.length)
    config = transformers.NystromformerConfig(
        **_settings(shape, num_landmarks=landmarks, segment_means_seq_len=shape.length), conv_kernel_size=65
    )
    return FromEmbeddings(transformers.NystromformerModel(config))


def modern_bert(shape: Shape) -> nn.Module:
    """Full attention in every third layer, a window of 128 in the others; its gated feed-forward is 1.5 D wide."""
    wide = shape.size.hidden * 3 // 2
    settings = _settings(shape, intermediate_size=wide, cls_token_id=1, attn_implementation="sdpa")
    return FromEmbeddings(transformers.ModernBertModel(transformers.ModernBertConfig(**settings)))


class _OneStream(nn.Module):
    """Reformer, whose output is two streams of D features, as their mean."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = FromEmbeddings(model)

    def forward(self, hidden: Tensor) -> Tensor:
        """hidden (B, n, D) -> (B, n, D)."""
        return self.model(hidden).unflatten(2, (2, -1)).mean(2)


class _Recurrent(nn.Module):
    """As many LSTM layers, both directions, D features in all."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        size = shape.size
        self.layers = nn.LSTM(size.hidden, size.hidden // 2, size.layers, batch_first=True, bidirectional=True)

    def forward(self, hidden: Tensor) -> Tensor:
        """hidden (B, n, D) -> (B, n, D)."""
        return self.layers(hidden)[0]


class _Performer(nn.Module):
    """performer-pytorch's encoder."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.encoder = encoders.performer(_sizes(shape))[0]

    def forward(self, hidden: Tensor) -> Tensor:
        """hidden (B, n, D) -> (B, n, D)."""
        mask = torch.ones(hidden.shape[:2], dtype=torch.bool, device=hidden.device)
        return self.encoder(inputs_embeds=hidden, attention_mask=mask)


def _sizes(shape: Shape) -> Sizes:
    """Sizes of ``longform compare`` for this shape, without dropout."""
    size = shape.size
    return Sizes(
        length=shape.length,
        vocabulary=VOCABULARY,
        labels=2,
        hidden_size=size.hidden,
        layers=size.layers,
        heads=size.heads,
        intermediate_size=size.intermediate,
        dropout=0.0,
        projected_length=shape.slots,
    )


def _whole_chunks(shape: Shape) -> str:
    even = encoders.reformer_length(_sizes(shape))(shape.length) == shape.length
    return "" if even else "its texts are of whole chunks of 64 tokens, or a quarter of the text"


COMPETITORS = (
    Competitor(name="longformer", label="Longformer", family="sparse", build=longformer),
    Competitor(name="bigbird", label="BigBird", family="sparse", build=big_bird, refuses=_whole_blocks),
    Competitor(
        name="nystromformer",
        label="Nyströmformer",
        family="sparse",
        build=nystromformer,
        refuses=_whole_segments,
        autocast=True,
    ),
    Competitor(name="modernbert", label="ModernBERT", family="sparse", build=modern_bert),
    Competitor(
        name="reformer",
        label="Reformer (LSH)",
        family="sparse",
        build=lambda shape: _OneStream(encoders.reformer(_sizes(shape))[0]),
        refuses=_whole_chunks,
        autocast=True,
    ),
    Competitor(
        name="performer",
        label="Performer",
        family="sparse",
        build=_Performer,
        packages=("performer_pytorch",),
        extra="compare",
        autocast=True,
    ),
    Competitor(name="recurrent", label="recurrent (LSTM, both directions)", family="sparse", build=_Recurrent),
)
