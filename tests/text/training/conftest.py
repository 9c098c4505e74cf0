"""A tiny teacher, a tiny Longform, texts with something to learn, and trainings that are broken off."""

import multiprocessing
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from shared_trainings import LINEAR, Given
from tiny_models import make_sentence_transformer, save_longform
from transformers import BertConfig, BertForMaskedLM, BertModel

import longform
from longform_text.training.trainer import Trainer

WORDS = ["the", "a", "of", "and", "to", "in", "is", "it", "for", "long", "short", "text", "near", "far", "good", "bad"]
SHAPE = {"hidden_size": 20, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 28}


@pytest.fixture
def teacher(tiny_tokenizer: Any) -> BertModel:
    torch.manual_seed(7)
    return BertModel(BertConfig(vocab_size=len(tiny_tokenizer), max_position_embeddings=32, **SHAPE)).eval()


@pytest.fixture
def teacher_with_head(tiny_tokenizer: Any) -> BertForMaskedLM:
    torch.manual_seed(7)
    return BertForMaskedLM(BertConfig(vocab_size=len(tiny_tokenizer), max_position_embeddings=32, **SHAPE)).eval()


@pytest.fixture
def texts() -> list[str]:
    draw = random.Random(3)
    return [" ".join(draw.choices(WORDS, k=draw.randint(3, 90))) for _ in range(60)]


@pytest.fixture
def student_folder(teacher: BertModel, tiny_tokenizer: Any, tmp_path: Path) -> Path:
    """The teacher, converted."""
    folder = tmp_path / "student"
    longform.convert(
        teacher, tokenizer=tiny_tokenizer, max_length=64, projected_length=8, attention_window=None, memory_budget=None
    ).save_pretrained(folder)
    return folder


@pytest.fixture
def given(texts: list[str], teacher: BertModel, tiny_tokenizer: Any, tmp_path: Path) -> Given:
    (tmp_path / "model").mkdir()
    folder = save_longform(tmp_path / "model", tiny_tokenizer, **LINEAR)
    make_sentence_transformer(folder, pooling={"pooling_mode_mean_tokens": True}, normalise=True)
    return Given(texts, teacher, tiny_tokenizer, folder)


@pytest.fixture
def break_off(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A function that runs a training until a step: there it is interrupted, or ``killed`` in a process for it."""

    def run_until(step: int, train: Callable[[], object], *, killed: bool = False) -> None:
        training_step = Trainer.training_step

        def stopping(self: Trainer, *arguments: Any) -> Any:
            if self.state.global_step == step:
                if killed:
                    os.kill(os.getpid(), signal.SIGKILL)
                raise KeyboardInterrupt
            return training_step(self, *arguments)

        with monkeypatch.context() as patched:
            patched.setattr(Trainer, "training_step", stopping)
            if killed:
                process = multiprocessing.get_context("fork").Process(target=train)
                process.start()
                process.join()
                assert process.exitcode == -signal.SIGKILL
            else:
                with pytest.raises(KeyboardInterrupt):
                    train()

    return run_until
