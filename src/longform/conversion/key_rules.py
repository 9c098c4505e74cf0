"""Names of weights in a source and in a Longform, as an ordered table that reads in both directions.

A rule is a pair of templates. ``{layer}`` stands for a number, ``{part}`` for weight or bias, and ``{base}`` for the
name of the encoder inside a model with a head ("bert.", "linformer."), which a bare encoder's names lack.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

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
