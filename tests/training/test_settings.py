from typing import Any

import pytest
import torch

from longform.errors import ConfigurationError
from longform.training.engine.settings import DistillationSettings, FinetuningSettings, compute_dtype


@pytest.mark.parametrize(
    ("kind", "changed", "named"),
    [
        (DistillationSettings, {"max_minutes": -1}, "max_minutes=-1"),
        (DistillationSettings, {"learning_rate": 0.0}, "learning_rate=0.0 must be more than 0"),
        (DistillationSettings, {"warmup": 1.5}, "warmup=1.5 must be between 0 and 1"),
        (DistillationSettings, {"schedule": "step"}, 'schedule="step"; it is one of cosine, linear, constant'),
        (DistillationSettings, {"dtype": "float16"}, 'dtype="float16"'),
        (DistillationSettings, {"length": 100}, "min_length=128 is more than length=100"),
        (DistillationSettings, {"max_tokens": -1}, "max_tokens=-1"),
        (DistillationSettings, {"evaluations": -1}, "evaluations=-1"),
        (FinetuningSettings, {"task": "ranking"}, 'task="ranking"'),
        (FinetuningSettings, {"batch_size": 0}, "batch_size=0"),
        (FinetuningSettings, {"epochs": float("inf")}, "epochs=inf must be more than 0, and finite"),
        (FinetuningSettings, {"epochs": float("nan")}, "epochs=nan must be more than 0"),
        (FinetuningSettings, {"metric": "f1"}, 'metric="f1"'),
        (FinetuningSettings, {"classifier_pooling": "max"}, 'classifier_pooling="max"; it is one of cls, mean, lead'),
        (FinetuningSettings, {"save_every_steps": 0}, "save_every_steps=0 must be more than 0"),
        (FinetuningSettings, {"validation_fraction": 1.0}, "validation_fraction=1.0"),
    ],
)
def test_values_that_cannot_be(kind: type, changed: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        kind(**changed)


def test_dtypes() -> None:
    cpu = torch.device("cpu")
    assert compute_dtype("float32", cpu) is torch.float32
    assert compute_dtype("bfloat16", cpu) is torch.bfloat16
    assert compute_dtype("auto", cpu) in (torch.float32, torch.bfloat16)
