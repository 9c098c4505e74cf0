"""Fields of settings as options: the help of each is what the docstring says, however that is indented."""

import inspect
from dataclasses import fields

import pytest

from longform.cli.arguments import field_helps
from longform.data.tokenizer_training import TokenizerSettings
from longform.training.engine.settings import DistillationSettings, FinetuningSettings
from longform.training.pretraining.settings import PretrainingSettings


@pytest.mark.parametrize("settings", [DistillationSettings, FinetuningSettings, PretrainingSettings, TokenizerSettings])
def test_every_field_has_its_help_with_and_without_indentation(settings: type, monkeypatch: pytest.MonkeyPatch) -> None:
    helps = field_helps(settings)
    assert helps.keys() >= {field.name for field in fields(settings)}
    assert all(helps.values())
    monkeypatch.setattr(settings, "__doc__", inspect.cleandoc(settings.__doc__))  # as Python 3.13 compiles it
    assert field_helps(settings) == helps
