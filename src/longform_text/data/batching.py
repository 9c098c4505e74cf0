"""Token batches of similar length, made of a stream of documents; what is cut is counted.

Axes: B texts in a batch, n tokens (padded on the right to the longest text of the batch).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from longform.errors import ConfigurationError, DataError
from longform.pretrained.tokenizers import PIECE, ids_at_once, ids_in_pieces, pieces, special_runs
from longform_text.data.text import Document, Text

CHARACTERS_A_TOKEN = 4  # roughly, in English
ALIKE = 0.9  # a text shorter than this share of a batch's longest begins a batch of its own,
ENOUGH = 1024  # where that one has so many tokens, or an eighth of the room
AFTER = 256  # tokens that follow those that are kept: what is cut within a word changes those near the cut


class Batch(NamedTuple):
    """``indices``: places of the texts in the stream, from 0. ``input_ids``, ``attention_mask``: long (B, n).

    ``tokens``: tokens kept of each text, special ones included; ``truncated``: tokens cut off each text (0: whole).
    ``token_type_ids``: long (B, n) where the tokenizer gives them, else None.
    """

    indices: list[int]
    input_ids: Tensor
    attention_mask: Tensor
    tokens: list[int]
    truncated: list[int]
    token_type_ids: Tensor | None = None

    def model_inputs(self, device: torch.device | str = "cpu") -> dict[str, Tensor]:
        """Keyword arguments of a Hugging Face model, on its device."""
        names = ("input_ids", "attention_mask", "token_type_ids")
        return {name: value.to(device) for name in names if (value := getattr(self, name)) is not None}


class TokenizedText(NamedTuple):
    """One text's ids; ``truncated`` counts the tokens that were cut off it, 1 or more where a part was not read."""

    input_ids: list[int]
    token_type_ids: list[int] | None = None
    truncated: int = 0


def tokenized_batches(
    texts: Iterable[Text],
    tokenizer: Any,
    *,
    max_length: int | None,
    max_tokens_per_batch: int,
    on_long: str = "truncate",
    window: int = 512,
) -> Iterator[Batch]:
    """Batches of at most ``max_tokens_per_batch`` padded tokens (B * n; one text may be longer, and goes alone).

    ``texts`` are strings, pairs of strings, or Documents. ``window`` texts at a time (fewer long ones) are tokenised,
    sorted by length, longest first, and grouped; memory does not grow with the number of texts. ``max_length`` is in
    tokens, special ones included; None: no limit. Raises DataError for a longer text under ``on_long="error"``.
    """
    if on_long not in ("truncate", "error"):
        raise ConfigurationError(f'on_long is "{on_long}"; it is "truncate" or "error"')
    if max_tokens_per_batch < 1 or window < 1 or (max_length is not None and max_length < 1):
        raise ConfigurationError(
            f"max_length ({max_length}), max_tokens_per_batch ({max_tokens_per_batch}) and window ({window}) "
            "are at least 1"
        )
    first = 0
    for part in windows(texts, window=window, max_tokens_per_batch=max_tokens_per_batch):
        tokenized = tokenize(part, tokenizer, max_length=max_length)
        if on_long == "error":
            _refuse_long(part, tokenized, first=first, max_length=max_length)
        yield from batches_of(tokenized, tokenizer, max_tokens_per_batch, first=first)
        first += len(part)


def windows(texts: Iterable[Text], *, window: int, max_tokens_per_batch: int) -> Iterator[list[Text]]:
    """Lists of ``window`` texts, or of fewer when their characters are enough for about 16 full batches."""
    enough = 16 * CHARACTERS_A_TOKEN * max_tokens_per_batch
    part, characters = [], 0
    for text in texts:
        part.append(text)
        characters += sum(len(each) for each in _text_and_pair(text) if each is not None)
        if len(part) == window or characters >= enough:
            yield part
            part, characters = [], 0
    if part:
        yield part


