"""Names of options: an unknown one is refused in the name of the class that was called, with its name here."""

from collections.abc import Callable, Collection
from functools import wraps
from inspect import Parameter, signature
from typing import Any, ParamSpec, TypeVar

from longform.choices import did_you_mean
from longform.errors import ConfigurationError
from longform.layers.options import by_our_names

KEYWORD = Parameter.KEYWORD_ONLY
P = ParamSpec("P")
R = TypeVar("R")

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


def named(*others: Callable[..., Any]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator of a function, such as an ``__init__``; ``others``: those whose options it takes too, as its
    signature then says, with their defaults.

    An option may have one of its OTHER_NAMES. Raises ConfigurationError for one that none of them has.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        whole = signature(function)
        own = {name: each for name, each in whole.parameters.items() if each.kind is not Parameter.VAR_KEYWORD}
        for other in others:
            options = [each for each in signature(other).parameters.values() if each.default is not each.empty]
            own |= {each.name: each.replace(kind=KEYWORD) for each in options if each.name not in own}
        known = own.keys()

        @wraps(function)
        def checked(*given: P.args, **options: P.kwargs) -> R:
            ours: Any = by_our_names(options)
            for name in ours.keys() - known:
                called = type(given[0]).__name__ if "self" in known else getattr(function, "__name__", "")
                raise ConfigurationError(f"{called} has no option {name!r}{hint(name, known)}")
            return function(*given, **ours)

        checked.__signature__ = whole.replace(parameters=list(own.values()))  # ty: ignore[missing-attribute]
        return checked

    return decorate


def hint(name: str, known: Collection[str]) -> str:
    """The end of a message about the unknown option ``name``: what to say in its place, or nothing."""
    if name in INSTEAD:
        return f": {INSTEAD[name]}"
    here = [other for names in SYNONYMS if name in names for other in sorted(names & set(known))]
    return f"; it is called {here[0]!r} here" if here else did_you_mean(name, known)
