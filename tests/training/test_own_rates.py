"""Every training gives E and F the learning rate that longform.parameter_groups does, at every step of its schedule."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_models import make_sentence_transformer, save_longform
from transformers import BertModel

import longform
from longform.data.tokenizer_training import TokenizerSettings
from longform.layers.sequence_projection import DenseProjection
from longform.training.engine import trainer
from longform.training.labels import Examples
from longform.training.pretraining.run import pretrain
from longform.training.pretraining.settings import PretrainingSettings

RATE, DECAY = 1e-3, 0.03
COMMON: dict[str, Any] = {
    "max_steps": 3, "learning_rate": RATE, "weight_decay": DECAY, "dtype": "float32", "schedule": "linear",
    "warmup": 0.0,
}  # fmt: skip
LINEAR = {"projection": "linear", "projection_sharing": "layerwise", "projected_length": 8}

Rows = list[dict[str, tuple[float, float, float | None]]]
Training = Callable[[list[str], BertModel, Any, Path], object]


def _distil(optimizer: str) -> Training:
    def run(texts: list[str], teacher: BertModel, tokenizer: Any, folder: Path) -> object:
        student = longform.convert(
            teacher, tokenizer=tokenizer, max_length=32, projection="linear", sharing="layerwise", projected_length=8
        )
        given = {"length": 32, "min_length": 12, "tokens_per_step": 100, "heldout_documents": 4, "evaluations": 0}
        settings = longform.DistillationSettings(**COMMON, **given, optimizer=optimizer)
        return longform.distill(student, teacher, texts, settings, progress=False)

    return run


def _pretrain(texts: list[str], _teacher: BertModel, _tokenizer: Any, _folder: Path) -> object:
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    settings = PretrainingSettings(**COMMON, tokens_per_step=64, validation_tokens=100, evaluations=0)
    config = {**LINEAR, **sizes, "max_position_embeddings": 32}
    return pretrain(texts, settings, config=config, tokenizer=TokenizerSettings("wordpiece", 60), progress=False)


def _finetune(texts: list[str], _teacher: BertModel, tokenizer: Any, folder: Path) -> object:
    settings = longform.FinetuningSettings(**COMMON, validation_fraction=0.25)
    examples = Examples(texts, ["good", "bad"] * (len(texts) // 2))
    return longform.finetune(save_longform(folder, tokenizer, **LINEAR), examples, settings, progress=False)


def _align(texts: list[str], _teacher: BertModel, tokenizer: Any, folder: Path) -> object:
    save_longform(folder, tokenizer, **LINEAR)
    model = make_sentence_transformer(folder, pooling={"pooling_mode_mean_tokens": True}, normalise=True)
    given = {"documents_per_step": 4, "heldout_documents": 4, "keep_texts": 4, "evaluations": 0}
    pairs = [" ".join(text.split()[:3]) for text in texts], texts
    return longform.align(model, pairs, longform.AlignmentSettings(**COMMON, **given), progress=False)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Rows:
    """At each step, learning rate and weight decay of each trained parameter, beside what its module multiplies."""
    rows: Rows = []
    original = trainer.Training._take_step

    def watched(self: Any, *arguments: Any) -> Any:
        found = {
            p: (group["lr"], group["weight_decay"])
            for optimizer in self.optimizers
            for group in optimizer.param_groups
            for p in group["params"]
        }
        owners = [module for module in self.job.trained.modules() if isinstance(module, DenseProjection)]
        own = {p: module.learning_rate_multiplier for module in owners for p in module.parameters()}
        trained = {name: p for name, p in self.job.trained.named_parameters() if p.requires_grad}
        assert set(found) == set(trained.values())
        rows.append({name: (*found[p], own.get(p)) for name, p in trained.items()})
        return original(self, *arguments)

    monkeypatch.setattr(trainer.Training, "_take_step", watched)
    return rows


@pytest.mark.parametrize(
    "train", [_pretrain, _distil("muon"), _distil("adamw"), _finetune, _align],
    ids=["pretrain", "distill with muon", "distill with adamw", "finetune", "align"],
)  # fmt: skip
def test_projections_learn_at_their_own_rate(
    train: Training, steps: Rows, texts: list[str], teacher: BertModel, tiny_tokenizer: Any, tmp_path: Path
) -> None:
    train(texts, teacher, tiny_tokenizer, tmp_path)
    assert len(steps) == 3
    for step, row in enumerate(steps):
        assert {multiplier for _, _, multiplier in row.values()} > {None}
        for name, (rate, decay, multiplier) in row.items():
            assert rate == pytest.approx(RATE * (multiplier or 1.0) * (1 - step / 3)), name
            assert decay in ((0.0, DECAY) if name.endswith("weight") and multiplier is None else (0.0,)), name
        assert DECAY in {decay for _, decay, _ in row.values()}