def _cut_long(found: list[TokenizedText], begun: list[list[Any]], tokenizer: Any, max_length: int) -> None:
    """Cut the texts of ``found`` that are longer than ``max_length`` tokens, in place."""
    long = [place for place, ids in enumerate(found) if len(ids.input_ids) > max_length]
    cut = _cut([begun[place] for place in long], [found[place] for place in long], tokenizer, max_length)
    for place, ids in zip(long, cut, strict=True):
        found[place] = ids


def tokenize(texts: Sequence[Text], tokenizer: Any, *, max_length: int | None) -> list[TokenizedText]:
    """Token ids of each text, special tokens included, cut to ``max_length`` (of a pair the longer side is cut).

    Only the beginning of a long text is tokenised at once; what follows is counted in pieces. It is cut here, and not
    by the tokenizer: that would be a setting of it, which other threads would have too.
    """
    pairs = [_text_and_pair(text) for text in texts]
    begun = [[_beginning(side, tokenizer, max_length) for side in pair] for pair in pairs]
    found = _call(tokenizer, [(first.text, second.text) for first, second in begun])
    if max_length is not None:
        _cut_long(found, begun, tokenizer, max_length)
    for place, text in enumerate(texts):
        if isinstance(text, Document) and text.unread:
            found[place] = found[place]._replace(truncated=max(1, found[place].truncated))
    return found


class _Beginning(NamedTuple):
    text: Any  # str, or None for the second of no pair
    tokens_after: int


def _beginning(text: str | None, tokenizer: Any, tokens: int | None) -> _Beginning:
    """Beginning of a text that is enough for its first ``tokens``, and how many tokens follow that."""
    if text is None or tokens is None or len(text) <= PIECE:
        return _Beginning(text, 0)
    end = enough(text, tokenizer, tokens)
    return _Beginning(text[:end], sum(map(len, ids_in_pieces(tokenizer, text, start=end))))


