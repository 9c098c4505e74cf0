"""Encoders from other packages: transformers' Reformer, Longformer, BigBird and Nyströmformer; performer-pytorch.

Each function gives the encoder, the width of what it returns, and the padded length that it needs for a batch.
"""

import warnings
from collections.abc import Callable
from math import ceil
from typing import Any, Self

import torch
import transformers
from torch import Tensor, nn
from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention
from transformers.models.nystromformer.modeling_nystromformer import NystromformerSelfAttention

from longform.errors import ConfigurationError, require
from longform_lab.speed.sizes import Sizes

Encoder = tuple[nn.Module, int, Callable[[int], int]]
BIGBIRD_RANDOM_BLOCKS = 3
BIGBIRD_LEAST_BLOCKS = 5 + 2 * BIGBIRD_RANDOM_BLOCKS + 1  # with fewer it turns to full attention, for good
NYSTROMFORMER_KERNEL = 35  # of the convolution over values, as in its Long Range Arena runs


def multiple(of: int, at_least: int = 1) -> Callable[[int], int]:
    """n -> the next multiple of ``of``, not less than ``at_least`` of them."""
    return lambda n: of * max(at_least, ceil(n / of))


def _shared(sizes: Sizes, *, positions: int) -> dict[str, Any]:
    """Options that BERT's relatives have in common."""
    return {
        "vocab_size": sizes.vocabulary,
        "hidden_size": sizes.hidden_size,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "intermediate_size": sizes.intermediate_size,
        "hidden_dropout_prob": sizes.dropout,
        "attention_probs_dropout_prob": sizes.attention_dropout,
        "max_position_embeddings": positions,
        "type_vocab_size": 1,
        "pad_token_id": 0,
        "hidden_act": "gelu",
        "initializer_range": sizes.initial_deviation,
        "bos_token_id": None,
        "eos_token_id": None,
        "sep_token_id": None,
    }


