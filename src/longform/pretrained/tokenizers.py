"""Token ids of texts of any length, special tokens around them, and the fit of a tokenizer to a model."""

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from longform.errors import ConfigurationError

PIECE = 2**16  # characters that are tokenised together
NEAR = 2**12  # characters before the end of a piece among which a place to cut is looked for
# A space between a letter or digit and another: word pieces, byte pairs and unigrams alike begin a token there.
_BOUNDARY = re.compile(r"(?<=[^\W_])[ \n](?=[^\W_])")


class SpecialTokens(NamedTuple):
    """Token ids that a tokenizer puts before and after a text."""

    prefix: tuple[int, ...]
    suffix: tuple[int, ...]

    @property
    def total(self) -> int:
        """Tokens that are not text."""
        return len(self.prefix) + len(self.suffix)

    def around(self, content: Sequence[int]) -> list[int]:
        """The text's ids with the special ones at their ends."""
        return [*self.prefix, *content, *self.suffix]


def special_tokens(tokenizer: Any) -> SpecialTokens:
    """Find out what the tokenizer adds to a text."""
    return SpecialTokens(*map(tuple, special_runs(tokenizer)))


def special_runs(tokenizer: Any, *, texts: int = 1) -> list[list[int]]:
    """Ids that a tokenizer puts before, between and after a text or a pair (``texts`` = 2): ``texts`` + 1 lists.

    Raises ConfigurationError for a tokenizer that changes a text when it adds them.
    """
    plain, rest = tokenizer("a", add_special_tokens=False)["input_ids"], tokenizer(*["a"] * texts)["input_ids"]
    runs = []
    for _ in range(texts):
        places = (at for at in range(len(rest) - len(plain) + 1) if rest[at : at + len(plain)] == plain)
        if (start := next(places, None)) is None:
            raise ConfigurationError("the tokenizer changes a text when it adds special tokens; that is not supported")
        runs.append(rest[:start])
        rest = rest[start + len(plain) :]
    return [*runs, rest]


def content_ids(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of each text without special tokens; a long one is tokenised in pieces."""
    if all(len(text) <= PIECE for text in texts):
        return _content_ids(tokenizer, texts)
    return [list(chain.from_iterable(ids_in_pieces(tokenizer, text))) for text in texts]


def ids_in_pieces(tokenizer: Any, text: str, *, start: int = 0, size: int = PIECE) -> Iterator[list[int]]:
    """Token ids of each piece of ``text`` from ``start`` on, without special tokens."""
    return (ids_at_once(tokenizer, piece) for piece in pieces(text, start=start, size=size))


def ids_at_once(tokenizer: Any, text: str) -> list[int]:
    """Token ids of a text of any length without special tokens, in the memory that the tokenizer takes for that."""
    return _content_ids(tokenizer, [text])[0]


def _content_ids(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    if not texts:
        return []
    options = {"add_special_tokens": False, "return_attention_mask": False, "verbose": False}
    return tokenizer(list(texts), **options)["input_ids"]


def fit_tokenizer(tokenizer: Any, config: Any, *, name: str) -> Any:
    """``tokenizer`` itself, set never to cut or pad, for the model of ``config``, which errors call ``name``.

    Its settings are shared by all threads that use it, so that what is cut is cut elsewhere. Raises ConfigurationError
    where it has more tokens than the model has embeddings.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        backend.no_truncation()
        backend.no_padding()
    known, size = getattr(config, "vocab_size", None), vocabulary_size(tokenizer)
    if known is not None and size > known:
        beyond = ", ".join(str(tokenizer.convert_ids_to_tokens(id)) for id in range(known, min(size, known + 3)))
        raise ConfigurationError(
            f"the tokenizer of {name} has {size:,} tokens, the model {known:,} embeddings (vocab_size): there is none "
            f"for {beyond}{' and others' if size > known + 3 else ''}. Give the model's own tokenizer, or give these "
            f"tokens embeddings, model.resize_token_embeddings({size}), and train them"
        )
    return tokenizer


def vocabulary_size(tokenizer: Any) -> int:
    """One more than its largest token id, which tokens that were added may have set."""
    return max(len(tokenizer), 1 + max(tokenizer.added_tokens_decoder, default=-1))


def boundary(text: str, end: int, *, near: int = NEAR) -> int | None:
    """The last place before ``end``, at most ``near`` characters, where a tokenizer cuts too; None: there is none."""
    places = [match.start() for match in _BOUNDARY.finditer(text, max(0, end - near), end)]
    return places[-1] if places and places[-1] else None


def pieces(text: str, *, start: int = 0, size: int = PIECE) -> Iterator[str]:
    """``text`` from ``start`` on, in pieces of at most ``size`` characters, cut anywhere where no boundary is near."""
    while len(text) - start > size:
        end = boundary(text, start + size, near=min(NEAR, size - 1)) or start + size
        yield text[start:end]
        start = end
    yield text[start:]
