"""Commands with ``--device cuda``, from a tiny BERT to a classifier and vectors; what they write is a CPU's, nearly."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from json_lines import read_lines, write_lines
from tiny_models import save_bert
from transformers import AutoModel

from longform_text.cli.main import main
from longform_text.training.trainer import Trainer

TEXTS = ["the good text is long " * 9, "a bad text is short " * 8] * 12
CUDA = ["--device", "cuda"]
HEADS = {"hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 96}  # of 32 features: the Triton kernel's


@pytest.fixture
def files(tiny_tokenizer: Any, tmp_path: Path) -> Path:
    save_bert(tmp_path / "original", tiny_tokenizer, **HEADS)
    rows = [{"text": text, "label": text.split()[1]} for text in TEXTS]
    write_lines(tmp_path / "texts.jsonl", rows)
    converted = ["convert", str(tmp_path / "original"), str(tmp_path / "long"), "--max-length", "64"]
    assert main([*converted, "--attention-window", "16"]) == 0
    return tmp_path


def vectors(folder: Path, texts: Path, device: str) -> np.ndarray:
    place = folder.parent / f"{folder.name}-{device}.jsonl"
    assert main(["embed", str(folder), str(texts), "--output", str(place), "--device", device]) == 0
    return np.array([json.loads(line)["embedding"] for line in place.read_text().splitlines()])


def test_from_an_original_to_a_classifier(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts, healed = files / "texts.jsonl", files / "healed"
    steps = ["--max-steps", "3", "--tokens-per-step", "200", *CUDA]
    lengths = ["--length", "48", "--min-length", "16", "--heldout-documents", "4"]
    given = [str(files / "long"), str(files / "original"), str(texts), "--output", str(healed)]
    assert main(["distill", *given, *lengths, *steps]) == 0
    assert "3 steps" in capsys.readouterr().out
    on_gpu, on_cpu = vectors(healed, texts, "cuda"), vectors(healed, texts, "cpu")
    cosine = (on_gpu * on_cpu).sum(-1) / np.linalg.norm(on_gpu, axis=-1) / np.linalg.norm(on_cpu, axis=-1)
    assert cosine.min() > 0.99  # bfloat16 there

    classifier = files / "classifier"
    tuned = ["finetune", str(healed), str(texts), "--output", str(classifier), "--max-steps", "3", *CUDA]
    assert main([*tuned, "--validation-fraction", "0.25"]) == 0
    predicted = files / "labels.jsonl"
    assert main(["predict", str(classifier), str(texts), "--output", str(predicted), *CUDA]) == 0
    assert len(predicted.read_text().splitlines()) == len(TEXTS)


def test_a_run_goes_on_where_it_was(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["distill", str(files / "long"), str(files / "original"), str(files / "texts.jsonl"), "--dtype", "float32"]
    given += ["--length", "48", "--min-length", "16", "--heldout-documents", "4", "--tokens-per-step", "200", *CUDA]
    given += ["--max-steps", "6", "--save-every-steps", "2", "--learning-rate", "3e-3", "--output"]
    assert main([*given, str(files / "whole")]) == 0
    step, made = Trainer.training_step, []

    def stopped(self: Any, *arguments: Any) -> torch.Tensor:
        made.append(self.step)
        if made == [0, 1, 2, 3]:
            raise KeyboardInterrupt
        return step(self, *arguments)

    monkeypatch.setattr(Trainer, "training_step", stopped)
    assert main([*given, str(files / "parts")]) != 0
    assert main([*given, str(files / "parts")]) == 0
    assert made == [0, 1, 2, 3, 2, 3, 4, 5]
    whole, parts = (AutoModel.from_pretrained(files / name).state_dict() for name in ("whole", "parts"))
    for name, one in whole.items():
        torch.testing.assert_close(parts[name], one, atol=1e-4, rtol=1e-3, msg=name)


@pytest.mark.parametrize("options", [[], ["--attention", "full"], ["--projection", "mean", "--attention-window", "16"]])
def test_pretraining(options: list[str], files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--hidden-size", "64", "--num-attention-heads", "2", "--num-hidden-layers", "2", "--projected-length", "8"]
    sizes += ["--max-position-embeddings", "64", "--tokenizer-kind", "wordpiece", "--tokenizer-vocab-size", "45"]
    output = files / "trained"
    training = ["--max-steps", "3", "--tokens-per-step", "128", "--evaluations", "1", *CUDA]
    assert main(["pretrain", str(files / "texts.jsonl"), "--output", str(output), *sizes, *options, *training]) == 0
    assert "trained  3 steps" in capsys.readouterr().out
    texts = ["--text", str(files / "texts.jsonl"), "--max-length", "64", "--index", "16"]
    assert main(["spectrum", str(output), *texts, "--output", str(files / "spectrum"), *CUDA]) == 0


def test_a_benchmark(tmp_path: Path) -> None:
    competitors = ["ours-window", "ours-linear", "sdpa"]
    grid = ["--lengths", "512", "--sizes", "minilm", "--passes", "inference", "train", "--competitors", *competitors]
    assert main(["benchmark", *grid, "--repeats", "2", "--output", str(tmp_path), *CUDA]) == 0
    rows = read_lines(next(tmp_path.glob("*.jsonl")))
    assert len(rows) == 6
    assert all(row["metrics"]["seconds"] > 0 and row["metrics"]["peak_mib"] > 0 for row in rows), rows
