"""Names of options: an unknown one is refused in the name of the class that was called, with its name here."""

from collections.abc import Callable, Collection
from functools import wraps
from inspect import Parameter, signature
from typing import Any, ParamSpec

from longform.choices import did_you_mean
from longform.errors import ConfigurationError

P = ParamSpec("P")

SYNONYMS = (
    {"hidden_size", "d_model", "embed_dim", "dim", "channels"},
    {"num_heads", "nhead", "heads", "n_heads", "num_attention_heads"},
    {"num_layers", "depth", "num_hidden_layers", "n_layers"},
    {"max_length", "seq_len", "max_seq_len", "input_size", "max_position_embeddings"},
    {"projected_length", "k", "dim_k", "num_landmarks", "num_slots"},
    {"intermediate_size", "dim_feedforward", "dim_ff", "ff_dim"},
    {"head_dim", "dim_head", "dim_d"},
    {"num_key_value_heads", "one_kv_head", "kv_heads"},
    {"pre_norm", "norm_first"},
    {"attention_window", "window_size", "window"},
    {"share_kv", "shared_kv"},
)
INSTEAD = {
    "reversible": "gradient_checkpointing=True saves the same memory",
    "drop_path": "replace block.dropout of each of encoder.layers, as the guide to your own network shows",
    "layer_scale": "put a scale behind block.attention.output, as the guide to your own network shows",
    "exclude_self": "a slot stands for several tokens, the query's own among them: take full attention with a mask",
    "attn_bias": "a bias of pairs has no place where a slot stands for several keys: take full attention",
    "memory_tokens": "put them in front of the tokens: torch.cat([memory.expand(len(x), -1, -1), x], 1)",
}


def named(*others: Any) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """A decorator of an ``__init__``; ``others``: decorated ones, whose options it takes too.

    Raises ConfigurationError for an option that none of them has.
    """

    def decorate(init: Callable[P, None]) -> Callable[P, None]:
        own = {name for name, each in signature(init).parameters.items() if each.kind is not Parameter.VAR_KEYWORD}
        known = own.union(*(other.known for other in others))

        @wraps(init)
        def checked(*given: P.args, **options: P.kwargs) -> None:
            for name in options.keys() - known:
                raise ConfigurationError(f"{type(given[0]).__name__} has no option {name!r}{hint(name, known)}")
            init(*given, **options)

        checked.known = known  # ty: ignore[missing-attribute]
        return checked

    return decorate


def hint(name: str, known: Collection[str]) -> str:
    """The end of a message about the unknown option ``name``: what to say in its place, or nothing."""
    if name in INSTEAD:
        return f": {INSTEAD[name]}"
    here = [other for names in SYNONYMS if name in names for other in sorted(names & set(known))]
    return f"; it is called {here[0]!r} here" if here else did_you_mean(name, known)
