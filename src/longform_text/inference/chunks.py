"""Vectors of the chunks of a document that is read as a whole (late chunking): each is pooled from its tokens' states.

Axes: T tokens of a text, m chunks, D embedding size.
"""

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from longform.errors import ConfigurationError, DataError, InputError
from longform.pretrained.tokenizers import SpecialTokens, pieces, special_tokens
from longform_text.data.batching import TokenizedText, batches_of, windows
from longform_text.data.given import InMemory
from longform_text.data.spans import Chunk, Spans, chunks_of, spans_of_each
from longform_text.data.text import Document, Text, clean_text, is_one, read_documents, usable_texts
from longform_text.inference.settings import DEFAULT_BATCH_TOKENS

CONTEXT = 1 / 8  # of a stretch, on each side of its chunks, where a document is longer than the model


StateEncoder = Any  # an Encoder, whose file imports this one


class ChunkVectors(NamedTuple):
    """``vectors`` float32 (m, D) and ``spans`` (m, 2): characters from-to of each chunk of a text."""

    vectors: np.ndarray
    spans: np.ndarray


class ChunkOutcome(NamedTuple):
    """Result for one text: ``vectors`` and ``spans`` of its chunks, and the tokens of each (m,)."""

    vectors: np.ndarray
    spans: np.ndarray
    tokens: np.ndarray


class _Tokens(NamedTuple):
    """A text's token ids, and the characters of each (T, 2); ``prompt``: ids of what stands before the text.

    ``title``: tokens from-to of the prompt that are a title; none where both are equal.
    """

    prompt: list[int]
    title: slice
    ids: list[int]
    offsets: np.ndarray


class Reading(NamedTuple):
    """A run of a text's tokens that the model reads together, and where in it the chunks are that are pooled there.

    ``tokens``: with special ones and the prompt. ``places``: of each chunk by its number.
    """

    tokens: TokenizedText
    places: dict[int, slice]


TITLE = -1  # number of a title's vector beside those of chunks, behind which it stands


class ChunkPlan(NamedTuple):
    """How a text is read: ``spans`` (m, 2), characters from-to, and ``tokens`` (m,) of its chunks.

    ``titled``: the readings have a vector of the title too.
    """

    readings: list[Reading]
    spans: np.ndarray
    tokens: np.ndarray
    titled: bool = False

    def no_vectors(self, width: int) -> np.ndarray:
        """Float32 (m, width), with one more row for a title, to be filled."""
        return np.empty((len(self.spans) + self.titled, width), np.float32)

    def finished(self, encoder: StateEncoder, vectors: np.ndarray, document_weight: float) -> np.ndarray:
        """Vectors (m, D) of the chunks, to each of which their mean and the title's vector are added, normalised and
        shortened as ``encoder`` has them; what is added has length 1 where vectors are normalised.
        """
        if document_weight or self.titled:
            vectors = replace(encoder, dimensions=None).finished(vectors)
            chunks, titles = vectors[: len(self.spans)], vectors[len(self.spans) :]
            share = document_weight / (1 + document_weight)
            vectors = (1 - share) * chunks + share * chunks.mean(axis=0)
            if self.titled:
                vectors = (vectors + (1 - share) * titles) / (2 - share)
        return encoder.finished(vectors)


