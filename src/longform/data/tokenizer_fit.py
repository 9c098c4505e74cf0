"""A tokenizer beside a model: it has no token without an embedding, and neither cuts nor pads a text by itself."""

from typing import Any

from longform.errors import ConfigurationError


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
