"""Token, position and type embeddings, in BERT's and RoBERTa's geometry; and the positions that an encoder hands to the
attention of its layers: rotary angles, and a bias by distance.

Axes: B batch, n tokens, D features, h heads, r the distance from which on all are one.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from longform.errors import InputError
from longform.functional.execution import constant, has_values
from longform.functional.masks import unseen_lengths
from longform.functional.positions.distances import distance_buckets
from longform.functional.positions.rotary import Rotation, rotation_at
from longform.layers.streaming import OutputPart, assembled, can_run_in_parts, is_long, rows_of_each


class PositionEmbedding(nn.Embedding):
    """A position table, which a model may begin otherwise than its words."""

    def reset_parameters(self) -> None:
        """Draw it from N(0, 0.02²)."""
        nn.init.normal_(self.weight, std=0.02)


class Embeddings(nn.Module):
    """LayerNorm(words [+ positions] [+ token types]), then dropout.

    The position table has ``max_length`` + ``position_offset`` rows. Where it begins right after the row of the padding
    token's number (RoBERTa: number 1, offset 2), that row is the position of padding tokens, also inside a text, and
    the others are counted without them. ``has_positions`` False leaves the table out (rotary positions are the
    attention's), ``type_vocab_size`` 0 token types, and ``norm`` None the norm.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        embedding_size: int,
        max_length: int,
        position_offset: int,
        type_vocab_size: int,
        pad_token_id: int | None,
        norm: nn.Module | None,
        dropout: float,
        has_positions: bool = True,
    ) -> None:
        super().__init__()
        self.position_offset = position_offset
        self.uncounted = pad_token_id if pad_token_id is not None and position_offset == pad_token_id + 1 else None
        self.word_embeddings = nn.Embedding(vocab_size, embedding_size, padding_idx=pad_token_id)
        rows = max_length + position_offset
        self.position_embeddings = PositionEmbedding(rows, embedding_size) if has_positions else None
        self.token_type_embeddings = nn.Embedding(type_vocab_size, embedding_size) if type_vocab_size else None
        self.LayerNorm = norm
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        input_ids: Tensor | None = None,
        *,
        inputs_embeds: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
    ) -> Tensor:
        """input_ids long (B, n) or inputs_embeds (B, n, D) -> (B, n, D); position_ids count from 0."""
        inputs = input_ids if inputs_embeds is None else inputs_embeds
        assert inputs is not None
        batch, length = inputs.shape[:2]
        if position_ids is None:
            position_ids = self.positions(input_ids, length, inputs.device)
        elif self.position_embeddings is not None:
            self._check_rows("position_ids", position_ids, self.position_embeddings, self.position_offset)
        if token_type_ids is not None:  # zeros where there are no types
            self._check_rows("token_type_ids", token_type_ids, self.token_type_embeddings)
        elif self.token_type_embeddings is not None:
            token_type_ids = torch.zeros(batch, length, dtype=torch.long, device=inputs.device)
        if can_run_in_parts(self, inputs) and is_long(inputs):  # the length is asked last: it would tie a traced graph
            return assembled(self._parts(inputs, position_ids, token_type_ids), (batch, length))
        return self._embed(inputs, position_ids, token_type_ids)

    def positions(self, input_ids: Tensor | None, length: int, device: torch.device) -> Tensor:
        """From 0: (n), or (B, n) where padding tokens have the position -1."""
        if input_ids is None or self.uncounted is None:
            return torch.arange(length, device=device)
        counted = (input_ids != self.uncounted).long()
        return counted.cumsum(dim=1) * counted - 1

    def _parts(self, inputs: Tensor, position_ids: Tensor, token_type_ids: Tensor | None) -> Iterator[OutputPart]:
        rows = rows_of_each(inputs.shape[0])
        for start in range(0, inputs.shape[1], rows):
            tokens = slice(start, start + rows)
            kinds = None if token_type_ids is None else token_type_ids[:, tokens]
            yield (slice(None), tokens), self._embed(inputs[:, tokens], position_ids[..., tokens], kinds)

    def _embed(self, inputs: Tensor, position_ids: Tensor, token_type_ids: Tensor | None) -> Tensor:
        """Embeddings (B, c, D) of token numbers (B, c) or word vectors (B, c, D) at positions (B or none, c)."""
        words = inputs if inputs.dim() == 3 else self.word_embeddings(inputs)
        total = words
        if self.position_embeddings is not None:
            total = total + self.position_embeddings(position_ids + self.position_offset)
        if self.token_type_embeddings is not None:
            total = total + self.token_type_embeddings(token_type_ids)
        return self.dropout(total if self.LayerNorm is None else self.LayerNorm(total))

    def _check_rows(self, name: str, numbers: Tensor, table: nn.Embedding | None, offset: int = 0) -> None:
        """Raise InputError, in eager mode, for ``numbers`` (..., n) that, plus ``offset``, are no rows of ``table``."""
        if not has_values(numbers) or unseen_lengths() is not None or numbers.numel() == 0:
            return
        first, last = torch.stack(numbers.aminmax()).tolist()  # one wait for a GPU
        end = (1 if table is None else len(table.weight)) - offset
        if first < -offset or last >= end:
            raise InputError(f"{name} are from {first} to {last}; this model takes {-offset} to {end - 1}")


class RotaryPositions(nn.Module):
    """The angles of tokens, by ``frequencies``: radians a token for each pair of features that turns.

    The encoder owns it and hands what it gives to the attention of its layers (``rotation``). ``scaling``: a factor of
    all rotated features (YaRN's attention factor). There is nothing to learn and nothing to save.
    """

    def __init__(self, frequencies: tuple[float, ...], *, scaling: float = 1.0) -> None:
        super().__init__()
        self.frequencies, self.scaling = frequencies, scaling

    def forward(self, positions: Tensor) -> Rotation:
        """Angles of ``positions`` long (n), (1, n) or (B, n), counted from 0."""
        return rotation_at(positions, self.frequencies, self.scaling)


class RelativeAttentionBias(nn.Embedding):
    """A bias for each of ``num_buckets`` buckets of distances and each of ``num_heads`` heads, as in MPNet and T5.

    Distances of ``max_distance`` tokens and more have one bucket on each side. The encoder owns it, and hands what it
    gives to the attention of its layers (``distance_bias``).
    """

    def __init__(self, num_buckets: int, num_heads: int, *, max_distance: int) -> None:
        super().__init__(num_buckets, num_heads)
        self.buckets = distance_buckets(num_buckets, max_distance)

    def forward(self) -> Tensor:  # ty: ignore[incompatible-method-override]  which distances is known
        """The bias of the distances -r to r: (h, 2 r + 1)."""
        return super().forward(constant(self.buckets, self.weight.device)).T