def encode_chunks(
    encoder: StateEncoder,
    texts: Any,
    *,
    text_field: str = "text",
    chunk_tokens: int = 256,
    overlap: int = 0,
    boundaries: Any = "tokens",
    max_tokens_per_batch: int = DEFAULT_BATCH_TOKENS,
    window: int = 512,
    alone: bool = False,
    document_weight: float = 0.0,
    title_field: str | None = None,
) -> Iterator[ChunkVectors]:
    """The chunks of each text in order, streamed; every chunk knows the whole text, unless each is read ``alone``.

    ``texts``: whatever holds texts (``data.given``), their field is that of rows and tables.
    A chunk has at most ``chunk_tokens`` tokens and shares ``overlap`` with the one before; it begins where
    ``boundaries`` allows ("tokens", "sentences", "paragraphs"), or is given: for each text the characters from-to of
    its chunks (m, 2), a list, an array or a tensor; of one text they may stand alone. Special tokens and a prompt count
    for the chunks at the text's ends, so that a text of one chunk has the vector of ``encode``; an empty text is one
    chunk. A text longer than the model is read in overlapping stretches, and a chunk pooled where at least an eighth of
    the model's length stands on both sides, if the text has it. ``alone``: special tokens and the prompt are around
    every chunk, which is smaller where the model would not take it with them.

    ``document_weight``: weight, beside each chunk's own vector, of the mean of all chunks of its text.
    ``title_field``: field of Documents whose value is read in front of the text, and whose vector is added to each
    chunk's (of ``alone`` ones it is part anyway); of a plain text file, which has no fields, it is the name.

    Raises ConfigurationError for a chunk longer than the model, a tokenizer that does not tell characters and a weight
    that cannot be, InputError for spans that are not in order, and for those of more or fewer texts, DataError for a
    Document without the field.
    """
    how: Any = {"chunk_tokens": chunk_tokens, "overlap": overlap, "boundaries": boundaries, "window": window}
    how |= {"alone": alone, "document_weight": document_weight, "title_field": title_field, "one": is_one(texts)}
    if title_field is None or is_one(texts):
        usable: Iterator[Text] = usable_texts(texts, text_field=text_field)
    else:
        usable = read_documents(InMemory(texts), text_field=text_field)
    for found in chunk_outcomes(encoder, usable, max_tokens_per_batch=max_tokens_per_batch, **how):
        yield ChunkVectors(found.vectors, found.spans)


def chunk_outcomes(
    encoder: StateEncoder,
    texts: Iterable[Text],
    *,
    chunk_tokens: int,
    overlap: int = 0,
    boundaries: Any = "tokens",
    max_tokens_per_batch: int = DEFAULT_BATCH_TOKENS,
    window: int = 512,
    alone: bool = False,
    document_weight: float = 0.0,
    title_field: str | None = None,
    one: bool = False,
) -> Iterator[ChunkOutcome]:
    """Chunks as ``encode_chunks`` gives them, and the tokens of each, of texts that are clean already, as
    ``usable_texts`` and ``read_documents`` give them. ``one``: ``boundaries`` may be those of a single text.
    """
    check_weight(document_weight)
    special, given = tokens_around(encoder), deque[Spans]()
    if not isinstance(boundaries, str):
        texts = _with_spans(texts, spans_of_each(boundaries, one=one), given)
    for part in windows(texts, window=window, max_tokens_per_batch=max_tokens_per_batch):
        plans = [
            chunk_plan(
                encoder,
                special,
                _single(text),
                title=title_of(text, title_field),
                chunk_tokens=chunk_tokens,
                overlap=overlap,
                alone=alone,
                boundaries=given.popleft() if given else boundaries,
            )
            for text in part
        ]
        vectors = [plan.no_vectors(encoder.whole) for plan in plans]
        for place, number, vector in pooled(encoder, plans, max_tokens_per_batch):
            vectors[place][number] = vector
        for own, plan in zip(vectors, plans, strict=True):
            yield ChunkOutcome(plan.finished(encoder, own, document_weight), plan.spans, plan.tokens)


def check_weight(document_weight: float) -> None:
    """Raise ConfigurationError for a weight that is negative, infinite or NaN."""
    if not 0 <= document_weight < math.inf:
        raise ConfigurationError(f"document_weight is {document_weight}; it is 0 or more, and finite")


def title_of(text: Text, field: str | None) -> str:
    """The title of a Document: its ``field``, of plain text the name of its file; "" where no field is named.

    Raises DataError for what has no such field.
    """
    if field is None:
        return ""
    if not isinstance(text, Document):
        raise DataError(f'a text has no field "{field}": give rows, a table or Documents that have it')
    title = text.fields.get(field, None if text.fields else Path(text.id).stem)
    if not isinstance(title, str):
        there = ", ".join(map(str, text.fields))
        raise DataError(f'document {text.id}: no title in the field "{field}"; the fields there are: {there}')
    return clean_text(title.strip())[0]


