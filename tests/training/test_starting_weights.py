"""A pre-training that goes on with an earlier one: what both models have is taken, for other attention and length."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from longform.cli.main import main
from longform.data.tokenizer_training import TokenizerSettings
from longform.errors import ConfigurationError
from longform.functional.positions.tables import extend_positions
from longform.models.task_heads import LinformerForMaskedLM
from longform.training.pretraining.model import Start, config_for, full_attention_twin, new_model
from longform.training.pretraining.run import PretrainingResult, pretrain
from longform.training.pretraining.settings import PretrainingSettings

SETTINGS = PretrainingSettings(
    tokens_per_step=64,
    tokens_per_forward=64,
    max_steps=2,
    learning_rate=3e-3,
    evaluations=0,
    validation_tokens=150,
    dtype="float32",
)
MODEL = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
    "max_position_embeddings": 16, "projected_length": 4, "projection": "linear", "projection_init": "block_mean",
}  # fmt: skip
TWIN = full_attention_twin(MODEL)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return [f"{word} rain falls on the hill and the river {word} runs to the sea " * 3 for word in "abcd" * 5]


@pytest.fixture(scope="module")
def twin(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "twin"
    pretrain(texts, SETTINGS, config=TWIN, tokenizer=TokenizerSettings("wordpiece", 60), output=folder, progress=False)
    return folder


def _go_on(texts: list[str], twin: Path, config: Any = None, **options: Any) -> PretrainingResult:
    settings = replace(SETTINGS, **options.pop("settings", {}))
    return pretrain(texts, settings, config=config, start=twin, progress=False, **options)


def test_it_goes_on_where_the_earlier_one_ended(texts: list[str], twin: Path) -> None:
    ended = [json.loads(line) for line in (twin / "records.jsonl").read_text().splitlines()]
    loss = next(row["loss"] for row in reversed(ended) if row["event"] == "validation")
    result = _go_on(texts, twin)
    assert result.curve[0]["loss"] == pytest.approx(loss, abs=1e-6)
    assert result.curve[-1]["loss"] < loss
    assert len(result.tokenizer) == result.model.config.vocab_size


@pytest.mark.parametrize("length", [16, 40])
@pytest.mark.parametrize("sharing", ["none", "headwise", "key_value", "layerwise"])
def test_other_attention_and_length(length: int, sharing: str, texts: list[str], twin: Path) -> None:
    first = LinformerForMaskedLM.from_pretrained(twin)
    fields = {**MODEL, "projection_sharing": sharing, "max_position_embeddings": length}
    fresh = new_model(config_for(fields, _go_on(texts, twin).tokenizer), 0)
    before = {name: value.clone() for name, value in fresh.state_dict().items()}
    Start(twin).begin(fresh)
    there, projections = first.state_dict(), 0
    for name, value in fresh.state_dict().items():
        if name.endswith("position_embeddings.weight"):
            assert torch.equal(value, extend_positions(there[name], length=length))
        elif name in there:
            assert torch.equal(value, there[name]), name
        else:
            projections += 1
            assert torch.equal(value, before[name]), name
    assert projections == {"none": 4, "headwise": 4, "key_value": 2, "layerwise": 1}[sharing]


def test_projections_of_a_longer_text_are_stretched(twin: Path, texts: list[str], tmp_path: Path) -> None:
    _go_on(texts, twin, MODEL, output=tmp_path / "linformer")
    first = LinformerForMaskedLM.from_pretrained(tmp_path / "linformer")
    fresh = new_model(LinformerForMaskedLM.config_class(**{**first.config.to_dict(), "max_position_embeddings": 32}), 0)
    Start(tmp_path / "linformer").begin(fresh)
    first.resize_sequence_length(32)
    assert all(torch.equal(value, fresh.state_dict()[name]) for name, value in first.state_dict().items())


def test_a_run_with_another_start_is_another_run(texts: list[str], twin: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    first = _go_on(texts, twin, MODEL, output=output)
    assert _go_on(texts, twin, MODEL, output=output).validation_loss == first.validation_loss
    with pytest.raises(ConfigurationError, match="start: "):
        pretrain(texts, SETTINGS, config=MODEL, tokenizer=twin, output=output, progress=False)
    with pytest.raises(ConfigurationError, match="which is read"):
        _go_on(texts, output, MODEL, output=output)


def test_what_does_not_fit(texts: list[str], twin: Path, tmp_path: Path, longform_folder: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"word_embeddings.weight \(\d+, 8\), there \(\d+, 16\); .* and .* more"
    ):
        _go_on(texts, twin, {**MODEL, "hidden_size": 8})
    with pytest.raises(ConfigurationError, match=r"layers.2.attention.query.weight .* there none"):
        Start(twin).begin(new_model(config_for({**MODEL, "num_hidden_layers": 3}, _go_on(texts, twin).tokenizer), 0))
    with pytest.raises(ConfigurationError, match="is not a folder"):
        _go_on(texts, tmp_path / "nothing")
    with pytest.raises(ConfigurationError, match="holds a LinformerModel"):
        _go_on(texts, longform_folder)


def test_on_the_command_line(texts: list[str], twin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    command = ["pretrain", str(tmp_path / "texts.txt"), "--start", str(twin), "--output", str(tmp_path / "out")]
    command += ["--tokens-per-step", "64", "--max-steps", "1", "--validation-tokens", "50", "--evaluations", "0"]
    assert main([*command, "--projection", "linear", "--projected-length", "8"]) == 0
    config = LinformerForMaskedLM.from_pretrained(tmp_path / "out").config
    assert (config.hidden_size, config.projection, config.projected_length) == (16, "linear", 8)
    assert main([*command, "--tokenizer-vocab-size", "50", "--restart"]) == 2
    assert "the tokenizer of --start is trained already: leave out --tokenizer-vocab-size" in capsys.readouterr().err
