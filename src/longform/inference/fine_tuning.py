"""Record in a classifier's config of the texts' length and fields in fine-tuning, which running it takes up again."""

import warnings
from pathlib import Path
from typing import Any, NamedTuple

from transformers.configuration_utils import PreTrainedConfig

FIELD = "fine_tuning"  # of the config
TEXTS = ("task", "label_type", "text_field", "label_field", "pair_field")
KINDS = {"max_length": int, "pairs": bool} | dict.fromkeys(TEXTS, str)
USUAL = {"text_field": "text", "label_field": "label", "pair_field": None}


class FineTuning(NamedTuple):
    """``max_length``: tokens at which texts were cut; ``pairs``: texts came in pairs; fields: None for texts in memory.

    ``task``: "single-label", "multi-label" or "regression"; ``label_type``: that of its labels in Python, "str", "int",
    "float" or "bool". All None: nothing is known.
    """

    task: str | None = None
    label_type: str | None = None
    max_length: int | None = None
    pairs: bool | None = None
    text_field: str | None = None
    label_field: str | None = None
    pair_field: str | None = None

    def fields(self, source: str | Path, **given: str | None) -> dict[str, Any]:
        """Each field that is given, else the one of fine-tuning, else the usual one; a warning says which differ."""
        own = {name: value for name, value in self._asdict().items() if value is not None}
        asked = {name: value for name, value in given.items() if value is not None}
        self.warn(source, **asked)
        return {name: asked.get(name, own.get(name, USUAL[name])) for name in given}

    def warn(self, source: str | Path, **given: Any) -> None:
        """Warn where what is ``given`` is not what the model was fine-tuned with."""
        other = [name for name, value in given.items() if getattr(self, name) not in (None, value)]
        if other:
            said = (", ".join(f"{name}={values[name]!r}" for name in other) for values in (self._asdict(), given))
            warnings.warn(f'"{source}" was fine-tuned with {" and is run here with ".join(said)}', stacklevel=3)


def of_config(config: Any) -> FineTuning:
    """Record in a config (an object, or its fields); a value of another kind, as of an edited file, says nothing."""
    found = config.get(FIELD) if isinstance(config, dict) else getattr(config, FIELD, None)
    known = found if isinstance(found, dict) else {}
    return FineTuning(**{name: known[name] for name in FineTuning._fields if type(known.get(name)) is KINDS[name]})


def of_source(source: str | Path) -> FineTuning:
    """Record in the config of a folder or hub name."""
    try:
        return of_config(PreTrainedConfig.get_config_dict(source)[0])
    except (OSError, ValueError):  # a wrong name: loading the model says so
        return FineTuning()
