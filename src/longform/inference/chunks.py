"""Vectors of the chunks of a document that is read as a whole (late chunking): each is pooled from its tokens' states.

Axes: T tokens of a text, m chunks, D embedding size.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from longform.data.batching import TokenizedText, batches_of, windows
from longform.data.pieces import pieces
from longform.data.spans import Chunk, Spans, chunks_of
from longform.data.special_tokens import SpecialTokens, special_tokens
from longform.data.text import Document, Text, text_of, usable_texts
from longform.errors import ConfigurationError
from longform.inference.strategies import DEFAULT_BATCH_TOKENS

CONTEXT = 1 / 8  # of a stretch, on each side of its chunks, where a document is longer than the model


class StateEncoder(Protocol):
    """What is needed of an encoder: its model, and how a vector is made of the hidden states of some tokens."""

    @property
    def model(self) -> Any: ...
    @property
    def tokenizer(self) -> Any: ...
    @property
    def limit(self) -> int: ...
    @property
    def prompt(self) -> str: ...
    @property
    def whole(self) -> int: ...
    def pool(
        self, states: Tensor, inputs: dict[str, Tensor], layers: tuple[Tensor, ...] | None = None, *,
        prompted: bool = True,
    ) -> Tensor: ...  # fmt: skip
    def finished(self, vectors: np.ndarray) -> np.ndarray: ...


class ChunkVectors(NamedTuple):
    """``vectors`` float32 (m, D) and ``spans`` (m, 2): characters from-to of each chunk of a text."""

    vectors: np.ndarray
    spans: np.ndarray


class ChunkOutcome(NamedTuple):
    """What became of one text: ``vectors`` and ``spans`` of its chunks, and the tokens of each (m,)."""

    vectors: np.ndarray
    spans: np.ndarray
    tokens: np.ndarray


class _Tokens(NamedTuple):
    """A text's token ids, and the characters of each (T, 2); ``prompt``: ids of what stands before the text."""

    prompt: list[int]
    ids: list[int]
    offsets: np.ndarray


class _Stretch(NamedTuple):
    """Tokens ``first`` to ``end`` of a text, which are read together, and those of its chunks that are pooled there."""

    text: int
    first: int
    end: int
    chunks: list[int]


def encode_chunks(
    encoder: StateEncoder, texts: Text | Iterable[Text], *, chunk_tokens: int = 256, overlap: int = 0,
    boundaries: str | Sequence[Spans] = "tokens", max_tokens_per_batch: int = DEFAULT_BATCH_TOKENS, window: int = 512,
) -> Iterator[ChunkVectors]:  # fmt: skip
    """The chunks of each text in order, streamed; every chunk knows the whole text.

    A chunk has at most ``chunk_tokens`` tokens and shares ``overlap`` with the one before; it begins where
    ``boundaries`` allows ("tokens", "sentences", "paragraphs"), or is given: for each text the characters from-to of
    its chunks. Special tokens and a prompt count for the chunks at the text's ends, so that a text of one chunk has the
    vector of ``encode``; an empty text is one chunk. A text longer than the model is read in overlapping stretches, and
    a chunk pooled where at least an eighth of the model's length stands on both sides, if the text has it.

    Raises ConfigurationError for a chunk longer than the model and a tokenizer that does not tell characters,
    InputError for spans that are not in order.
    """
    how: Any = {"chunk_tokens": chunk_tokens, "overlap": overlap, "boundaries": boundaries, "window": window}
    for found in chunk_outcomes(encoder, texts, max_tokens_per_batch=max_tokens_per_batch, **how):
        yield ChunkVectors(found.vectors, found.spans)


def chunk_outcomes(
    encoder: StateEncoder, texts: Text | Iterable[Text], *, chunk_tokens: int, overlap: int = 0,
    boundaries: str | Sequence[Spans] = "tokens", max_tokens_per_batch: int = DEFAULT_BATCH_TOKENS, window: int = 512,
) -> Iterator[ChunkOutcome]:  # fmt: skip
    """What ``encode_chunks`` gives, and the tokens of each chunk."""
    tokenizer = encoder.tokenizer
    if not tokenizer.is_fast:
        raise ConfigurationError(
            f"{type(tokenizer).__name__} does not say which characters a token stands for; chunks need a fast tokenizer"
        )
    special = special_tokens(tokenizer)
    given = None if isinstance(boundaries, str) else iter(boundaries)
    for part in windows(usable_texts(texts), window=window, max_tokens_per_batch=max_tokens_per_batch):
        tokens = [_tokens(tokenizer, _single(text), encoder.prompt) for text in part]
        cut = [
            chunks_of(_single(text), each.offsets, size=chunk_tokens, overlap=overlap,
                      boundaries=boundaries if isinstance(boundaries, str) else next(given or iter(())))
            for text, each in zip(part, tokens, strict=True)
        ]  # fmt: skip
        stretches = [
            stretch for place, (each, chunks) in enumerate(zip(tokens, cut, strict=True))
            for stretch in _stretches(place, chunks, len(each.ids), encoder.limit - special.total - len(each.prompt))
        ]  # fmt: skip
        vectors = [np.empty((len(chunks), encoder.whole), np.float32) for chunks in cut]
        for place, number, vector in _pooled(encoder, special, tokens, cut, stretches, max_tokens_per_batch):
            vectors[place][number] = vector
        for own, chunks in zip(vectors, cut, strict=True):
            spans = np.array([(chunk.start, chunk.stop) for chunk in chunks], dtype=np.int64)
            counts = np.array([chunk.end - chunk.first for chunk in chunks], dtype=np.int64)
            yield ChunkOutcome(encoder.finished(own), spans, counts)


