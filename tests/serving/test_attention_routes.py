"""What a word draws on, as the server answers, is what the effective maps say."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from starlette.testclient import TestClient
from tiny_models import save_bert, save_longform

from longform.models.effective_maps import effective_maps
from longform.serving.engine import Engine
from longform.serving.settings import ServingSettings

TEXT = "The near text, 🙂 nearly far and far. " * 3


def twin(engine: Engine, text: str, word: tuple[int, int], words: Any, heads: slice = slice(None)) -> np.ndarray:
    """By the characters of each token instead of the tokenizer's words, float64 (L, m)."""
    tokenizer: Any = engine.runner.tokenizer
    made = tokenizer(text, truncation=True, max_length=engine.runner.limit, return_offsets_mapping=True)
    places = made["offset_mapping"]
    ids = torch.tensor([made["input_ids"]])
    found = []
    for each in effective_maps(engine.runner.model, input_ids=ids, attention_mask=torch.ones_like(ids)):
        full = each[0, heads].double().mean(dim=0).numpy()
        rows = [full[row] for row, (start, end) in enumerate(places) if end > start and word[0] <= start < word[1]]
        row = np.mean(rows, axis=0)
        found.append([sum(row[at] for at, (a, b) in enumerate(places) if b > a and start <= a < end)
                      for start, end in words])  # fmt: skip
    return np.array(found)


def test_what_a_word_draws_on(client: TestClient, engine: Engine) -> None:
    for text in (TEXT, "x", TEXT * 20):
        plain = client.post("/attention", json={"inputs": text}).json()
        assert plain["weights"] is plain["special"] is None
        words = [(each["start"], each["end"]) for each in plain["words"]]
        for number in {0, len(words) // 2, len(words) - 1}:
            found = client.post("/attention", json={"inputs": text, "word": number}).json()
            weights = np.array(found["weights"])
            np.testing.assert_allclose(weights, twin(engine, text, words[number], words), rtol=0, atol=1e-6)
            np.testing.assert_allclose(weights.sum(axis=1) + found["special"], 1.0, rtol=0, atol=1e-6)
            found = client.post("/attention", json={"inputs": text, "word": number, "head": 1}).json()
            right = twin(engine, text, words[number], words, slice(1, 2))
            np.testing.assert_allclose(found["weights"], right, rtol=0, atol=1e-6)
        assert plain["tokens"] <= engine.runner.limit
        assert plain["truncated"] == (len(text) > len(TEXT))
    assert [TEXT[start:end] for start, end in words[:5]] == ["The", "near", "text", ",", "🙂"]


def test_near_words_are_those_inside_the_window(serve: Any, tiny_tokenizer: Any, tmp_path: Path) -> None:
    folder = save_longform(tmp_path, tiny_tokenizer, attention_window=3, projected_length=22)
    client = serve(Engine.load(str(folder), ServingSettings()))
    text = "far near text for it is so"
    for number, near in ((0, [0, 3]), (3, [0, 6]), (6, [3, 6])):
        assert client.post("/attention", json={"inputs": text, "word": number}).json()["near"] == near


def test_what_is_refused(serve: Any, client: TestClient, tiny_tokenizer: Any, tmp_path: Path) -> None:
    wrong: list[dict[str, Any]] = [
        {"inputs": "x", "word": 1},
        {"inputs": "x", "word": 0, "head": 99},
        {"inputs": "x", "word": -1},
        {"inputs": ["x"]},
    ]
    for body in (*wrong, {"inputs": " ", "word": 0}):
        assert client.post("/attention", json=body).status_code == 422, body
    assert client.post("/attention", json={"inputs": ""}).status_code == 400
    for folder, why in (
        (save_bert(tmp_path / "bert", tiny_tokenizer), "no Longform"),
        (save_longform(tmp_path / "max", tiny_tokenizer, projection="max"), 'the projection "max"'),
    ):
        refused = serve(Engine.load(str(folder), ServingSettings())).post("/attention", json={"inputs": "x"})
        assert refused.status_code == 424
        assert why in refused.json()["error"]


def test_a_classifier_is_looked_at_too(serve: Any, classifier_folder: Path) -> None:
    found = serve(Engine.load(str(classifier_folder), ServingSettings())).post(
        "/attention", json={"inputs": "the near text", "word": 1}
    )
    assert np.array(found.json()["weights"]).shape[1] == 3