def tokens_around(encoder: StateEncoder) -> SpecialTokens:
    """The special tokens around a text; raises ConfigurationError for a tokenizer that does not tell characters."""
    if not encoder.tokenizer.is_fast:
        raise ConfigurationError(
            f"{type(encoder.tokenizer).__name__} does not say which characters a token stands for; chunks need a fast "
            "tokenizer"
        )
    return special_tokens(encoder.tokenizer)


def chunk_plan(
    encoder: StateEncoder,
    special: SpecialTokens,
    text: str,
    *,
    title: str = "",
    chunk_tokens: int,
    overlap: int = 0,
    boundaries: str | Spans = "tokens",
    alone: bool = False,
) -> ChunkPlan:
    """How the chunks of a text are read; what is given and raised is as for ``encode_chunks``."""
    tokens = _tokens(encoder.tokenizer, text, encoder.prompt, f"{title}. " if title else "")
    room = encoder.limit - special.total - len(tokens.prompt)
    size = min(chunk_tokens, room) if alone else chunk_tokens
    chunks = chunks_of(text, tokens.offsets, size=size, overlap=overlap, boundaries=boundaries)
    longest = max((chunk.end - chunk.first for chunk in chunks), default=0)
    if longest > room:
        raise ConfigurationError(
            f"a chunk has {longest:,} tokens, the model takes {room:,} beside special ones: make it smaller"
        )
    stretches = _single_chunks(chunks) if alone else _stretches(chunks, len(tokens.ids), room)
    readings = [_reading(stretch, tokens, chunks, special) for stretch in stretches]
    titled = tokens.title.start < tokens.title.stop and not alone
    if titled:
        before = len(special.prefix)
        readings[0].places[TITLE] = slice(before + tokens.title.start, before + tokens.title.stop)
    spans = np.array([(chunk.start, chunk.stop) for chunk in chunks], dtype=np.int64)
    counts = np.array([chunk.end - chunk.first for chunk in chunks], dtype=np.int64)
    return ChunkPlan(readings, spans, counts, titled)


def chunk_vectors(
    encoder: StateEncoder,
    reading: Reading,
    states: Tensor,
    inputs: dict[str, Tensor],
    layers: tuple[Tensor, ...] | None = None,
) -> Iterator[tuple[int, np.ndarray]]:
    """Number and vector (D,), not finished, of each chunk and title of a reading.

    ``states`` (1, n, hidden): its last ones.
    """
    for number, place in reading.places.items():
        here = (slice(None), place)
        own = {name: value[here] for name, value in inputs.items()}
        above: tuple[Tensor, ...] | None = None if layers is None else tuple(each[here] for each in layers)
        vector = encoder.pool(states[here], own, above, prompted=place.start == 0)
        yield number, vector[0].float().cpu().numpy()


def beginning(encoder: StateEncoder, text: str) -> str:
    """Beginning of a text that the model takes at once, beside special tokens and the prompt."""
    tokens = _tokens(encoder.tokenizer, text, encoder.prompt, "")
    room = encoder.limit - special_tokens(encoder.tokenizer).total - len(tokens.prompt)
    return text if len(tokens.ids) <= room else text[: tokens.offsets[room - 1, 1]]


def _with_spans(texts: Iterable[Text], spans: Iterable[Spans], waiting: deque[Spans]) -> Iterator[Text]:
    """The texts, the spans of each of which are ``waiting`` then. Raises InputError for another number of spans."""
    for number, (text, own) in enumerate(zip_longest(texts, spans)):
        if text is None or own is None:
            said = f"{number}, and there are more texts" if own is None else f"more than the {number} that there are"
            raise InputError(f"boundaries has the spans of as many texts as {said}: give those of each text")
        waiting.append(own)
        yield text


def _single(text: Text) -> str:
    if isinstance(text, tuple) and not (isinstance(text, Document) and text.pair is None):
        raise ConfigurationError("a pair of texts has no chunks: give single texts")
    return text.text if isinstance(text, Document) else text


