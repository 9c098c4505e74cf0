"""The models that each part of the paper's Figure 3 trains, for any preset of ``longform pretrain``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

from longform.errors import ConfigurationError
from longform.models.configuration_linformer import LinformerConfig
from longform_text.training.pretraining.model import full_attention_twin
from longform_text.training.pretraining.settings import Preset, PretrainingSettings, load_preset

FIGURES = {
    "figure3a": "full attention and Linformer at several k",
    "figure3b": "full attention and Linformer at several k, texts twice as long",
    "figure3c": "sharing E and F",
    "figure3d": "texts of several lengths, the same k, and full attention at the two shortest",
}
CLOSERS = ("window", "convolution", "mean")
SHARINGS = ("none", "headwise", "key_value", "layerwise")
PRESETS = {"tiny": "figure3-tiny", "small": "figure3-small", "paper": "base"}
RECIPES = Path(__file__).with_name("recipes")


@dataclass(frozen=True)
class Curve:
    """One line of the figure: ``model`` has the fields of its LinformerConfig. ``key``: of the line, in records."""

    key: str
    label: str
    model: dict[str, Any]

    @property
    def length(self) -> int:
        """n."""
        return self.model["max_position_embeddings"]

    @property
    def is_full(self) -> bool:
        """Whether it is a full-attention twin."""
        return self.key.endswith("full")


@dataclass(frozen=True)
class Plan:
    """The lines of a figure, all trained with ``preset``.

    ``twin``: the training of full attention of the preset's n, whose weights all of them begin with; None: new weights.
    """

    figure: str
    curves: list[Curve]
    preset: Preset
    twin: PretrainingSettings | None = None

    @property
    def twin_model(self) -> dict[str, Any]:
        """Fields of the LinformerConfig of ``twin``."""
        return full_attention_twin(self.preset.model)


def preset_of(scale: str, name: str | None = None) -> Preset:
    """The scale's preset, or one by its name or file. Raises ConfigurationError for an unknown preset."""
    name = name or PRESETS[scale]
    own = RECIPES / f"{name}.yaml"
    return load_preset(own if own.is_file() else name)


def _check_closers(also: Sequence[str]) -> None:
    unknown = [name for name in also if name not in CLOSERS]
    if unknown:
        raise ConfigurationError(f"also={', '.join(unknown)}: there are {', '.join(CLOSERS)}")


def planned(figure: str, preset: Preset, *, also: Sequence[str] = (), from_twin: int | None = None) -> Plan:
    """The lines of ``figure`` and of ``also`` (window, convolution, mean).

    ``also``: at k = n / 4 of the figure's first n, with a window of n / 8; in figure3d at each of its n, with its k and
    a window of an eighth of the preset's n, or of a slot where that is longer.
    A step has as many tokens at every length: those of the preset, or of the longest text where that is more (and then
    the preset's steps are fewer, for as many tokens in all). ``from_twin``: all lines go on with the weights of full
    attention, which has learned for so many steps of the preset's n. Raises ConfigurationError for what there is not.
    """
    _check_closers(also)
    n = preset.model.get("max_position_embeddings", 512)
    if n < 8:
        raise ConfigurationError(f"max_position_embeddings={n}: k of an eighth of it needs 8 tokens or more")
    curves = _curves(figure, preset.model, n, longest=8 if from_twin is None else 16)
    curves += [_closer(preset.model, name, *size) for name in also for size in _closer_sizes(figure, curves, n)]
    for curve in curves:
        LinformerConfig(**curve.model)  # refuses here what would stop the figure at its last training
    longest, twin = max(curve.length for curve in curves), None
    if preset.training.tokens_per_step < longest:
        curves = [replace(curve, key=f"step{longest}-{curve.key}") for curve in curves]  # a folder may be shared
    if from_twin is not None:
        twin = replace(preset.training, max_steps=from_twin)
        curves = [replace(curve, key=f"twin{from_twin}-{curve.key}") for curve in curves]
    return Plan(figure, curves, replace(preset, training=_with_room(preset.training, longest)), twin)


