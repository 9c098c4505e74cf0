"""``compile`` of embed and predict: the eager result, and a handful of graphs for all lengths."""

from pathlib import Path

import numpy as np
import pytest
import torch
from json_lines import read_lines, write_lines
from tiny_models import save_longform
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

from longform_text.cli.main import main
from longform_text.inference.encoders import Encoder
from tolerances import TOLERANCES

WORDS = [3, 9, 9, 20, 26, 5, 40, 41, 12, 80, 33, 62, 7, 18]  # the model takes 64 tokens
MORE = [4, 11, 11, 21, 27, 6, 42, 43, 13, 79, 35, 61, 8, 19]


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> CompileCounterWithBackend:
    """Graphs are counted, and run without Inductor."""
    torch._dynamo.reset()
    made, compile_module = CompileCounterWithBackend("eager"), nn.Module.compile
    monkeypatch.setattr(nn.Module, "compile", lambda self, **options: compile_module(self, backend=made, **options))
    return made


def near(actual: object, expected: object) -> None:
    tolerance = TOLERANCES["model"][torch.float32]
    np.testing.assert_allclose(np.array(actual), np.array(expected), atol=tolerance.atol, rtol=tolerance.rtol)


def test_four_graphs_embed_texts_of_every_length(counter, tiny_tokenizer, tmp_path):
    folder = save_longform(tmp_path, tiny_tokenizer, attention_window=8, memory_budget=6.0, num_hidden_layers=1)
    eager, compiled = Encoder.from_pretrained(folder), Encoder.from_pretrained(folder, compile=True)
    assert type(compiled.model) is type(eager.model)
    assert counter.frame_count == 0
    texts = ["near far " * (words // 2) + "a " * (words % 2) for words in WORDS]
    near(compiled.encode(texts, max_tokens_per_batch=128), eager.encode(texts, max_tokens_per_batch=128))
    made = counter.frame_count
    assert 1 <= made <= 4  # one text or several, shorter than the limit or not
    others = ["far near " * (words // 2) for words in MORE]
    near(compiled.encode(others, max_tokens_per_batch=128), eager.encode(others, max_tokens_per_batch=128))
    assert counter.frame_count == made


def test_the_command_predicts_the_same(counter, tiny_tokenizer, tmp_path: Path):
    names = {0: "bad", 1: "good", 2: "odd"}
    folder = save_longform(
        tmp_path / "model", tiny_tokenizer, head="classification", num_hidden_layers=1, id2label=names
    )
    write_lines(tmp_path / "texts.jsonl", ({"text": "good " * n} for n in WORDS))
    scores = []
    for name, option in (("eager", []), ("compiled", ["--compile"])):
        output = tmp_path / f"{name}.jsonl"
        assert main(["predict", str(folder), str(tmp_path / "texts.jsonl"), "--output", str(output), *option]) == 0
        records = read_lines(output)
        scores.append([list(record["scores"].values()) for record in records])
    assert 1 <= counter.frame_count <= 4
    near(*scores)
