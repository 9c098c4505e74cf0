"""A family of source models: rules for the names of its weights, and its configuration in Longform's words."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from transformers.configuration_utils import PreTrainedConfig

from longform.errors import ConversionError

FIELDS = {"layer": r"(?P<layer>\d+)", "part": r"(?P<part>weight|bias)"}
LEGACY_PARTS = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
LEGACY_BASES = {"new.": "gte."}  # Alibaba's own code of GTE calls the encoder so


class Rule(NamedTuple):
    """A name in the source and the same tensor's name in a Longform, as templates."""

    source: str
    target: str


def fields_of(template: str) -> set[str]:
    """The placeholders of a template."""
    return set(re.findall(r"\{(\w+)\}", template))


def modern_name(key: str) -> str:
    """The name that transformers gives it today, where a checkpoint has an older one."""
    for old, new in LEGACY_BASES.items():
        if key.startswith(old):
            key = new + key.removeprefix(old)
    for old, new in LEGACY_PARTS.items():
        if key.endswith(old):
            return key.removesuffix(old) + new
    return key


class Pattern:
    """One template, matched and filled in; its ``{base}`` may be missing when matched."""

    def __init__(self, template: str, base: str) -> None:
        pieces = re.split(r"\{(\w+)\}", template)
        expression = "".join(
            re.escape(piece) if i % 2 == 0 else rf"(?:{re.escape(base)})?" if piece == "base" else FIELDS[piece]
            for i, piece in enumerate(pieces)
        )
        self.template, self.expression = template, re.compile(expression)

    def match(self, key: str) -> dict[str, str] | None:
        """The values of the placeholders, or None."""
        found = self.expression.fullmatch(key)
        return None if found is None else found.groupdict()

    def fill(self, values: dict[str, str], base: str) -> str:
        """The name with these values."""
        return self.template.format(base=base, **values)


class KeyRules:
    """An ordered table of rules; the first that matches counts.

    ``source_base`` and ``target_base`` are what ``{base}`` is written as ("" for a bare encoder); on reading,
    ``{base}`` is either ``base_name`` ("bert.") or nothing. Raises ValueError on two rules for one name.
    """

    def __init__(self, rules: Iterable[Rule], *, base_name: str, source_base: str, target_base: str) -> None:
        self.rules = tuple(rules)
        self.source_base, self.target_base = source_base, target_base
        for side in ("source", "target"):
            names = [getattr(rule, side) for rule in self.rules]
            doubles = sorted({name for name in names if names.count(name) > 1})
            if doubles:
                raise ValueError(f"two rules for the {side} name {doubles[0]}")
        for rule in self.rules:
            if fields_of(rule.source) - {"base"} != fields_of(rule.target) - {"base"}:
                raise ValueError(f"a rule that cannot be reversed: {rule.source} -> {rule.target}")
        self._pairs = [(Pattern(rule.source, base_name), Pattern(rule.target, "linformer.")) for rule in self.rules]

    def rename(self, key: str) -> str | None:
        """The Longform's name for a source's tensor, or None where no rule knows it."""
        return _renamed(modern_name(key), self._pairs, self.target_base)

    def restore(self, key: str) -> str | None:
        """The source's name for a Longform's tensor, or None where no rule knows it."""
        return _renamed(key, [(target, source) for source, target in self._pairs], self.source_base)


def _renamed(key: str, pairs: Iterable[tuple[Pattern, Pattern]], base: str) -> str | None:
    """The name by the first pair whose pattern matches."""
    return next((other.fill(values, base) for own, other in pairs if (values := own.match(key)) is not None), None)


class IgnoredKey(NamedTuple):
    """A template of source names that a Longform never has, and why."""

    source: str
    reason: str


BUFFERS = (
    IgnoredKey("{base}embeddings.position_ids", "buffer: computed when needed"),
    IgnoredKey("{base}embeddings.token_type_ids", "buffer: computed when needed"),
)


