"""The configuration of a Linformer (a Hugging Face config), checked when it is made."""

from os import PathLike
from pathlib import Path
from typing import Any

from huggingface_hub.dataclasses import strict
from transformers.configuration_utils import PreTrainedConfig

from longform.choices import AUTO_MODELS, DEFAULT_PROJECTION, LAYER_TYPES, NORMS, POOLINGS, PREDICTION_HEADS
from longform.errors import ConfigurationError
from longform.files import atomic_write
from longform.functional.positions.tables import INITIALISATIONS
from longform.layers.options import (
    OPTIONS,
    OTHER_NAMES,
    AttentionOptions,
    Lengths,
    check_choice,
    check_key_value_heads,
    head_size,
    in_model_words,
)
from longform.layers.position_options import check_reach_of_local, check_relative_positions, check_rotary

# Code in a saved folder lets it load in programs that import nothing of Longform: ``auto_map`` of its configuration
# names a file, which Auto classes read with ``trust_remote_code=True``. The file imports the installed package, and
# holds no code of it. After ``import longform`` nothing is asked.
CODE = "modeling_longform"
_HEAD = '"""Classes of the installed package Longform, for Hugging Face\'s Auto classes."""\n\n'
AUTO_MAP = {auto: f"{CODE}.{name}" for auto, name in {"AutoConfig": "LinformerConfig", **AUTO_MODELS}.items()}

LEAST = {
    "vocab_size": 1, "hidden_size": 1, "num_hidden_layers": 0, "num_attention_heads": 1, "intermediate_size": 1,
    "head_dim": 1, "embedding_size": 1, "max_position_embeddings": 1, "position_offset": 0, "type_vocab_size": 0,
}  # fmt: skip
INSTEAD = {"embedding_size": "hidden_size", "head_dim": "hidden_size / num_attention_heads"}  # of None
ROPE_NUMBERS = {  # that a kind of rotary positions needs
    "linear": ["factor"],
    "yarn": ["factor"],
    "llama3": ["factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"],
}
# Of options that a saved file does not hold: their defaults when such files were written.
BEFORE = {"projection": "linear", "short_convolution": 0}
BEFORE_LENGTHS = {"projected_length": 128}
PROBABILITIES = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout")


def check_activation(name: str) -> None:
    """Raise ConfigurationError unless transformers has an activation of that name."""
    if name == "gelu":  # the table takes seconds to be imported
        return
    from transformers.activations import ACT2FN

    check_choice("hidden_act", name, tuple(ACT2FN))