def _chunk(sizes: Sizes) -> int:
    return min(sizes.window, max(2, sizes.length // 4))


def reformer_length(sizes: Sizes) -> Callable[[int], int]:
    """n -> the length that Reformer needs: two chunks or more."""
    return multiple(_chunk(sizes), 2)


def reformer(sizes: Sizes) -> Encoder:
    """Locality-sensitive hashing in every layer; its two reversible streams make the output 2 D wide."""
    chunk, padded = _chunk(sizes), reformer_length(sizes)
    power = max(1, (2 * padded(sizes.length) // chunk).bit_length() - 1)
    limit = 2 * max(int((padded(sizes.length) // chunk) ** 0.5), chunk)  # above it factors, as Reformer's own rule is
    buckets = 2**power if 2**power <= limit else [2 ** (power // 2), 2 ** (power - power // 2)]
    config = transformers.ReformerConfig(
        vocab_size=sizes.vocabulary, hidden_size=sizes.hidden_size, attn_layers=["lsh"] * sizes.layers,
        num_attention_heads=sizes.heads, attention_head_size=sizes.hidden_size // sizes.heads,
        feed_forward_size=sizes.intermediate_size, hidden_act="gelu", hidden_dropout_prob=sizes.dropout,
        lsh_attention_probs_dropout_prob=sizes.attention_dropout, axial_pos_embds=False, eos_token_id=None,
        initializer_range=sizes.initial_deviation,
        max_position_embeddings=padded(sizes.length), lsh_attn_chunk_length=chunk, num_buckets=buckets,
        num_hashes=sizes.hashes, is_decoder=False, use_cache=False, pad_token_id=0,
    )  # fmt: skip
    return transformers.ReformerModel(config), 2 * sizes.hidden_size, padded


class _WithGlobalFirstToken(nn.Module):
    """Longformer whose first token sees, and is seen by, all: as its own classifier has it."""

    def __init__(self, config: transformers.LongformerConfig) -> None:
        super().__init__()
        self.model = transformers.LongformerModel(config, add_pooling_layer=False)

    def forward(self, attention_mask: Tensor, **inputs: Tensor) -> Tensor:
        """As LongformerModel; hidden states (B, n, D)."""
        first = torch.zeros_like(attention_mask)
        first[:, 0] = 1
        return self.model(attention_mask=attention_mask, global_attention_mask=first, **inputs).last_hidden_state


def longformer(sizes: Sizes) -> Encoder:
    """A window of ``sizes.window`` tokens on each side, one global token."""
    width = 2 * max(2, min(sizes.window, sizes.length // 2))  # its chunks are of 2 tokens or more
    padded = multiple(width)
    config = transformers.LongformerConfig(
        attention_window=[width] * sizes.layers, **_shared(sizes, positions=padded(sizes.length) + 1)
    )
    return _WithGlobalFirstToken(config), sizes.hidden_size, padded


class _SameBlocksAlways(transformers.BigBirdModel):
    """BigBird with the random blocks of its training also when it is measured; in float32.

    In evaluation transformers points all random blocks at the first one, another attention than the one that was
    learned. Its products do not go under bfloat16 autocast: two of them meet in one tensor with different dtypes.
    """

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        for module in self.modules():
            if isinstance(module, BigBirdBlockSparseAttention):  # nothing but the plan of blocks depends on it
                module.training = True
        return self

    def forward(self, inputs_embeds: Tensor | None = None, **inputs: Any) -> Any:
        embeds = None if inputs_embeds is None else inputs_embeds.float()
        with torch.autocast(self.device.type, enabled=False):
            return super().forward(inputs_embeds=embeds, **inputs)


def bigbird(sizes: Sizes) -> Encoder:
    """Window of three blocks, first and last block global, three random blocks."""
    padded = multiple(sizes.block, BIGBIRD_LEAST_BLOCKS)
    config = transformers.BigBirdConfig(
        attention_type="block_sparse",
        block_size=sizes.block,
        num_random_blocks=BIGBIRD_RANDOM_BLOCKS,
        use_cache=False,
        **_shared(sizes, positions=padded(sizes.length)),
    )
    return _SameBlocksAlways(config, add_pooling_layer=False), sizes.hidden_size, padded


class _WithMask(nn.Module):
    """Nyströmformer that masks as its authors' code does: queries, keys and values of padding are 0.

    transformers masks in one of the three softmaxes alone, with a mask that version 5 makes of (B, 1, n, n), which the
    landmarks cannot be added to; padding would count in landmarks and convolution.
    """

    def __init__(self, config: transformers.NystromformerConfig) -> None:
        super().__init__()
        self.model = transformers.NystromformerModel(config)
        self.valid: Tensor | None = None  # (B, n, 1) of the batch that passes through
        for module in self.model.modules():
            if isinstance(module, NystromformerSelfAttention):
                for layer in (module.query, module.key, module.value):
                    layer.register_forward_hook(lambda _layer, _inputs, output: output * self.valid)

    def forward(self, attention_mask: Tensor, **inputs: Tensor) -> Tensor:
        """As NystromformerModel; hidden states (B, n, D)."""
        self.valid = attention_mask[..., None]
        hidden = (1.0 - attention_mask.float())[:, None, None] * torch.finfo(torch.float32).min
        return self.model(attention_mask=hidden, **inputs).last_hidden_state


def nystromformer(sizes: Sizes) -> Encoder:
    """Landmarks are means of equal segments of the whole length, so that every batch is padded to it."""
    landmarks = min(sizes.landmarks, max(2, sizes.length // 2))
    whole = multiple(landmarks, 2)(sizes.length)
    config = transformers.NystromformerConfig(
        segment_means_seq_len=whole,
        num_landmarks=landmarks,
        conv_kernel_size=NYSTROMFORMER_KERNEL,
        **_shared(sizes, positions=whole),
    )
    return _WithMask(config), sizes.hidden_size, lambda n: whole


class _Performer(nn.Module):
    """performer-pytorch's encoder behind word and position vectors."""

    def __init__(self, sizes: Sizes, layers: nn.Module) -> None:
        super().__init__()
        self.words = nn.Embedding(sizes.vocabulary, sizes.hidden_size, padding_idx=0)
        self.positions = nn.Embedding(sizes.length, sizes.hidden_size)
        self.dropout = nn.Dropout(sizes.dropout)
        for table in (self.words, self.positions):
            nn.init.normal_(table.weight, std=sizes.initial_deviation)
        self.layers, self.norm = layers, nn.LayerNorm(sizes.hidden_size)

    def forward(
        self, attention_mask: Tensor, input_ids: Tensor | None = None, inputs_embeds: Tensor | None = None
    ) -> Tensor:
        """Hidden states (B, n, D)."""
        words = self.words(input_ids) if inputs_embeds is None else inputs_embeds
        vectors = self.dropout(words + self.positions.weight[: words.shape[1]])
        return self.norm(self.layers(vectors, mask=attention_mask.bool()))


def performer(sizes: Sizes) -> Encoder:
    """Positive orthogonal random features, redrawn every 1,000 steps."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it asks distutils for the version of torch
        package = require("performer_pytorch", extra="compare")
    multiple_of_width, rest = divmod(sizes.intermediate_size, sizes.hidden_size)
    if rest:
        raise ConfigurationError(
            f"Performer's intermediate_size ({sizes.intermediate_size}) must be a multiple of hidden_size "
            f"({sizes.hidden_size})"
        )
    layers = package.Performer(
        dim=sizes.hidden_size,
        depth=sizes.layers,
        heads=sizes.heads,
        dim_head=sizes.hidden_size // sizes.heads,
        nb_features=sizes.random_features,
        ff_mult=multiple_of_width,
        ff_dropout=sizes.dropout,
        attn_dropout=sizes.attention_dropout,
    )
    return _Performer(sizes, layers), sizes.hidden_size, lambda n: n
