"""Tokenizers trained on the corpus itself: byte-level BPE (GPT-2's and RoBERTa's) and WordPiece (BERT's)."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from longform.errors import ConfigurationError, DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

MOST_LETTERS = 1_000  # of a WordPiece vocabulary; rarer characters are unknown tokens
BYTES = 256  # of which every byte-level vocabulary has one token each


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
        if self.kind not in KINDS:
            raise ConfigurationError(f'the tokenizer kind "{self.kind}" is not known; it is one of {", ".join(KINDS)}')
        least = KINDS[self.kind].least
        if self.vocab_size < least:
            raise ConfigurationError(f"vocab_size={self.vocab_size} is less than the {least} that {self.kind} needs")
        if self.min_frequency < 1:
            raise ConfigurationError(f"min_frequency={self.min_frequency} must be at least 1")


class _Kind(NamedTuple):
    special: dict[str, str]  # Hugging Face's name -> the token, in the order of their ids
    least: int  # tokens of the smallest vocabulary
    train: Callable[["_Counted", TokenizerSettings, list[str], bool], Tokenizer]


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
    kind = KINDS[settings.kind]
    seen = _Counted(texts)
    tokenizer = kind.train(seen, settings, list(dict.fromkeys(kind.special.values())), progress)
    if not seen.characters:
        raise DataError("the corpus is empty: there is no text to train a tokenizer on")
    found = tokenizer.get_vocab_size()
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
    _frame(tokenizer, kind.special["cls_token"], kind.special["sep_token"], double=settings.kind == "byte-bpe")
    lengths: dict[str, Any] = {} if max_length is None else {"model_max_length": max_length}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
        **kind.special,
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


def _frame(tokenizer: Tokenizer, first: str, last: str, *, double: bool) -> None:
    """One token before and one after a text; RoBERTa puts two between a pair."""
    pair = f"{first} $A {last} {last} $B {last}" if double else f"{first} $A {last} $B {last}"
    # TemplateProcessing, because RobertaProcessing's keywords differ between versions of tokenizers.
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=pair,
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (first, last)],
    )


def _byte_bpe(texts: _Counted, settings: TokenizerSettings, special: list[str], shown: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    if settings.lowercase:
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()]
        )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=settings.vocab_size,
        min_frequency=settings.min_frequency,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=shown,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _wordpiece(texts: _Counted, settings: TokenizerSettings, special: list[str], shown: bool) -> Tokenizer:
    """BERT's. The trainer numbers "##x" in the order of a hash table, and breaks ties by number; so they come first."""
    tokenizer = _bert_rules(models.WordPiece(unk_token=special[1]), settings)
    letters = _letters(texts, tokenizer, limit=min(MOST_LETTERS, settings.vocab_size // 3))
    inside = [f"##{letter}" for letter in letters if len(_words(tokenizer, f"a{letter}a")) == 1]
    trainer = trainers.WordPieceTrainer(
        vocab_size=settings.vocab_size,
        min_frequency=settings.min_frequency,
        special_tokens=[*special, *inside],
        initial_alphabet=letters,
        limit_alphabet=len(letters),
        show_progress=shown,
    )
    tokenizer.train_from_iterator(texts, trainer)
    made = _bert_rules(models.WordPiece(tokenizer.get_vocab(with_added_tokens=False), unk_token=special[1]), settings)
    made.add_special_tokens(special)
    return made


def _bert_rules(model: Any, settings: TokenizerSettings) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=settings.lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def _words(tokenizer: Tokenizer, text: str) -> list[str]:
    return [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(text))]


def _letters(texts: Iterable[str], tokenizer: Tokenizer, *, limit: int) -> list[str]:
    """The most frequent characters after normalisation, at most ``limit``, sorted."""
    raw: Counter[str] = Counter()
    for text in texts:
        raw.update(text)
    counts: Counter[str] = Counter()
    for character, count in raw.items():
        for letter in "".join(_words(tokenizer, character)):
            counts[letter] += count
    return sorted(sorted(counts, key=lambda letter: (-counts[letter], letter))[:limit])


_ROBERTA = {
    "bos_token": "<s>",
    "cls_token": "<s>",
    "pad_token": "<pad>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "unk_token": "<unk>",
    "mask_token": "<mask>",
}
_BERT = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
KINDS = {
    "byte-bpe": _Kind(_ROBERTA, BYTES + len(set(_ROBERTA.values())), _byte_bpe),
    "wordpiece": _Kind(_BERT, 2 * len(_BERT), _wordpiece),
}
