"""``longform pretrain TEXTS...``: a new language model from scratch."""

from dataclasses import fields, replace
from typing import Any

from longform.choices import NORMS, PROJECTION_INITS, PROJECTION_NAMES, SHARINGS
from longform_text.cli.arguments import (
    TRAINS,
    add_options,
    add_restart,
    add_settings,
    add_training_settings,
    command,
    command_parser,
    given_training_options,
    option,
    print_next,
)

MODEL_OPTIONS: dict[str, tuple[Any, str]] = {  # a type, or the names that there are
    "max_position_embeddings": (int, "n: tokens that the model takes at most, special tokens included"),
    "projected_length": (int | list[int], "k: slots that keys and values are shortened to"),
    "projection": (PROJECTION_NAMES, "how keys and values are shortened; linear: the paper's E and F"),
    "projection_sharing": (SHARINGS, "what shares a projection"),
    "projection_init": (PROJECTION_INITS, "start of a linear projection; block_mean: means of runs; normal: N(0, 1/k)"),
    "position_init": (("normal", "sinusoidal"), "how the table of learned positions begins"),
    "attention_window": (int, "tokens seen exactly on each side, beside the slots; not with linear, random and latent"),
    "selected_slots": (int, "slots beyond the window that each block of tokens sees token by token; 0: none"),
    "short_convolution": (int, "taps of a convolution over neighbouring tokens in front of attention; 0: none"),
    "hidden_size": (int, "features of a token"),
    "num_hidden_layers": (int, "layers"),
    "num_attention_heads": (int, "attention heads"),
    "head_dim": (int, "features of a head, where not hidden_size / num_attention_heads"),
    "intermediate_size": (int, "features inside the feed-forward part"),
    "num_key_value_heads": (int, "heads of keys and values, each for several attention heads"),
    "is_gated_act": (bool, "true: a gated feed-forward part (GeGLU, SwiGLU)"),
    "hidden_act": (str, "activation of the feed-forward part, as Hugging Face names it: gelu, silu ..."),
    "rope_theta": (float, "rotary positions of this base (10000 is usual) in place of a table of positions"),
    "normalization": (("post", "pre"), "post: as BERT"),
    "norm_type": (NORMS, "rms_norm: without mean and bias"),
    "attention_bias": (bool, "false: no biases in attention"),
    "mlp_bias": (bool, "false: no biases in the feed-forward part"),
    "norm_bias": (bool, "false: no biases in norms"),
    "initializer_range": (float, "standard deviation of the initial weights"),
    "dropout": (float, "probability (0 to 1), of hidden states and attention weights"),
}


def parser() -> Any:
    """The command's jsonargparse.ArgumentParser."""
    from longform_text.data.tokenizer_training import TokenizerSettings
    from longform_text.training.pretraining.settings import PretrainingSettings, preset_description, preset_names

    presets = "; ".join(f"{name}: {preset_description(name)}" for name in preset_names())
    made = command_parser(
        "pretrain",
        "Train a new language model from scratch on text, in a folder with model card and "
        f"records. Presets: {presets}. {TRAINS}pretrain ...",
    )
    made.add_argument("texts", nargs="+", help="text, .jsonl or .parquet files, folders, or hf:NAME[:CONFIG]:SPLIT")
    made.add_argument("--output", type=str, required=True, help="folder for checkpoints, records and the result")
    cache = "folder for trained tokenizers and token files, which several runs may share; null: inside the output"
    add_options(
        made,
        ("preset", None, "tiny", "tiny, small, base, or a YAML file; options below change it"),
        ("text_field", None, "text", "field of a record that holds its text"),
        ("validation", list[str] | str | None, None, "text to measure on, as the texts; null: a part of them"),
        ("cache", str | None, None, cache),
    )
    add_restart(made)
    add_options(made, ("tokenizer", str | None, None, "folder or hub name of a tokenizer; null: train one"))
    add_settings(made, TokenizerSettings, prefix="tokenizer-", preset=True)
    attention = "full: the same model without projection (options of projection and window then say nothing)"
    add_options(made, ("attention", ("linformer", "full"), "linformer", attention))
    for name, (kind, said) in MODEL_OPTIONS.items():
        kind = kind if isinstance(kind, tuple) else kind | None
        add_options(made, (name, kind, None, f"{said}; null: the preset's"))
    add_training_settings(made, PretrainingSettings, preset=True)
    return made


def _chosen(settings: Any, parsed: Any, prefix: str = "") -> dict[str, Any]:
    """The fields of the settings that were given on the command line."""
    values = {field.name: getattr(parsed, prefix + field.name) for field in fields(settings)}
    return {name: value for name, value in values.items() if value is not None}


def run(settings: Any) -> None:
    """Pre-train, save, and say how well the model says tokens."""
    from longform.errors import ConfigurationError
    from longform_text.data.text import look
    from longform_text.training.pretraining.settings import PretrainingSettings, load_preset

    for given in filter(None, (settings.texts, _names(settings.validation))):
        look(given, settings.text_field)
    preset = load_preset(settings.preset)
    given = given_training_options(PretrainingSettings, settings)
    training = replace(preset.training, **given)
    from longform_text.training.pretraining.model import full_attention_twin
    from longform_text.training.pretraining.run import pretrain
    from longform_text.training.pretraining.settings import CAUSAL

    model = {**preset.model, **_model_options(settings)}
    tokenizer = _chosen(preset.tokenizer, settings, "tokenizer_")
    if settings.tokenizer and tokenizer:
        given = ", ".join(option(f"tokenizer-{name}") for name in tokenizer)
        raise ConfigurationError(f"--tokenizer is trained already: leave out {given}")
    result = pretrain(
        _files(settings.texts, settings.text_field),
        training,
        config=full_attention_twin(model) if settings.attention == "full" else model,
        tokenizer=settings.tokenizer or replace(preset.tokenizer, **tokenizer),
        output=settings.output,
        validation=_files(settings.validation, settings.text_field),
        cache=settings.cache,
        restart=settings.restart,
    )
    print(f"trained  {result.steps:,} steps, {result.tokens:,} tokens, {result.model.num_parameters():,} parameters")
    print(f"measured loss {result.validation_loss:.4f} nats a token, perplexity {result.perplexity:.2f}")
    print(f"         predicting frequencies alone: {result.unigram_loss:.4f}")
    print(f"saved    {settings.output} (README.md, records.jsonl, learning_curve.png)")
    if training.objective == CAUSAL:
        print_next(f'LinformerForCausalLM.from_pretrained("{settings.output}").generate(...), in Python')
    else:
        print_next(command("finetune", settings.output, "labelled.jsonl", "--output", "classifier"))


def _names(given: Any) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given or ())


def _files(given: Any, text_field: str) -> Any:
    """Sources of text and nothing else: on the command line no name is a text."""
    from longform_text.data.token_store import CorpusFiles

    return CorpusFiles(_names(given), text_field) if given else None


def _model_options(settings: Any) -> dict[str, Any]:
    given = {name: getattr(settings, name) for name in MODEL_OPTIONS if getattr(settings, name) is not None}
    dropout = given.pop("dropout", None)
    if dropout is not None:
        given |= {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    return given
