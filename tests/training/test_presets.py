from pathlib import Path

import pytest

from longform.errors import ConfigurationError
from longform.models.configuration_linformer import LinformerConfig
from longform.training.pretraining.settings import load_preset, preset_names


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_is_a_model_that_can_be_made(name: str) -> None:
    preset = load_preset(name)
    config = LinformerConfig(**preset.model, vocab_size=preset.tokenizer.vocab_size)
    assert config.max_position_embeddings <= preset.training.tokens_per_step
    assert preset.description


def test_the_base_preset_has_roberta_s_size() -> None:
    preset = load_preset("base")
    assert (preset.model["hidden_size"], preset.tokenizer.vocab_size, preset.training.learning_rate) == (
        768,
        50_265,
        5e-4,
    )


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("model: {hidden: 3}", r"model 'hidden', which is not known; there are .*hidden_size"),
        ("optimiser: {}", "part 'optimiser', which is not known"),
        ("training: {steps: 3}", "training 'steps', which is not known"),
        ("model: true", "model: True, which is not settings by name"),
        ("training: {seed: null}", "seed: None in training; it takes int"),
        ("training: {max_steps: 1e999}", "max_steps: '1e999' in training; it takes int or nothing"),
        ("tokenizer: {lowercase: 1}", "lowercase: 1 in tokenizer; it takes bool"),
        ("[1", "not valid YAML"),
        ("3", "has no parts"),
        ("&a [*a]", "has no parts"),
        ("model: " + "1" * 5000, "not valid YAML"),
        ("model: 2001-99-99", "not valid YAML"),
        ("[" * 3000, "not valid YAML"),
    ],
)
def test_files_that_are_no_preset(text: str, named: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(ConfigurationError, match=named):
        load_preset(tmp_path / "mine.yaml")