def _with_room(training: PretrainingSettings, longest: int) -> PretrainingSettings:
    """Steps and forward passes of as many tokens as the longest text has; as many tokens in all as before."""
    tokens = max(longest, training.tokens_per_step)
    if (steps := training.argument("max_steps", -1)) > 0:
        training = replace(training, max_steps=ceil(steps * training.tokens_per_step / tokens))
    return replace(training, tokens_per_step=tokens, tokens_per_forward=max(longest, training.tokens_per_forward))


def _closer_sizes(figure: str, curves: Sequence[Curve], n: int) -> list[tuple[int, int, int]]:
    """n, k and window of what is trained beside the figure's own lines."""
    if figure != "figure3d":
        return [(curves[0].length, curves[0].length // 4, curves[0].length // 8)]
    slots = curves[-1].model["projected_length"]
    return [(one.length, slots, max(n // 8, ceil(one.length / slots))) for one in curves if not one.is_full]


def _curves(figure: str, model: Mapping[str, Any], n: int, *, longest: int) -> list[Curve]:
    if figure == "figure3a":
        return [_full(model, n), *(_linear(model, n, k) for k in (n // 8, n // 4, n // 2))]
    if figure == "figure3b":
        return [_full(model, 2 * n), *(_linear(model, 2 * n, k) for k in (n // 4, n // 2))]
    if figure == "figure3c":
        return [_full(model, n), *(_linear(model, n, n // 4, sharing) for sharing in SHARINGS)]
    if figure == "figure3d":
        twins = [_full(model, n * times) for times in (1, 2)]  # of the longer ones they take too long
        return [*twins, *(_linear(model, n * 2**doubled, n // 2) for doubled in range(longest.bit_length()))]
    raise ConfigurationError(f'there is no "{figure}"; there are {", ".join(FIGURES)}')


def _full(model: Mapping[str, Any], n: int) -> Curve:
    made = full_attention_twin({**model, "short_convolution": 0, "max_position_embeddings": n})
    return Curve(f"n{n}-full", f"full attention, n = {n:,}", made)


def _linear(model: Mapping[str, Any], n: int, k: int, sharing: str | None = None) -> Curve:
    sharing = sharing or model.get("projection_sharing", "headwise")
    options = {name: model[name] for name in ("projection_init",) if name in model}
    made = _shortened(model, n, k, projection="linear", projection_sharing=sharing, **options)
    return Curve(f"n{n}-k{k}-{sharing}", f"Linformer, n = {n:,}, k = {k}, {sharing.replace('_', '-')}", made)


def _closer(model: Mapping[str, Any], name: str, n: int, k: int, window: int) -> Curve:
    said, options = name, {"projection": name}
    if name == "window":
        said, options = f"mean and a window of {window}", {"projection": "mean", "attention_window": window}
    return Curve(f"n{n}-k{k}-{name}", f"{said}, n = {n:,}, k = {k}", _shortened(model, n, k, **options))


def _shortened(model: Mapping[str, Any], n: int, k: int, **attention: Any) -> dict[str, Any]:
    """The model's fields with other attention than the preset's."""
    return {**with_attention(model, **attention), "projected_length": k, "max_position_embeddings": n}


def with_attention(model: Mapping[str, Any], **attention: Any) -> dict[str, Any]:
    """Fields of a LinformerConfig with other attention, without taps: options that are not given are as by default."""
    dropped = (
        "projection",
        "projection_sharing",
        "projection_init",
        "freeze_projection",
        "attention_window",
        "memory_budget",
        "projected_length",
        "sink_tokens",
        "short_convolution",
    )
    kept = {name: value for name, value in model.items() if name not in dropped}
    return {**kept, "short_convolution": 0, **attention}
