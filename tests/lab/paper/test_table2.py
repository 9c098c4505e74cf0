"""Table 2: every model on the same texts with the same head; finished fine-tunings stay; what is missing is said."""

import random
from dataclasses import replace

import pytest
import torch
from json_lines import write_lines
from tiny_models import save_bert

from longform.errors import ConfigurationError, DataError
from longform_lab.paper import table2 as module
from longform_lab.paper.table2 import Table2, Table2Scale, reproduce_table2
from longform_lab.paper.table2_models import variants, with_new_head
from longform_lab.paper.table2_report import accuracy_table, gaps, page_of_table2, scores_of
from longform_lab.paper.table2_tasks import TASKS, Amount, read_task


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    draw = random.Random(0)
    rows = [
        {"sentence1": draw.choice(["good text", "bad text"]), "sentence2": "a long text", "label": place % 2}
        for place in range(40)
    ]
    write_lines(folder / "rte_train.jsonl", rows)
    return str(folder)


@pytest.fixture(scope="module")
def source(tmp_path_factory, tiny_tokenizer):
    return str(save_bert(tmp_path_factory.mktemp("model"), tiny_tokenizer))


@pytest.mark.nightly
def test_models_fine_tune_on_the_same_texts_and_go_on(data, source, tmp_path, monkeypatch):
    amounts = {name: Amount(12, 6, 24) for name in ("RTE", "IMDB")}
    scale = Table2Scale(source, amounts, epochs=1, learning_rate=1e-3, batch_size=6)
    asked = Table2(
        scale, data, tmp_path, seeds=(0,), tasks=("RTE",), models=("original", "linear-128-layerwise"), progress=False
    )
    finished, lacking = reproduce_table2(asked)
    assert lacking == 0
    settings = [one.record.settings for one in finished]
    assert [(one["model"], one["train"], one["dev"], one["k"]) for one in settings] == [
        ("original", 12, 6, None),
        ("linear-128-layerwise", 12, 6, 128),
    ]
    assert not list(tmp_path.rglob("*.safetensors"))
    assert "2 of 2 fine-tunings are done" in (tmp_path / "report.html").read_text()

    monkeypatch.setattr(module, "finetune", lambda *_, **__: pytest.fail("fine-tuned again"))
    assert reproduce_table2(asked)[0] == finished
    with pytest.raises(ConfigurationError, match="epochs: 1 there, 2 now"):
        reproduce_table2(replace(asked, scale=replace(scale, epochs=2)))
    for wrong, error, said in (
        ({"tasks": ("COLA",)}, ConfigurationError, "tasks=COLA"),
        ({"models": ("magic",)}, ConfigurationError, "models=magic"),
        ({"seeds": ()}, ConfigurationError, "one or more"),
        ({"tasks": ("IMDB",)}, DataError, "no imdb_train.parquet"),
        ({"data": "nowhere"}, DataError, '"nowhere" is not a folder'),
    ):
        with pytest.raises(error, match=said):
            reproduce_table2(replace(asked, **wrong))


def test_converted_models_are_healed_first(data, source, tmp_path, monkeypatch):
    text = tmp_path / "texts.jsonl"
    write_lines(text, ({"body": "the long text is good and bad " * 12} for _ in range(90)))
    scale = Table2Scale(source, {"RTE": Amount(12, 6, 24)}, 1, 1e-3, batch_size=6, healing=2_000)
    asked = Table2(
        scale, data, tmp_path / "out", seeds=(0,), tasks=("RTE",), models=("original", "linear-128-layerwise"),
        healing_text=(str(text),), text_field="body", progress=False,
    )  # fmt: skip
    given = []
    real = module.with_new_head

    def watched(*every, **named):
        given.append((every[1].key, every[4]))
        return real(*every, **named)

    monkeypatch.setattr(module, "with_new_head", watched)
    finished, lacking = reproduce_table2(asked)
    place = tmp_path / "out" / "healed" / "linear-128-layerwise"
    assert lacking == 0
    assert given == [("original", None), ("linear-128-layerwise", place)]
    assert {one.record.settings["healing_tokens"] for one in finished} == {2_000}
    linear = variants()["linear-128-layerwise"]
    healed, converted = (with_new_head(source, linear, 2, 0, folder)[0] for folder in (place, None))
    weights = converted.base_model.state_dict()
    changed = [name for name, value in healed.base_model.state_dict().items() if not torch.equal(value, weights[name])]
    assert changed
    assert torch.equal(healed.classifier.out_proj.weight, converted.classifier.out_proj.weight)
    text.write_text(text.read_text().replace("good", "far"))
    with pytest.raises(ConfigurationError, match="healing_key: "):
        reproduce_table2(replace(asked))  # a request that has read nothing yet