@dataclass(frozen=True)
class Family:
    """One family of sources.

    ``base_name``: the encoder's name inside a model with a head, with the dot. ``encoder``: rules of the encoder;
    ``pooler``: of its pooler, if it has one; ``heads``: of each task's head. Head rules that read the encoder
    (``{base}``: BERT's pooler is the dense layer of its classifier) hold for a new head too.
    ``ignored``: names that are left out always. ``options(config)``: arguments of LinformerConfig.
    ``pretraining``: the task that ...ForPreTraining counts as. ``gelu_head``: the masked-language head uses gelu
    whatever the configuration says. ``fused``: source names whose tensors hold so many others one below the other,
    which rules call name[0], name[1] and so on. ``zero_biases``: ends of Longform names that the source has nothing
    for, which stay zero. ``other_names``: transformers saves it under other names than its classes have.
    """

    name: str
    model_types: tuple[str, ...]
    base_name: str
    encoder: tuple[Rule, ...]
    heads: Mapping[str, tuple[Rule, ...]]
    options: Callable[[PreTrainedConfig], dict[str, Any]]
    pooler: tuple[Rule, ...] = ()
    ignored: tuple[IgnoredKey, ...] = BUFFERS
    pretraining: str = "masked-lm"
    gelu_head: bool = False
    fused: Mapping[str, int] = field(default_factory=dict)
    zero_biases: tuple[str, ...] = ()
    other_names: bool = False

    def rules(self, task: str, *, bare_source: bool, head: bool = True, pooled: bool = True) -> KeyRules:
        """The table for a source of the given kind and a Longform for ``task``.

        ``bare_source``: the source's encoder names stand without ``base_name``. ``head``: the source's own head is
        kept; ``pooled``: the result reads the first token, so an encoder keeps the pooler, and a new head takes the
        pooler's dense layer where the family does that.
        """
        chosen = self.heads[task] if task != "encoder" else self.pooler if pooled else ()
        if not head:
            chosen = tuple(rule for rule in chosen if pooled and rule.source.startswith("{base}"))
        return KeyRules(
            (*self.encoder, *chosen),
            base_name=self.base_name,
            source_base="" if bare_source else self.base_name,
            target_base="" if task == "encoder" else "linformer.",
        )

    def has_head(self, task: str, keys: Iterable[str]) -> bool:
        """Whether one of the names belongs to the head of ``task``, and not to the encoder or its pooler."""
        own = [rule for rule in self.heads.get(task, ()) if not rule.source.startswith("{base}")]
        patterns = [Pattern(rule.source, self.base_name) for rule in own]
        return any(pattern.match(modern_name(key)) is not None for pattern in patterns for key in keys)


def shared_options(config: PreTrainedConfig) -> dict[str, Any]:
    """The arguments that every family names as Longform does."""
    names = ("vocab_size", "initializer_range", "pad_token_id", "bos_token_id", "eos_token_id", "tie_word_embeddings")
    found = {name: getattr(config, name) for name in names if hasattr(config, name)}
    if isinstance(found.get("eos_token_id"), list):
        found["eos_token_id"] = found["eos_token_id"][0]
    return found


def bert_like_options(config: PreTrainedConfig) -> dict[str, Any]:
    """The arguments of a source whose configuration is BERT's."""
    names = (
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
        "hidden_act",
        "hidden_dropout_prob",
        "attention_probs_dropout_prob",
        "layer_norm_eps",
    )
    check_absolute_positions(config)
    options = {name: getattr(config, name) for name in names}
    options["type_vocab_size"] = getattr(config, "type_vocab_size", 0)
    options["head_dim"] = getattr(config, "head_dim", None)
    options["classifier_dropout"] = getattr(config, "classifier_dropout", None)
    return shared_options(config) | options


def check_absolute_positions(config: PreTrainedConfig) -> None:
    """Raise ConversionError where attention itself knows about distances."""
    kind = getattr(config, "position_embedding_type", "absolute") or "absolute"
    if kind != "absolute":
        raise ConversionError(
            f"the source has position_embedding_type={kind!r}: distances between tokens enter its attention, which "
            "slots of many tokens cannot carry over; only 'absolute' position tables can be converted"
        )
