"""Tokenizers trained on the corpus itself: byte-level BPE (GPT-2's and RoBERTa's) and WordPiece (BERT's)."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tokenizers import normalizers

from longform.errors import ConfigurationError, DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

MOST_LETTERS = 1_000  # of a WordPiece vocabulary; rarer characters are unknown tokens
ROBERTA = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")  # in the order of their ids
LEAST = {"byte-bpe": 256 + len(ROBERTA), "wordpiece": 10}  # tokens of the smallest vocabulary


@dataclass(frozen=True)
class TokenizerSettings:
    """Which tokenizer is trained.

    Args:
        kind: "byte-bpe" (any text, no unknown token needed) or "wordpiece" (BERT's normalisation and punctuation).
        vocab_size: tokens, special ones included; a corpus that does not support as many is an error.
        lowercase: fold letters to lower case and drop accents.
        min_frequency: how often a pair of pieces occurs at least to become a token.

    Raises ConfigurationError for a value that cannot be.
    """

    kind: str = field(default="byte-bpe", metadata={"choices": ("byte-bpe", "wordpiece")})
    vocab_size: int = 50_265
    lowercase: bool = False
    min_frequency: int = 2

    def __post_init__(self) -> None:
        if self.kind not in LEAST:
            raise ConfigurationError(f'the tokenizer kind "{self.kind}" is not known; it is one of {", ".join(LEAST)}')
        if self.vocab_size < LEAST[self.kind]:
            raise ConfigurationError(
                f"vocab_size={self.vocab_size} is less than the {LEAST[self.kind]} that {self.kind} needs"
            )
        if self.min_frequency < 1:
            raise ConfigurationError(f"min_frequency={self.min_frequency} must be at least 1")


def train_tokenizer(
    texts: Iterable[str],
    settings: TokenizerSettings | None = None,
    *,
    max_length: int | None = None,
    progress: bool = False,
    exact: bool = True,
) -> "PreTrainedTokenizerFast":
    """A tokenizer with exactly ``settings.vocab_size`` tokens; ``max_length``: its ``model_max_length`` in tokens.

    ``exact=False``: with fewer, where the corpus does not support as many.

    ``texts`` are read again for WordPiece: a list, or an object whose __iter__ begins anew. Special tokens have the
    lowest ids and Hugging Face's names. The same texts in the same order give the same tokenizer.
    Raises DataError for an empty corpus, and for one that does not support the vocabulary.
    """
    from transformers import PreTrainedTokenizerFast  # not above: --help reads the settings' fields

    settings = settings or TokenizerSettings()
    seen = _Counted(texts)
    made = _wordpiece(seen, settings, progress) if settings.kind == "wordpiece" else _byte_bpe(seen, settings, progress)
    if not seen.characters:
        raise DataError("the corpus is empty: there is no text to train a tokenizer on")
    found = len(made)
    if exact and found < settings.vocab_size:
        raise DataError(
            f"vocab_size={settings.vocab_size:,} is more than the corpus supports: {seen.characters:,} characters give "
            f"{found:,} tokens whose parts occur together at least {settings.min_frequency} times. "
            f"Use vocab_size={found} or less, or more text"
        )
    if found > settings.vocab_size:
        raise DataError(
            f"vocab_size={settings.vocab_size:,} is less than the {found:,} tokens of the corpus's characters alone: "
            f"use more, or kind byte-bpe"
        )
    lengths: dict[str, Any] = {} if max_length is None else {"model_max_length": max_length}
    return PreTrainedTokenizerFast(  # the class of either kind would read back its own rules, without the lower case
        tokenizer_object=made.backend_tokenizer,
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
        **made.special_tokens_map,
        **lengths,
    )


class _Counted:
    """The texts, and how many characters the last reading had."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts, self.characters = texts, 0

    def __iter__(self) -> Iterator[str]:
        self.characters = 0
        for text in self.texts:
            self.characters += len(text.strip())
            yield text


def _byte_bpe(texts: _Counted, settings: TokenizerSettings, shown: bool) -> Any:
    from transformers import RobertaTokenizer

    rules = RobertaTokenizer(vocab={token: number for number, token in enumerate(ROBERTA)})
    if settings.lowercase:
        folded = [normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()]
        rules.backend_tokenizer.normalizer = normalizers.Sequence(folded)
    return _trained(rules, texts, settings, shown)


def _trained(rules: Any, texts: _Counted, settings: TokenizerSettings, shown: bool, **options: Any) -> Any:
    return rules.train_new_from_iterator(
        texts, settings.vocab_size, min_frequency=settings.min_frequency, show_progress=shown, **options
    )


def _wordpiece(texts: _Counted, settings: TokenizerSettings, shown: bool) -> Any:
    """BERT's. The trainer numbers "##x" in the order of a hash table, and breaks ties by number; so they come first."""
    from transformers import BertTokenizer

    rules = BertTokenizer(do_lower_case=settings.lowercase)
    letters = _letters(texts, rules, limit=min(MOST_LETTERS, settings.vocab_size // 3))
    inside = [f"##{letter}" for letter in letters if len(_words(rules, f"a{letter}a")) == 1]
    options = {"new_special_tokens": inside, "initial_alphabet": letters, "limit_alphabet": len(letters)}
    vocabulary = _trained(rules, texts, settings, shown, **options).get_vocab()
    return BertTokenizer(vocab=vocabulary, do_lower_case=settings.lowercase)


def _words(rules: Any, text: str) -> list[str]:
    backend = rules.backend_tokenizer
    return [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(backend.normalizer.normalize_str(text))]


def _letters(texts: Iterable[str], rules: Any, *, limit: int) -> list[str]:
    """The most frequent characters after normalisation, at most ``limit``, sorted."""
    raw: Counter[str] = Counter()
    for text in texts:
        raw.update(text)
    counts: Counter[str] = Counter()
    for character, count in raw.items():
        for letter in "".join(_words(rules, character)):
            counts[letter] += count
    return sorted(sorted(counts, key=lambda letter: (-counts[letter], letter))[:limit])
