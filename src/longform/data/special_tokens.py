"""Special tokens, which a tokenizer puts around a text, and the ids of texts without them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from longform.errors import ConfigurationError


class SpecialTokens(NamedTuple):
    """What a tokenizer puts before and after a text: token ids."""

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
    plain, whole = (tokenizer("a", add_special_tokens=added)["input_ids"] for added in (False, True))
    for start in range(len(whole) - len(plain) + 1):
        if whole[start : start + len(plain)] == plain:
            return SpecialTokens(tuple(whole[:start]), tuple(whole[start + len(plain) :]))
    raise ConfigurationError("the tokenizer changes a text when it adds special tokens; that is not supported")


def content_ids(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of each text without special tokens."""
    if not texts:
        return []
    options = {"add_special_tokens": False, "return_attention_mask": False, "verbose": False}
    return tokenizer(list(texts), **options)["input_ids"]