def _cut(
    begun: Sequence[Sequence[_Beginning]], found: Sequence[TokenizedText], tokenizer: Any, max_length: int
) -> Iterator[TokenizedText]:
    """Each of ``found`` without the last tokens of its text, or of the longer one of its pair, special ones kept."""
    if not found:
        return
    pairs = begun[0][1].text is not None
    start, *between, end = map(len, special_runs(tokenizer, texts=1 + pairs))
    room = max_length - start - sum(between) - end
    if room < 0:
        raise ConfigurationError(
            f"max_length={max_length} is less than the special tokens of a text: {max_length - room}"
        )
    for (first, second), ids in zip(begun, found, strict=True):
        one = len(ids_at_once(tokenizer, first.text)) if pairs else 0
        other = len(ids.input_ids) - max_length + room - one
        least = min(one, other, room // 2)
        kept = (room - least, least) if one > other else (least, room - least)
        spans = slice(start + kept[0]), slice(start + one, start + one + sum(between) + kept[1])
        rows = [
            row and [*row[spans[0]], *row[spans[1]], *row[len(row) - end :]]
            for row in (ids.input_ids, ids.token_type_ids)
        ]
        beyond = len(ids.input_ids) - max_length + first.tokens_after + second.tokens_after
        yield TokenizedText(rows[0] or [], rows[1], beyond)


def enough(text: str, tokenizer: Any, tokens: int) -> int:
    """How many characters of ``text``, whole pieces of it, give its first ``tokens`` whatever follows them.

    No number of characters a token is right for every text (white space, what normalisation removes, one unknown word
    of any length), so pieces are taken until they have the tokens and AFTER more, where one is cut within a word.
    """
    found = end = 0
    for piece in pieces(text):
        if found > tokens + AFTER:
            break
        found += len(ids_at_once(tokenizer, piece))
        end += len(piece)
    return end


def _call(tokenizer: Any, pairs: list[tuple[str, str | None]]) -> list[TokenizedText]:
    first, second = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    paired = [text for text in second if text is not None]
    if paired and len(paired) < len(pairs):
        raise DataError(f"{len(paired)} of {len(pairs)} texts are pairs: either all are, or none")
    encoded = tokenizer(first, paired or None, padding=False, verbose=False)
    types = encoded.get("token_type_ids") or [None] * len(pairs)
    return [TokenizedText(ids, kinds, 0) for ids, kinds in zip(encoded["input_ids"], types, strict=True)]


def _text_and_pair(text: Text) -> tuple[str, str | None]:
    if isinstance(text, str):
        return text, None
    return (text.text, text.pair) if isinstance(text, Document) else text


def _refuse_long(texts: Sequence[Any], tokenized: list[TokenizedText], *, first: int, max_length: int | None) -> None:
    for place, (text, result) in enumerate(zip(texts, tokenized, strict=True)):
        if result.truncated:
            name = text.id if isinstance(text, Document) else f"number {first + place}"
            unread = text.unread if isinstance(text, Document) else 0
            raise DataError(
                f"document {name} has {len(result.input_ids) + result.truncated:,} tokens"
                f"{f' or more ({unread:,} characters were not read)' if unread else ''}, the limit is "
                f'{max_length:,}: choose on_long="truncate" (--on-long truncate) to cut it, or a longer model'
            )


def group_by_length(lengths: Sequence[int], max_tokens_per_batch: int) -> Iterator[list[int]]:
    """Places of ``lengths`` in groups, longest first, each of at most ``max_tokens_per_batch`` padded tokens.

    A group with tokens enough ends where the next text is much shorter, so that little is padding.
    """
    enough = max(ENOUGH, max_tokens_per_batch // 8)
    order = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    group: list[int] = []
    for place in order:
        longest = lengths[group[0]] if group else 0
        full = (len(group) + 1) * longest > max_tokens_per_batch
        if group and (full or (lengths[place] < ALIKE * longest and len(group) * longest >= enough)):
            yield group
            group = []
        group.append(place)
    if group:
        yield group


def batches_of(
    texts: Sequence[TokenizedText], tokenizer: Any, max_tokens_per_batch: int, *, first: int = 0
) -> Iterator[Batch]:
    """Texts grouped by length, so that little of a batch is padding; the first of them has the index ``first``."""
    for places in group_by_length([len(text.input_ids) for text in texts], max_tokens_per_batch):
        yield collate(places, [texts[place] for place in places], tokenizer, first=first)


def collate(places: Sequence[int], texts: Sequence[TokenizedText], tokenizer: Any, *, first: int = 0) -> Batch:
    """Pad ``texts`` on the right into a Batch whose indices are ``first`` + ``places``; no text at all is one pad."""
    input_ids, attention_mask = padded([text.input_ids for text in texts], value=tokenizer.pad_token_id or 0)
    types = [text.token_type_ids for text in texts if text.token_type_ids is not None]
    return Batch(
        [first + place for place in places],
        input_ids,
        attention_mask,
        [len(text.input_ids) for text in texts],
        [text.truncated for text in texts],
        padded(types)[0] if len(types) == len(texts) else None,
    )


def padded(
    rows: Sequence[Any], *, value: int = 0, length: int = 1, dtype: torch.dtype = torch.long
) -> tuple[Tensor, Tensor]:
    """Rows (n, ...) side by side, (B, n, ...): filled on the right to the longest, or ``length``; mask long (B, n)."""
    tensors = [torch.as_tensor(row, dtype=dtype) for row in rows]
    lengths = torch.tensor([len(row) for row in tensors])
    longest = max(length, int(lengths.max()))
    filled = tensors[0].new_full((len(tensors), longest, *tensors[0].shape[1:]), value)
    for place, row in zip(filled, tensors, strict=True):
        place[: len(row)] = row
    return filled, (torch.arange(longest) < lengths[:, None]).long()