def chunk_texts(encoder: StateEncoder, text: str, size: int) -> list[str]:
    """The texts of the chunks that ``encode_chunks`` makes, to be read one by one."""
    return [
        text[each.start : each.stop]
        for each in chunks_of(text, _tokens(encoder.tokenizer, text, "").offsets, size=size)
    ]


def beginning(encoder: StateEncoder, text: str) -> str:
    """What the model takes of a text at once."""
    offsets = _tokens(encoder.tokenizer, text, "").offsets
    room = encoder.limit - special_tokens(encoder.tokenizer).total
    return text if len(offsets) <= room else text[: offsets[room - 1, 1]]


def _single(text: Text) -> str:
    if isinstance(text, tuple) and not (isinstance(text, Document) and text.pair is None):
        raise ConfigurationError("a pair of texts has no chunks: give single texts")
    return text_of(text)


def _tokens(tokenizer: Any, text: str, prompt: str) -> _Tokens:
    """Tokens of ``prompt`` and ``text`` together, parted where the text begins."""
    ids: list[int] = []
    found, at = [np.empty((0, 2), dtype=np.int64)], -len(prompt)
    for piece in pieces(prompt + text):
        encoded = tokenizer(
            piece, add_special_tokens=False, return_attention_mask=False, return_offsets_mapping=True, verbose=False
        )
        ids += encoded["input_ids"]
        found.append(np.array(encoded["offset_mapping"], dtype=np.int64).reshape(-1, 2) + at)
        at += len(piece)
    offsets = np.concatenate(found)
    before = int((offsets[:, 1] <= 0).cumprod().sum()) if prompt else 0
    return _Tokens(ids[:before], ids[before:], offsets[before:].clip(min=0))


def _stretches(text: int, chunks: Sequence[Chunk], length: int, room: int) -> Iterator[_Stretch]:
    """A text's tokens in stretches of at most ``room``: all at once, or as many whole chunks as leave room around."""
    if length <= room:
        yield _Stretch(text, 0, length, list(range(len(chunks))))
        return
    own = max(1, int(room * (1 - 2 * CONTEXT)))
    begun = 0
    while begun < len(chunks):
        first, end = chunks[begun].first, chunks[begun].end
        if end - first > room:
            raise ConfigurationError(
                f"a chunk has {end - first:,} tokens, the model takes {room:,} beside special ones: make it smaller"
            )
        after = begun + 1
        while after < len(chunks) and chunks[after].end - first <= own:
            after += 1
        end = chunks[after - 1].end
        left = max(0, min(first - (room - (end - first)) // 2, length - room))
        yield _Stretch(text, left, left + room, list(range(begun, after)))
        begun = after


def _pooled(
    encoder: StateEncoder, special: SpecialTokens, tokens: Sequence[_Tokens], cut: Sequence[Sequence[Chunk]],
    stretches: Sequence[_Stretch], max_tokens_per_batch: int,
) -> Iterator[tuple[int, int, np.ndarray]]:  # fmt: skip
    """The text, number and vector (D,) of every chunk, as they come."""
    read = [
        TokenizedText(special.around([*tokens[each.text].prompt, *tokens[each.text].ids[each.first : each.end]]))
        for each in stretches
    ]
    for batch in batches_of(read, encoder.tokenizer, max_tokens_per_batch):
        inputs = batch.model_inputs(encoder.model.device)
        with torch.inference_mode():
            found = encoder.model(**inputs)
            states, layers = found.last_hidden_state, found.get("hidden_states")
            for row, place in enumerate(batch.indices):
                stretch = stretches[place]
                for number in stretch.chunks:
                    here = (slice(row, row + 1), _within(stretch, tokens, cut[stretch.text][number], special))
                    own = {name: value[here] for name, value in inputs.items()}
                    above: tuple[Tensor, ...] | None = None if layers is None else tuple(each[here] for each in layers)
                    vector = encoder.pool(states[here], own, above, prompted=here[1].start == 0)
                    yield stretch.text, number, vector[0].float().cpu().numpy()


def _within(stretch: _Stretch, tokens: Sequence[_Tokens], chunk: Chunk, special: SpecialTokens) -> slice:
    """The places of a chunk in its stretch, where special tokens and the prompt stand around the text's."""
    lead = len(special.prefix) + len(tokens[stretch.text].prompt) - stretch.first
    tail = len(special.suffix) if chunk.end == len(tokens[stretch.text].ids) else 0
    return slice(lead + chunk.first if chunk.first else 0, lead + chunk.end + tail)