def test_the_same_texts_whoever_asks(data):
    train, dev = read_task(TASKS["RTE"], data, Amount(5, 4))
    assert (train, dev) == read_task(TASKS["RTE"], data, Amount(5, 4))
    assert (len(train.texts), len(dev.texts)) == (5, 4)
    assert train.pairs is not None


def test_every_model_begins_with_the_same_head(source):
    every = variants()
    original, _ = with_new_head(source, every["original"], 2, 3, None)
    window, _ = with_new_head(source, every["window"], 2, 3, None)
    other, _ = with_new_head(source, every["window"], 2, 4, None)
    assert torch.equal(original.classifier.weight, window.classifier.out_proj.weight)
    assert not torch.equal(window.classifier.out_proj.weight, other.classifier.out_proj.weight)
    assert window.config.attention_window == 64
    ids = torch.randint(5, 40, (2, 20))
    with torch.no_grad():
        torch.testing.assert_close(original.eval()(input_ids=ids).logits, window.eval()(input_ids=ids).logits)


def test_weighted_means_are_full_attention_of_texts_of_up_to_k_tokens(source):
    every = variants()
    ids = torch.randint(5, 40, (2, 20))
    found = []
    for name in ("original", "weighted-128", "weighted-256"):
        model, _ = with_new_head(source, every[name], 2, 0, None)
        with torch.no_grad():
            found.append(model.eval().base_model(input_ids=ids).last_hidden_state)
    torch.testing.assert_close(found[1], found[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(found[2], found[0], atol=1e-5, rtol=0)
    assert every["weighted-256"].healed_as == every["weighted-128"].healed_as == "weighted-128"


def _row(model, task, seed, accuracy):
    return {
        "settings": {"model": model, "task": task, "seed": seed, "label": model},
        "metrics": {"accuracy": accuracy},
    }


def test_gaps_are_of_averages_seed_by_seed():
    rows = [_row("original", task, seed, 0.9) for task in ("A", "B") for seed in (0, 1)]
    rows += [_row("x", "A", 0, 0.8), _row("x", "B", 0, 0.9), _row("x", "A", 1, 0.7), _row("y", "A", 0, 0.5)]
    scores, _ = scores_of(rows)
    assert gaps(scores, ["A", "B"]) == {"original": [0.0, 0.0], "x": [pytest.approx(-5.0)], "y": []}
    heads, cells = accuracy_table(rows)
    assert heads == ["model", "A", "B", "average", "against the original", "seeds"]
    assert cells[1] == ["x", "75.0 ± 7.1", "90.0", "85.00", "-5.00", "2"]
    assert cells[2] == ["y", "50.0", "–", "–", "–", "1"]


def test_texts_of_every_task_are_cut_to_another_length_where_it_is_asked_for():
    cut = module.SCALES["small"].cut_at([512])
    assert {amount.max_length for amount in cut.amounts.values()} == {512}
    assert cut.amounts["IMDB"].train == module.SCALES["small"].amounts["IMDB"].train
    for wrong in ([513], [1], [128, 256]):
        with pytest.raises(ConfigurationError, match=r"one length of 2 to 512 tokens, not to \["):
            module.SCALES["small"].cut_at(wrong)


def test_texts_that_the_windowed_model_sees_whole_are_said():
    def row(model, task, length, accuracy):
        return {
            "settings": {"model": model, "label": model, "task": task, "seed": 0, "max_length": length, "train": 5,
                         "dev": 4, "healing_tokens": 0, "original": "bundled", "n": 512, "epochs": 1,
                         "learning_rate": 1e-3},
            "metrics": {"accuracy": accuracy},
        }  # fmt: skip

    said = [
        " ".join(page_of_table2([row("original", task, length, 0.9)], asked=1).notes)
        for task, length in (("SST-2", 64), ("IMDB", 512))
    ]
    assert "SST-2: no text is longer than the 256 slots" in said[0]
    assert "no text is longer" not in said[1]