@strict
class LinformerConfig(PreTrainedConfig):
    """Configuration of a Linformer encoder, in Hugging Face's vocabulary and the paper's.

    ``max_position_embeddings``: n, the tokens that fit, whatever the position table's offset.
    ``position_offset``: rows of the position table before position 0 (2 for RoBERTa). Where it is ``pad_token_id`` + 1,
    padding tokens have the last of them, also inside a text, and are not counted, as in RoBERTa.
    ``position_init``: how the learned positions begin: "normal", as words do, "sinusoidal", sines and cosines of the
    same size, or "none" where there are none.
    ``type_vocab_size``: 0 for no token types. ``embedding_size``: of word vectors, where it is not ``hidden_size``.
    ``projected_length``: k, an int, a list per layer, or a list per layer of lists per head; "auto" and
    ``tokens_per_slot`` in its place are LinformerAttention's: a slot for 4 tokens where neither is given.
    ``projection``: "weighted_mean", "linear" (the paper's), "mean", "max", "convolution", "random" or "latent";
    "by_place" is "linear" with ``projection_init`` "normal", "content_and_place" adds that to "weighted_mean".
    ``projection_sharing``: "none", "headwise", "key_value" or "layerwise".
    ``projection_init``: how E and F begin: "block_mean", means of runs of tokens, or "normal", N(0, 1/k).
    ``freeze_projection``: E and F are not trained.
    ``attention_window``: tokens seen exactly on each side, or None for the paper's attention.
    ``selected_slots``: slots beyond the window that each block of queries sees token by token; 0 for none.
    ``memory_budget``: how many tokens all slots together stand for at most beside a window; None for no limit.
    ``sink_tokens``: leading tokens that every query sees exactly, beside the slots (rows of E for a dense projection).
    ``short_convolution``: taps of a convolution over neighbouring tokens in front of attention (an odd number, zero
    until trained), or 0; None for 5 before runs, else none; not in layers of "sliding_attention".
    ``relative_attention_num_buckets``: buckets of a bias by distance on the logits (MPNet), or None for no such bias;
    ``relative_attention_max_distance``: tokens from which on all distances have one bucket on each side.
    ``rope_parameters``: rotary positions in place of the table of positions, as in Hugging Face: "rope_type"
    ("default", "linear", "yarn", "llama3"), "rope_theta", "partial_rotary_factor", or these for each layer type;
    a ``rope_theta`` without them is short for the first.
    ``layer_types``: a list per layer of "full_attention" (window and slots, the default) and "sliding_attention", which
    sees ``sliding_window`` tokens on each side and no slots.
    ``head_dim``: features of a head, or None for hidden_size / num_attention_heads: all heads together may be narrower
    (as where some were taken out) or wider than ``hidden_size``.
    ``num_key_value_heads``: heads of keys and values, each for as many heads of queries; None: one for each.
    ``causal``: tokens see only those before them, with a window and slots of whole runs (LinformerForCausalLM).
    ``is_gated_act``: the feed-forward part multiplies what ``hidden_act`` gives with a second product (GeGLU, SwiGLU).
    ``attention_bias``, ``mlp_bias``, ``norm_bias``: of projections, feed-forward layers, norms.
    ``norm_type``: "layer_norm" or "rms_norm"; ``normalization``: "post" (BERT) or "pre", in which case
    ``skip_first_prenorm`` leaves out the norm before the first attention; ``embed_norm``: a norm of the embeddings.
    ``classifier_pooling``: "cls" (first token), "mean", "lead" (a mean in which early tokens weigh more), the first
    with one of the others, "cls_mean", "cls_lead", or "late" (a mean of the head's activations).
    ``prediction_head``: which layers a task has before its last one: those of "bert", of "modernbert" (dense layer,
    activation and norm for every task) or of "eurobert" (none for masked tokens). ``classifier_activation`` and
    ``classifier_bias``: of a head's dense layer; ``decoder_bias``: of the masked-language head's last layer.
    ``use_pooler``: BERT's pooler on the base.

    Raises ConfigurationError, with the values and the way out, where options do not go together.
    """

    model_type = "linformer"
    attribute_map = OTHER_NAMES
    keys_to_ignore_at_inference = ["past_key_values"]  # noqa: RUF012  Hugging Face's own contract
    ignore_keys_at_rope_validation = {"partial_rotary_factor"}  # noqa: RUF012  it is known to all rope types

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float | int = 0.1
    attention_probs_dropout_prob: float | int = 0.1
    classifier_dropout: float | int | None = None
    max_position_embeddings: int = 512
    position_offset: int = 0
    position_init: str = "normal"
    type_vocab_size: int = 2
    embedding_size: int | None = None
    layer_norm_eps: float = 1e-12
    initializer_range: float = 0.02
    pad_token_id: int | None = 0
    bos_token_id: int | None = None
    eos_token_id: int | None = None
    tie_word_embeddings: bool = True
    normalization: str = "post"
    norm_type: str = "layer_norm"
    norm_bias: bool = True
    embed_norm: bool = True
    skip_first_prenorm: bool = False
    attention_bias: bool = True
    mlp_bias: bool = True
    is_gated_act: bool = False
    head_dim: int | None = None
    num_key_value_heads: int | None = None
    rope_parameters: dict | None = None
    layer_types: list[str] | None = None
    sliding_window: int | None = None
    projected_length: int | str | list[int] | list[list[int]] | None = AttentionOptions.projected_length
    tokens_per_slot: int | None = AttentionOptions.tokens_per_slot
    projection: str = DEFAULT_PROJECTION
    projection_sharing: str = AttentionOptions.projection_sharing
    projection_init: str = AttentionOptions.projection_init
    freeze_projection: bool = AttentionOptions.freeze_projection
    attention_window: int | None = AttentionOptions.attention_window
    selected_slots: int = AttentionOptions.selected_slots
    memory_budget: float | int | None = AttentionOptions.memory_budget
    sink_tokens: int = AttentionOptions.sink_tokens
    short_convolution: int | None = AttentionOptions.short_convolution
    causal: bool = False
    relative_attention_num_buckets: int | None = None
    relative_attention_max_distance: int = 128
    classifier_pooling: str = "cls"
    classifier_activation: str = "tanh"
    classifier_bias: bool = True
    decoder_bias: bool = True
    prediction_head: str = "bert"
    use_pooler: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        """Check at once, so that a mistake is a ConfigurationError and not a wrapped one."""
        super().__post_init__(**kwargs)
        if self.num_key_value_heads is None:  # PEFT reads a number
            self.num_key_value_heads = self.num_attention_heads
        self.validate_architecture()

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Hugging Face's; an option that a saved file does not hold has the default of the time when it was saved."""
        lengths = {} if "tokens_per_slot" in config_dict else BEFORE_LENGTHS
        return super().from_dict(BEFORE | lengths | config_dict, **kwargs)

    @classmethod
    def from_json_file(cls, json_file: str | PathLike[str]) -> Any:
        """Hugging Face's, by ``from_dict``."""
        return cls.from_dict(cls._dict_from_json_file(json_file))

    @classmethod
    def register_for_auto_class(cls, auto_class: str = "AutoConfig") -> None:
        """Nothing: after it, transformers would copy this module into each folder that is saved."""

    def save_pretrained(self, save_directory: str | PathLike[str], push_to_hub: bool = False, **kwargs: Any) -> None:
        """Hugging Face's save_pretrained; beside it the code of ``write_code``, for programs without us."""
        self.auto_map = dict(AUTO_MAP)
        write_code(Path(save_directory))
        super().save_pretrained(save_directory, push_to_hub=push_to_hub, **kwargs)

    def validate_architecture(self) -> None:
        """Check what a type cannot say, and say how long a slot is and how many taps there are."""
        try:
            self._check()
            settled = self.attention_options().settled(self.max_position_embeddings, heads=self.num_attention_heads)
        except ConfigurationError as error:  # layers have other names for some fields
            raise ConfigurationError(in_model_words(str(error))) from None
        for name in ("projected_length", "tokens_per_slot", "short_convolution"):
            setattr(self, name, getattr(settled, name))

    def _check(self) -> None:
        self._check_numbers()
        check_activation(self.hidden_act)
        check_choice("position_init", self.position_init, INITIALISATIONS)
        check_choice("normalization", self.normalization, ("post", "pre"))
        check_choice("norm_type", self.norm_type, NORMS)
        check_choice("classifier_pooling", self.classifier_pooling, (*POOLINGS, "late"))
        check_choice("prediction_head", self.prediction_head, PREDICTION_HEADS)
        check_choice("classifier_activation", self.classifier_activation, ("tanh", "relu", "gelu"))
        check_relative_positions(
            self.relative_attention_num_buckets,
            self.relative_attention_max_distance,
            attention_window=self.attention_window,
            max_length=self.max_position_embeddings,
        )
        self._check_layers()
        every = self.layer_options()
        sizes = {options: self.lengths_of(options) for options in every}
        for options, lengths in sizes.items():
            options.check(
                lengths,
                hidden_size=self.hidden_size,
                num_heads=self.num_attention_heads,
                head_dim=self.head_dim,
                causal=self.causal,
                model_slots=tuple(slots for each in sizes.values() for slots in each.slots),
            )
        if self.causal and (self.relative_attention_num_buckets or "sliding_attention" in self.kinds_of_layers()):
            raise ConfigurationError(
                "causal=True goes neither with relative_attention_num_buckets nor with 'sliding_attention' in "
                "layer_types"
            )

    def attention_options(self) -> AttentionOptions:
        """Options of attention, in which k may be a list for all layers."""
        return AttentionOptions(**{name: getattr(self, name) for name in OPTIONS})

    def layer_options(self) -> tuple[AttentionOptions, ...]:
        """Options of the attention of every layer."""
        sizes = {"num_layers": self.num_hidden_layers, "num_heads": self.num_attention_heads}
        return self.attention_options().of_layers(**sizes)

    def lengths_of(self, options: AttentionOptions) -> Lengths:
        """The longest text, and k of each head, of a layer with these ``options``."""
        sizes = {"heads": self.num_attention_heads, "fixed": self.causal}
        return options.lengths(self.max_position_embeddings, **sizes, capped=False)

    def _check_numbers(self) -> None:
        """Sizes, probabilities and the padding token; None is left to the type."""
        for name, low in LEAST.items():
            value = getattr(self, name)
            if value is not None and value < low:
                instead = f", or None for {INSTEAD[name]}" if name in INSTEAD else ""
                raise ConfigurationError(f"{name}={value} must be at least {low}{instead}")
        for name in PROBABILITIES:
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise ConfigurationError(f"{name}={value} is a probability: it must be from 0 to 1")
        if self.pad_token_id is not None and not 0 <= self.pad_token_id < self.vocab_size:
            raise ConfigurationError(
                f"pad_token_id={self.pad_token_id} is not a token of vocab_size={self.vocab_size}; use one from 0 to "
                f"{self.vocab_size - 1}, a larger vocab_size, or pad_token_id=None"
            )

    def _check_layers(self) -> None:
        """Layer types, heads of keys and rotary positions."""
        kinds = self.kinds_of_layers()
        if len(kinds) != self.num_hidden_layers:
            raise ConfigurationError(
                f"layer_types lists {len(kinds)} layers, the model has num_hidden_layers={self.num_hidden_layers}"
            )
        for kind in dict.fromkeys(kinds):
            check_choice("layer_types", kind, LAYER_TYPES)
        if "sliding_attention" in kinds:
            check_reach_of_local(self.sliding_window)
        check_key_value_heads(self.num_attention_heads, self.num_key_value_heads)
        rope: dict[str, Any] | None = self.rope_parameters
        for kind in dict.fromkeys(kinds if rope is not None else ()):
            _check_rope_numbers(kind, (rope or {}).get(kind, rope))
        check_rotary(rope, kinds, head_dim=self.head_size, distances=self.relative_attention_num_buckets is not None)

    def kinds_of_layers(self) -> tuple[str, ...]:
        """``layer_types`` of every layer."""
        return ("full_attention",) * self.num_hidden_layers if self.layer_types is None else tuple(self.layer_types)

    def convert_rope_params_to_dict(self, **kwargs: Any) -> dict[str, Any]:
        """Hugging Face's, which would give rotary positions to every model, where the configuration asks for them.

        Some of its versions (5.17) put a "rope_theta" beside the parameters of each layer type, and then refuse it.
        """
        given, older = self.rope_parameters, {"rope_theta", "rope_scaling"}
        kwargs = {name: value for name, value in kwargs.items() if value is not None or name not in older}
        if given is None and not older & kwargs.keys():
            return kwargs
        added = given is not None and set(LAYER_TYPES) & given.keys() and "rope_theta" not in given
        rest = super().convert_rope_params_to_dict(**kwargs)
        if added and self.rope_parameters is not None:
            self.rope_parameters.pop("rope_theta", None)
        return rest

    def head_slots(self) -> tuple[tuple[int, ...], ...]:
        """k of every head of every layer."""
        return tuple(self.lengths_of(options).slots for options in self.layer_options())

    @property
    def head_size(self) -> int:
        """Features of a head: ``head_dim``, or an even part of ``hidden_size``."""
        return head_size(self.hidden_size, self.num_attention_heads, self.head_dim)

    @property
    def word_embedding_size(self) -> int:
        """Features of a word vector: ``embedding_size``, or ``hidden_size``."""
        return self.embedding_size or self.hidden_size


def _check_rope_numbers(kind: str, parameters: dict[str, Any] | None) -> None:
    """Check what layers of ``kind`` have, before Hugging Face computes with it; without None, which is its default."""
    if parameters is None:
        raise ConfigurationError(
            f"rope_parameters of {kind} is None: give it rope_type and rope_theta, or leave rope_parameters out"
        )
    rope_type = str(parameters.get("rope_type"))
    needed = ROPE_NUMBERS.get(rope_type, [])
    for name in ("partial_rotary_factor", "attention_factor", "beta_fast", "beta_slow"):
        if parameters.get(name) is None:
            parameters.pop(name, None)
        else:
            needed = [*needed, name]
    for name in needed:
        value = parameters.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise ConfigurationError(
                f"{name}={value!r} of {kind}, in rope_parameters, must be a number above 0 for rope_type={rope_type!r}"
            )


def write_code(folder: Path) -> None:
    """Write the file that AUTO_MAP names."""
    names = ", ".join(sorted(AUTO_MODELS.values()))
    with atomic_write(folder / f"{CODE}.py") as opened:
        opened.write(f"{_HEAD}from longform import LinformerConfig, {names}  # noqa\n")
