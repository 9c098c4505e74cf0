"""The models of Table 2: the original, and its conversions."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, set_seed

from longform.conversion.convert import ConversionResult, convert
from longform.files import locked
from longform_text.data.token_store import CorpusFiles
from longform_text.training.distillation.run import distill
from longform_text.training.distillation.settings import DistillationSettings
from longform_text.training.students import load_encoder, with_labels

LENGTH = 512  # n, as in the paper
SHORTEST = 64  # tokens of a crop to heal on: the tasks' texts are as short
SHARINGS = {"headwise": "", "key_value": ", shared kv", "layerwise": ", shared kv, layer"}


@dataclass(frozen=True)
class Variant:
    """``options``: of ``longform.convert``; None for the original. ``healed_as``: the model whose healing it takes, by
    key; "": its own.
    """

    key: str
    label: str
    options: Mapping[str, Any] | None = field(default=None)
    healed_as: str = ""


def variants(slots: tuple[int, ...] = (128, 256)) -> dict[str, Variant]:
    """Models by key, in the table's order."""
    made = [Variant("original", "original, full attention"), Variant("window", "Longform, window of 64", {})]
    for k in slots:
        for sharing, said in SHARINGS.items():
            options = {"projection": "linear", "sharing": sharing, "projected_length": k, "sink_tokens": 0}
            made.append(Variant(f"linear-{k}-{sharing}", f"Linformer, {k}{said}", options))
    healed_as = f"weighted-{slots[0]}"  # nothing that is learned depends on k
    for k in slots:
        options = {"projection": "weighted_mean", "attention_window": None, "projected_length": k, "sink_tokens": 0}
        made.append(Variant(f"weighted-{k}", f"weighted means, {k}", options, healed_as=healed_as))
    return {variant.key: variant for variant in made}


def converted(source: Any, variant: Variant, tokenizer: Any = None) -> ConversionResult:
    """``source`` with the variant's attention."""
    assert variant.options is not None
    return convert(source, tokenizer=tokenizer, max_length=LENGTH, **variant.options)


def heal(
    source: str, variant: Variant, text: CorpusFiles, folder: Path, *, tokens: int, held_out: int, progress: bool
) -> Path:
    """Teach the converted encoder, without head, what the original says of ``tokens`` tokens of ``text``; resumable.

    ``held_out``: documents to measure agreement on.
    """
    variant = variants()[variant.healed_as or variant.key]
    place = folder / variant.key
    settings = DistillationSettings(length=LENGTH, min_length=SHORTEST, eval_strategy="no", heldout_documents=held_out)
    settings = replace(settings, max_steps=math.ceil(tokens / max(settings.tokens_per_step, LENGTH)))
    with locked(folder / f".{variant.key}", wait=True):
        distill(converted(source, variant), source, text, settings, output=place, progress=progress)
    return place


def with_new_head(
    source: str, variant: Variant, labels: int, seed: int, healed: Path | None
) -> tuple[PreTrainedModel, Any]:
    """The model with a classification head and its tokenizer; every variant's head of a seed has the same weights."""
    set_seed(seed)
    original = with_labels(source, labels, None)
    if variant.options is None:
        return original.model, original.tokenizer
    made = converted(original.model, variant, original.tokenizer)
    if healed is not None:
        missing = made.model.base_model.load_state_dict(load_encoder(healed).base_model.state_dict(), strict=False)
        assert not missing.missing_keys
    return made.model, made.tokenizer
