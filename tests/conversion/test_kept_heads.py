"""Heads left out in a conversion: those that stay compute what they did; what is refused says why."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import longform
from longform.cli.main import main
from longform.conversion.heads import needed_heads
from longform.errors import ConfigurationError

SHORT = {"max_length": 96, "projected_length": 24, "attention_window": 12}  # texts of 24 tokens are seen as wholes
SOURCES = ["Bert", "Roberta", "DistilBert", "Electra", "ModernBert", "NomicBert", "Gte", "JinaEmbeddingsV3"]
CLOSE = {"atol": 2e-6, "rtol": 2e-6}


def inputs() -> dict[str, Tensor]:
    ids = torch.randint(5, 167, (2, 19), generator=torch.Generator().manual_seed(3))
    return {"input_ids": ids, "attention_mask": (torch.arange(19) < torch.tensor([[19], [11]])).long()}


@torch.no_grad()
def without(model: Any, heads: list[list[int]]) -> Any:
    """The twin: a Longform of all heads, in which what the others attend to is zero, and their values' biases stay."""
    for layer, kept in zip(model.encoder.layers, heads, strict=True):
        attention = layer.attention
        times = attention.num_heads // attention.num_key_value_heads
        constant = 0.0
        for head in set(range(attention.num_heads)) - set(kept):
            columns = slice(head * attention.head_dim, (head + 1) * attention.head_dim)
            rows = slice(head // times * attention.head_dim, (head // times + 1) * attention.head_dim)
            if attention.value.bias is not None:
                constant = constant + attention.output.weight[:, columns] @ attention.value.bias[rows]
            attention.output.weight[:, columns] = 0.0
        if attention.output.bias is not None:
            attention.output.bias += constant
    return model


@pytest.mark.parametrize("name", SOURCES)
@torch.no_grad()
def test_a_smaller_model_computes_what_the_heads_that_stay_do(make_source: Any, name: str, tmp_path: Path) -> None:
    source = make_source(name)
    layers = source.config.num_hidden_layers
    heads = [[2, 0], [1, 2], [0, 1]][:layers]
    smaller = longform.convert(source, heads=heads, **SHORT)
    expected = without(longform.convert(source, **SHORT).model, heads)(**inputs()).last_hidden_state
    config, mask = smaller.model.config, inputs()["attention_mask"].bool()
    assert (config.num_attention_heads, config.head_size, config.hidden_size) == (2, 8, 24)
    assert_close(smaller.model(**inputs()).last_hidden_state[mask], expected[mask], **CLOSE)
    smaller.save_pretrained(tmp_path / "smaller")
    loaded = longform.LinformerModel.from_pretrained(tmp_path / "smaller")
    assert_close(loaded(**inputs()).last_hidden_state[mask], expected[mask], **CLOSE)


@torch.no_grad()
def test_whole_groups_of_heads_that_share_keys_go(make_source: Any) -> None:
    source = make_source("EuroBert", num_attention_heads=6, num_key_value_heads=3, head_dim=4)
    heads = [[0, 1, 4, 5], [2, 3, 4, 5]]
    smaller = longform.convert(source, heads=heads, **SHORT).model
    expected = without(longform.convert(source, **SHORT).model, heads)(**inputs()).last_hidden_state
    assert (smaller.config.num_attention_heads, smaller.config.num_key_value_heads) == (4, 2)
    mask = inputs()["attention_mask"].bool()
    assert_close(smaller(**inputs()).last_hidden_state[mask], expected[mask], **CLOSE)
    one_of_each = longform.convert(source, heads=[[0, 2, 5], [1, 3, 4]], **SHORT).model.config
    assert (one_of_each.num_attention_heads, one_of_each.num_key_value_heads) == (3, 3)
    with pytest.raises(ConfigurationError, match="every 2 heads share keys and values"):
        longform.convert(source, heads=[[0, 1, 2], [0, 1, 2]], **SHORT)


def test_the_report_says_what_went(make_source: Any) -> None:
    made = longform.convert(make_source("Bert"), heads=[[0, 2], [1, 2]], **SHORT)
    assert made.report.heads_left_out == [[1], [0]]
    assert "heads       1 a layer left out (from 0): 1; 0" in made.report.summary()
    records = {record.target: record for record in made.report.tensors}
    query, bias = (records[f"encoder.layers.0.attention.{name}"] for name in ("query.weight", "output.bias"))
    assert (query.action, query.shape, query.note) == ("cut", (24, 24), "3 -> 2 heads")
    assert bias.note == "with what 1 heads add to every token"
    card = made.report.card(made.model.config.to_dict(), auto="AutoModel", loader=None)
    assert "1 attention heads of each layer were left out" in card
    assert "the source's own" not in card


def test_all_heads_are_no_change(make_source: Any) -> None:
    made = longform.convert(make_source("Bert"), heads=[[0, 1, 2], [2, 1, 0]], **SHORT)
    assert made.report.heads_left_out is None
    assert made.model.config.head_dim is None


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        ([[0, 1]], "heads lists 1 layers, the source has 2"),
        ([[0], [0, 1]], "heads lists 1 heads for one layer and 2 for another"),
        ([[], []], r"heads of layer 0 \(the first is 0\) are \[\]: they must be from 1 to 3 different"),
        ([[0, 1], [0, 3]], r"heads of layer 1 .* are \[0, 3\]: .* from 0 to 2"),
        ([[0, 1], [1, 1]], "different whole numbers"),
        ([[0, True], [0, 1]], "different whole numbers"),
        ("all", "heads='all' must be a number of heads, or a list a layer"),
        (2, "heads=2 needs head_texts"),
        (4, "heads=4 must be from 1 to the source's 3"),
    ],
)
def test_lists_that_cannot_be_are_refused(make_source: Any, heads: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        longform.convert(make_source("Bert"), heads=heads, **SHORT)


def test_models_that_cannot_be_cut_are_refused(make_source: Any) -> None:
    heads = [[0, 1], [0, 1]]
    with pytest.raises(ConfigurationError, match="relative positions"):
        longform.convert(make_source("MPNet"), heads=heads)
    made = longform.convert(make_source("Bert"), **SHORT)
    with pytest.raises(ConfigurationError, match="not of a Longform"):
        longform.convert(made.model, heads=heads, **SHORT)
    with pytest.raises(ConfigurationError, match="an adapter is for all heads"):
        longform.convert(make_source("Bert"), heads=heads, adapter="minilm-16k")


def test_the_command_takes_lists_or_a_number_and_texts(bert_folder: Path, tmp_path: Path, capsys: Any) -> None:
    texts = tmp_path / "texts.jsonl"
    texts.write_text('{"text": "a b c a"}\n{"text": "c c b"}\n')
    options = ["--max-length", "96"]
    for place, given in (
        ("number", ["2", "--head-texts", str(texts)]),
        ("lists", ["[[0,2],[1,2]]"]),
    ):
        assert not main(["convert", str(bert_folder), str(tmp_path / place), "--heads", *given, *options])
        assert longform.LinformerModel.from_pretrained(tmp_path / place).config.num_attention_heads == 2
    assert main(["convert", str(bert_folder), str(tmp_path / "none"), "--heads", "2", *options])
    assert "--head-texts" in capsys.readouterr().err


@torch.no_grad()
def test_the_head_that_matters_least_goes(bert_folder: Path) -> None:
    """The twin takes out one head after another and looks at the layer's output, token by token."""
    texts = ["a b c a", "c c b a c b"]
    made = longform.convert(bert_folder, heads=1, head_texts=texts, max_length=40)
    whole = longform.convert(bert_folder, max_length=40)
    seen: list[list[Tensor]] = [[], []]
    for layer, found in zip(whole.model.encoder.layers, seen, strict=True):
        layer.attention.output.register_forward_pre_hook(lambda _layer, given, found=found: found.append(given[0][0]))
    for text in texts:
        whole.model(**whole.tokenizer(text, return_tensors="pt"))
    expected = []
    for layer, found in zip(whole.model.encoder.layers, seen, strict=True):
        contexts, weight = torch.cat(found).double(), layer.attention.output.weight.double()
        parts = [contexts[:, 8 * head : 8 * head + 8] @ weight[:, 8 * head : 8 * head + 8].T for head in range(3)]
        parts, gone = [part - part.mean(0) for part in parts], []
        for _ in range(2):
            left = [head for head in range(3) if head not in gone]
            gone.append(min(left, key=lambda head: sum(parts[i] for i in [*gone, head]).square().sum()))
        expected.append(sorted(gone))
    assert made.report.heads_left_out == expected


def test_heads_that_share_keys_go_together() -> None:
    products = torch.diag(torch.tensor([1.0, 9.0, 2.0, 2.0, 5.0, 6.0]))
    assert needed_heads(products, 3) == [1, 4, 5]
    assert needed_heads(products, 4, together=2) == [0, 1, 4, 5]
    products[2, 3] = products[3, 2] = 5.0  # both of them say the same
    assert needed_heads(products, 4) == [1, 3, 4, 5]
