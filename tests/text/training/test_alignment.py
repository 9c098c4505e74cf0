"""Alignment: its loss beside sentence-transformers' own, its gradient, what is read, and whole runs."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from tiny_models import make_sentence_transformer, save_bert, save_longform
from transformers import AutoModel

from longform.errors import CheckpointError, ConfigurationError, DataError
from longform_text.inference.encoders import Encoder
from longform_text.training.alignment.model import AlignmentLoss, open_sentence_model, ranking_loss
from longform_text.training.alignment.run import align
from longform_text.training.alignment.settings import AlignmentSettings, AlignmentSource
from longform_text.training.alignment.sources import Example
from longform_text.training.alignment.steps import Reader, right_passages
from longform_text.training.run import measured

SETTINGS = AlignmentSettings(
    max_steps=6, documents_per_step=4, learning_rate=3e-3, heldout_documents=4, eval_steps=0.5, save_steps=2,
    keep_texts=4, dropout=0.1, bf16=False,
)  # fmt: skip
CPU = torch.device("cpu")


def _none(texts: list[str]) -> np.ndarray:
    return np.zeros((len(texts), 24), np.float32)


@pytest.fixture(scope="module")
def longform_model(tiny_tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_longform(tmp_path_factory.mktemp("longform"), tiny_tokenizer, attention_window=8)
    return make_sentence_transformer(folder, pooling={"pooling_mode_mean_tokens": True}, normalise=True)


@pytest.fixture(scope="module")
def original(tiny_tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_bert(tmp_path_factory.mktemp("original"), tiny_tokenizer)
    return make_sentence_transformer(folder, pooling={"pooling_mode_mean_tokens": True}, normalise=True)


@pytest.fixture(scope="module")
def pairs() -> tuple[list[str], list[str]]:
    """Queries, each of two rare words, and documents that hold them among others."""
    draw = random.Random(3)
    rare = [first + second for first in "bcdfghkl" for second in "aeiou"]
    queries, documents = [], []
    for first, second in zip(rare[::2], rare[1::2], strict=True):
        words = draw.choices(["the", "good", "text", "is", "long"], k=14) + [first, second] * 3
        draw.shuffle(words)
        queries.append(f"{second} {first} to")
        documents.append(f"{' '.join(words)}. It is a short text for it.")
    return queries, documents


def test_the_loss_is_that_of_sentence_transformers(longform_model: Path) -> None:
    queries, documents = torch.randn(5, 7), torch.randn(5, 7)
    other = MultipleNegativesRankingLoss(SentenceTransformer(str(longform_model), device="cpu"), scale=20.0)
    expected = other.compute_loss_from_embeddings([queries, documents], None)
    answers = torch.eye(5, dtype=torch.bool)
    found = ranking_loss(queries, documents, answers, torch.zeros(5, 5, dtype=torch.bool), 0.05)
    torch.testing.assert_close(found, expected)
    excluded = answers.roll(1, dims=1)  # one wrong document of each query does not count
    assert ranking_loss(queries, documents, answers, excluded, 0.05) < found


def test_several_answers_share_the_mass_of_the_softmax() -> None:
    queries, given = torch.randn(3, 5, dtype=torch.float64), torch.randn(6, 5, dtype=torch.float64)
    answers, excluded = torch.zeros(3, 6, dtype=torch.bool), torch.zeros(3, 6, dtype=torch.bool)
    answers[0, 1] = answers[1, [0, 4]] = answers[2, 5] = excluded[0, [0, 2]] = excluded[2, 0] = True
    scores = torch.nn.functional.normalize(queries, dim=1) @ torch.nn.functional.normalize(given, dim=1).T / 0.3
    mass = scores.masked_fill(excluded, -torch.inf).softmax(dim=1)
    expected = -(mass * answers).sum(dim=1).log().mean()
    torch.testing.assert_close(ranking_loss(queries, given, answers, excluded, 0.3), expected)


def test_the_share_of_the_loss_within_a_document(longform_model: Path, pairs: tuple[list[str], list[str]]) -> None:
    opened, (queries, documents) = open_sentence_model(longform_model, CPU), pairs
    documents = [" ".join(documents[place : place + 3]) for place in range(4)]
    examples = [Example(i, documents[i], [queries[i]], [{i}], [[(0, 20)]] if i else [[]]) for i in range(4)]
    step = Reader(opened.trained.sides, 64, 400, 9).step(examples, [])
    own = step.answers[:, None] == step.owners
    assert bool((step.right[0] == own[0]).all())
    assert step.right[1:].sum(dim=1).tolist() != own[1:].sum(dim=1).tolist()
    with torch.no_grad():
        vectors = [[opened.trained.eval()(dict(batch))["sentence_embedding"]] for batch in step.batches]
        wanted, passages, _ = step.parted([batch for (batch,) in vectors])
        scores = (
            torch.nn.functional.normalize(wanted, dim=1) @ torch.nn.functional.normalize(passages, dim=1).T / 0.1
        ).exp()
        right = (scores * step.right).sum(dim=1)
        outside = -(right / (right + (scores * ~own).sum(dim=1))).log().mean()
        inside = -(right / (scores * own).sum(dim=1)).log().mean()
        for share in (0.0, 0.25, 1.0):
            loss = AlignmentLoss(temperature=0.1, keep_weight=0.0, same_document=share, vectors_before=_none)
            found = loss.calculate_loss(vectors, step)
            torch.testing.assert_close(found, share * inside + (1 - share) * outside, rtol=1e-4, atol=1e-5)


def test_passages_that_spans_say_are_right() -> None:
    passages = np.array([[0, 10], [11, 20], [21, 30], [31, 33]])
    for spans, expected in (
        ([], [True, True, True, True]),
        ([(0, 10)], [True, False, False, False]),
        ([(4, 30)], [True, True, True, False]),
        ([(6, 31)], [False, True, True, False]),
        ([(9, 12)], [False, False, False, False]),
        ([(12, 13), (31, 40)], [False, True, False, True]),
        ([(40, 50)], [True, True, True, True]),
    ):
        found = right_passages(spans, passages).tolist()
        assert found == (expected if any(expected) else [True] * 4)


@pytest.mark.parametrize("spans", [[[5, 3]], [[0, 2000]], [[0, "a"]], [3], "abc", [[-1, 4]]])
def test_spans_that_are_not_in_the_document(longform_model: Path, spans: Any) -> None:
    rows = [{"query": f"near {n}", "document": f"a text {n}", "where": None} for n in range(4)]
    source = AlignmentSource(pairs=[*rows, rows[0] | {"where": spans}], spans_field="where")
    with pytest.raises(DataError, match=r'"where" is .* it is a list of characters from-to of a document of 8'):
        align(longform_model, source, max_steps=1, progress=False)


def test_passages_of_a_document_are_told_apart_after_training(longform_model: Path) -> None:
    words = ["near", "far", "good", "bad", "long", "short"]
    rows = []
    for number in range(24):
        order = random.Random(number).sample(words, 6)
        text = ". ".join(f"the {word} {word} {word} {word} it" for word in order)
        for word in order:
            start = text.index(word)
            rows.append({"query": f"{word} {number}", "document": f"{text} {number}", "where": [[start, start + 20]]})
    settings = AlignmentSettings(
        max_steps=24, documents_per_step=4, queries_per_document=6, passage_tokens=7, heldout_documents=4,
        keep_weight=0.0, learning_rate=3e-3, train_word_embeddings=True, same_document_negatives=0.5,
        passage_boundaries="sentences", bf16=False,
    )  # fmt: skip
    source = AlignmentSource(pairs=rows, spans_field="where")
    result = align(longform_model, source, settings, progress=False)
    assert result.after["same_document"] > result.before["same_document"] + 0.05
    assert "in their document" in result.report
    losses = [row["loss"] for row in result.records if "loss" in row]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(("dropout", "passage_tokens"), [(0.3, None), (0.0, 9)])
def test_the_gradient_cache_gives_the_gradient_of_the_whole_step(
    dropout: float, passage_tokens: int | None, longform_model: Path, pairs: tuple[list[str], list[str]]
) -> None:
    opened = open_sentence_model(longform_model, CPU)
    reader = Reader(opened.trained.sides, 64, 40, passage_tokens)
    queries, documents = pairs
    examples = [
        Example(i, 2 * documents[i], [queries[i], f"{queries[i]} too"], [{i}, {i, 2}], [[(0, 9)], []]) for i in range(4)
    ]
    step = reader.step(examples, ["a short text", "bad"])
    assert len(step.batches) > 5
    for module in opened.trained.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = dropout
    kept = torch.randn(2, 24)
    gradients = []
    model = opened.trained.train()
    loss = AlignmentLoss(temperature=0.1, keep_weight=0.7, vectors_before=lambda _: kept.numpy())
    for cached in (False, True):
        torch.manual_seed(5)
        model.zero_grad()
        if cached:
            value = loss(model, {"step": step})
        else:
            vectors = [[model(dict(batch))["sentence_embedding"]] for batch in step.batches]
            value = loss.calculate_loss(vectors, step)
        (0.5 * value).backward()
        gradients.append((value.detach(), [p.grad.clone() for p in opened.trained.parameters() if p.grad is not None]))
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-6)


def test_a_step_reads_what_is_read_in_use(original: Path, pairs: tuple[list[str], list[str]]) -> None:
    opened = open_sentence_model(original, CPU)
    reader = Reader(opened.trained.sides, 32, 70)
    queries, documents = pairs[0][:5], [" ".join([text] * repeats) for repeats, text in enumerate(pairs[1][:5], 1)]
    examples = [Example(i, documents[i], [queries[i]], [{i}]) for i in range(5)]
    step = reader.step(examples, ["a short text"])
    with torch.no_grad():
        found = step.parted([opened.trained.eval()(batch)["sentence_embedding"] for batch in step.batches])
    encoder = Encoder.from_pretrained(original, device="cpu")
    for vectors, texts in zip(found, (queries, documents, ["a short text"]), strict=True):
        unit = torch.nn.functional.normalize(vectors, dim=-1).numpy()
        np.testing.assert_allclose(unit, encoder.encode(texts), atol=1e-5)


def test_passages_are_those_of_the_whole_reading(longform_model: Path, pairs: tuple[list[str], list[str]]) -> None:
    opened = open_sentence_model(longform_model, CPU)
    reader = Reader(opened.trained.sides, 64, 70, 9)
    texts = (pairs[1][0], "a text", pairs[1][2])
    examples = [Example(place, text, [pairs[0][place]], [{place}]) for place, text in enumerate(texts)]
    step = reader.step(examples, [])
    with torch.no_grad():
        _, found, _ = step.parted([opened.trained.eval()(batch)["sentence_embedding"] for batch in step.batches])
    encoder = Encoder.from_pretrained(longform_model, device="cpu")
    expected = list(encoder.encode_chunks([example.document for example in examples], chunk_tokens=9))
    unit = torch.nn.functional.normalize(found, dim=-1).numpy()
    np.testing.assert_allclose(unit, np.concatenate([each.vectors for each in expected]), atol=1e-5)
    assert step.owners.bincount().tolist() == [len(each.vectors) for each in expected]


def test_an_answer_is_no_wrong_answer(longform_model: Path) -> None:
    opened = open_sentence_model(longform_model, CPU)
    examples = [
        Example(7, "one text", ["a question", "long and far"], [{7, 9}, {7}]),
        Example(8, "a text that is long and far away", ["near"], [{8}]),
        Example(9, "another text", ["good"], [{9}]),
    ]
    step = Reader(opened.trained.sides, 64, 1000).step(examples, [])
    assert step.answers.tolist() == [0, 0, 1, 2]
    assert step.excluded.tolist() == [[False, False, True], [False, True, False], [False] * 3, [False] * 3]


def test_documents_are_found_after_training(
    longform_model: Path, pairs: tuple[list[str], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(SETTINGS, max_steps=16, documents_per_step=8, train_word_embeddings=True, dropout=0.0)
    result = align(longform_model, pairs, settings, output=tmp_path / "out", progress=False)
    losses = [row["loss"] for row in result.records if "loss" in row]
    assert sum(losses[-4:]) < 0.3 * sum(losses[:4])
    assert (result.steps, result.documents) == (16, 128)
    assert [row["step"] for row in measured(result.records, "ndcg")] == [0, 8, 16]
    assert result.before["short_cosine"] == pytest.approx(1, abs=1e-5)
    assert 0.5 < result.after["short_cosine"] < 0.9999
    texts = pairs[1][:3]
    vectors = Encoder.from_pretrained(tmp_path / "out", device="cpu").encode(texts)
    np.testing.assert_allclose(vectors, result.model.encode(texts), atol=1e-5)
    assert {"README.md", "run.json", "records.jsonl"} <= {path.name for path in (tmp_path / "out").iterdir()}
    assert f"| after | {result.after['ndcg']:.4f} |" in (tmp_path / "out" / "README.md").read_text()
    monkeypatch.setattr("longform_text.training.trainer.Trainer.train", None)  # not repeated
    again = align(longform_model, pairs, settings, output=tmp_path / "out", progress=False)
    torch.testing.assert_close(again.model.state_dict(), result.model.state_dict(), rtol=0, atol=0)
    assert again.after == result.after


def test_short_texts_stay_near_by_their_weight(longform_model: Path, pairs: tuple[list[str], list[str]]) -> None:
    moved = []
    for weight in (0.0, 30.0):
        how: Any = {"documents_per_step": 8, "keep_weight": weight, "keep_texts": 6, "eval_strategy": "no"}
        settings = replace(SETTINGS, dropout=0.0, **how)
        moved.append(1 - align(longform_model, pairs, settings, progress=False).after["short_cosine"])
    assert moved[1] < 0.3 * moved[0]


def test_an_adapter_learns_in_place_of_the_weights(
    longform_model: Path, pairs: tuple[list[str], list[str]], tmp_path: Path
) -> None:
    before = AutoModel.from_pretrained(longform_model)
    settings = replace(SETTINGS, lora_rank=3, heldout_documents=0, max_steps=3, dropout=0.0)
    result = align(longform_model, pairs, settings, output=tmp_path / "out", progress=False)
    tensors = load_file(tmp_path / "out" / "adapter" / "adapter_model.safetensors")
    assert {value.dtype for value in tensors.values()} == {torch.float16}
    assert max(min(value.shape) for value in tensors.values()) == 3
    assert any(bool(value.any()) for name, value in tensors.items() if "lora_B" in name)
    adapted: Any = PeftModel.from_pretrained(before, tmp_path / "out" / "adapter").merge_and_unload()
    torch.testing.assert_close(adapted.state_dict(), AutoModel.from_pretrained(tmp_path / "out").state_dict())
    assert all(parameter.requires_grad for parameter in result.model.parameters())
    assert not any("lora" in name for name in result.model.state_dict())


@pytest.mark.parametrize(
    ("sources", "settings", "error", "message"),
    [
        ((["a"], ["b"]), {}, DataError, "1 documents with queries: .* two are needed"),
        (["a text"], {}, DataError, "a row with fields is needed, this is str"),
        ([{"query": "a", "text": "b"}], {}, DataError, 'no field "document"; the fields there are: query, text'),
        ([AlignmentSource(pairs="a"), "b"], {}, ConfigurationError, "sources are AlignmentSource, all of them"),
        ((["a", "b"], ["c", "d"]), {"max_length": 99}, ConfigurationError, "max_length is 99, but the model takes 64"),
        (AlignmentSource(texts=["a. b."] * 3), {}, DataError, r"no pair \(passage, sentence\) can be made of any of 3"),
    ],
)
def test_what_cannot_be_aligned(
    sources: Any, settings: dict[str, Any], error: type[Exception], message: str, longform_model: Path
) -> None:
    with pytest.raises(error, match=message):
        align(longform_model, sources, AlignmentSettings(max_steps=1, **settings), progress=False)


def test_what_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="a folder, a hub name, a ConversionResult or a SentenceTransformer"):
        align(torch.nn.Linear(1, 1), (["a", "b"], ["c", "d"]))
    with pytest.raises(CheckpointError, match="there is no such folder"):
        align(tmp_path / "none", (["a", "b"], ["c", "d"]))