def _tokens(tokenizer: Any, text: str, prompt: str, title: str) -> _Tokens:
    """Tokens of ``prompt``, ``title`` and ``text`` together, parted where the title and the text begin."""
    ids: list[int] = []
    found, at = [np.empty((0, 2), dtype=np.int64)], -len(prompt + title)
    for piece in pieces(prompt + title + text):
        encoded = tokenizer(
            piece, add_special_tokens=False, return_attention_mask=False, return_offsets_mapping=True, verbose=False
        )
        ids += encoded["input_ids"]
        found.append(np.array(encoded["offset_mapping"], dtype=np.int64).reshape(-1, 2) + at)
        at += len(piece)
    offsets = np.concatenate(found)
    titled, before = (int((offsets[:, 1] <= end).cumprod().sum()) for end in (-len(title), 0))
    titled, before = (titled if prompt else 0), (before if prompt or title else 0)
    return _Tokens(ids[:before], slice(titled, before), ids[before:], offsets[before:].clip(min=0))


class _Stretch(NamedTuple):
    """Tokens ``first`` to ``end`` of a text, which are read together, and those of its chunks that are pooled there."""

    first: int
    end: int
    chunks: list[int]


def _stretches(chunks: Sequence[Chunk], length: int, room: int) -> Iterator[_Stretch]:
    """A text's tokens in stretches of at most ``room``: all at once, or as many whole chunks as leave room around."""
    if length <= room:
        yield _Stretch(0, length, list(range(len(chunks))))
        return
    own = max(1, int(room * (1 - 2 * CONTEXT)))
    begun = 0
    while begun < len(chunks):
        first, end = chunks[begun].first, chunks[begun].end
        after = begun + 1
        while after < len(chunks) and chunks[after].end - first <= own:
            after += 1
        end = chunks[after - 1].end
        left = max(0, min(first - (room - (end - first)) // 2, length - room))
        yield _Stretch(left, left + room, list(range(begun, after)))
        begun = after


def _single_chunks(chunks: Sequence[Chunk]) -> Iterator[_Stretch]:
    """A stretch a chunk."""
    return (_Stretch(chunk.first, chunk.end, [number]) for number, chunk in enumerate(chunks))


def _reading(stretch: _Stretch, tokens: _Tokens, chunks: Sequence[Chunk], special: SpecialTokens) -> Reading:
    """A stretch with what stands around it."""
    ids = special.around([*tokens.prompt, *tokens.ids[stretch.first : stretch.end]])
    lead = len(special.prefix) + len(tokens.prompt) - stretch.first
    places = {}
    for number in stretch.chunks:
        chunk = chunks[number]
        alone = (chunk.first, chunk.end) == (stretch.first, stretch.end)
        tail = len(special.suffix) if alone or chunk.end == len(tokens.ids) else 0
        places[number] = slice(0 if alone or not chunk.first else lead + chunk.first, lead + chunk.end + tail)
    return Reading(TokenizedText(ids), places)


def pooled(
    encoder: StateEncoder, plans: Sequence[ChunkPlan], max_tokens_per_batch: int = DEFAULT_BATCH_TOKENS
) -> Iterator[tuple[int, int, np.ndarray]]:
    """The text, number and vector (D,) of every chunk, as they come."""
    read = [(place, reading) for place, plan in enumerate(plans) for reading in plan.readings]
    for batch in batches_of([reading.tokens for _, reading in read], encoder.tokenizer, max_tokens_per_batch):
        inputs = batch.model_inputs(encoder.model.device)
        with torch.inference_mode():
            found = encoder.model(**inputs)
            states, layers = found.last_hidden_state, found.get("hidden_states")
            for row, index in enumerate(batch.indices):
                (place, reading), at = read[index], slice(row, row + 1)
                own = {name: value[at] for name, value in inputs.items()}
                above = None if layers is None else tuple(each[at] for each in layers)
                for number, vector in chunk_vectors(encoder, reading, states[at], own, above):
                    yield place, number, vector
