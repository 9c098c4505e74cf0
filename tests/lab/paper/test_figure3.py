"""Figure 3: which models are trained, that an interruption costs nothing finished, that other settings are refused."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from json_lines import read_lines, write_lines

from longform.errors import ConfigurationError
from longform_lab.paper import figure3 as module
from longform_lab.paper.figure3 import reproduce_figure3
from longform_lab.paper.figure3_plan import planned, preset_of
from longform_lab.paper.figure3_report import claims, final_values, ratios_to_twin
from longform_lab.report import Claim, claims_table
from longform_text.data.tokenizer_training import TokenizerSettings
from longform_text.training.pretraining.settings import Preset, PretrainingSettings

MODEL = {
    "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8,
    "max_position_embeddings": 16, "projected_length": 4, "projection_sharing": "headwise",
}  # fmt: skip
PRESET = Preset(
    "tiny", TokenizerSettings("wordpiece", 60), MODEL,
    PretrainingSettings(
        tokens_per_step=32, tokens_per_forward=32, max_steps=2, learning_rate=1e-3, eval_steps=0.5,
        validation_tokens=100, bf16=False,
    ),
)  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    rows = [{"text": f"{word} rain falls on the hill and the river {word} runs to the sea " * 3} for word in "abcd" * 5]
    return str(write_lines(tmp_path_factory.mktemp("corpus") / "texts.jsonl", rows))


def test_the_lines_of_each_figure():
    paper = preset_of("paper")
    assert [curve.key for curve in planned("figure3a", paper).curves] == [
        "n512-full", "n512-k64-headwise", "n512-k128-headwise", "n512-k256-headwise"
    ]  # fmt: skip
    twice = planned("figure3b", paper).curves
    assert [curve.key for curve in twice] == ["n1024-full", "n1024-k128-headwise", "n1024-k256-headwise"]
    shared = planned("figure3c", paper, also=["window"]).curves
    assert [curve.model["projection_sharing"] for curve in shared[1:5]] == [
        "none", "headwise", "key_value", "layerwise"
    ]  # fmt: skip
    assert {curve.model["projected_length"] for curve in shared[1:]} == {128}
    assert (shared[5].model["projection"], shared[5].model["attention_window"]) == ("mean", 64)
    lengths = planned("figure3d", paper).curves
    assert [(curve.length, curve.is_full) for curve in lengths[:2]] == [(512, True), (1024, True)]
    assert [(curve.length, curve.model["projected_length"]) for curve in lengths[2:]] == [
        (512, 256), (1024, 256), (2048, 256), (4096, 256)
    ]  # fmt: skip
    longest = planned("figure3d", PRESET)
    assert longest.curves[-1].length == longest.preset.training.tokens_per_step == 128
    assert longest.preset.training.argument("max_steps") == 1  # of four times the tokens
    windows = planned("figure3d", PRESET, also=["window"]).curves[-4:]
    assert [(curve.length, curve.model["projected_length"], curve.model["attention_window"]) for curve in windows] == [
        (16, 8, 2), (32, 8, 4), (64, 8, 8), (128, 8, 16)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: planned("figure3e", PRESET), 'no "figure3e"'),
        (lambda: planned("figure3a", PRESET, also=["magic"]), "there are window, convolution, mean"),
        (lambda: planned("figure3a", replace(PRESET, model={**PRESET.model, "num_attention_heads": 3})), "heads"),
    ],
)
def test_what_there_is_not(make, said):
    with pytest.raises(ConfigurationError, match=said):
        make()


@pytest.mark.nightly
def test_trainings_are_kept_and_other_settings_refused(corpus, tmp_path, monkeypatch):
    plan = planned("figure3a", PRESET)
    trained = []
    real = module.Training.run

    def run(self):
        if len(trained) == 3:
            raise KeyboardInterrupt
        trained.append(self.name)
        return real(self)

    monkeypatch.setattr(module.Training, "run", run)
    with pytest.raises(KeyboardInterrupt):
        reproduce_figure3(plan, [corpus], tmp_path, seeds=[0], progress=False)
    trained.append("interrupted")  # so that what comes now is not
    done, lacking = reproduce_figure3(plan, [corpus], tmp_path, seeds=[0], progress=False)
    assert trained[4:] == ["n16-k8-headwise-seed0"]
    assert (len(done), lacking) == (4, 0)
    records = read_lines(tmp_path / "records.jsonl")
    assert [record["settings"]["k"] for record in records] == [None, 2, 4, 8]
    assert [len(record["metrics"]["curve"]) for record in records] == [3] * 4  # before, between, after
    page = (tmp_path / "report.html").read_text()
    assert "data:image/png;base64," in page
    assert re.findall(r'(?:src|href)="(?!data:)', page) == []
    assert not list(tmp_path.rglob("model.safetensors"))

    again, _ = reproduce_figure3(plan, [corpus], tmp_path, seeds=[0], progress=False)
    assert again == done
    assert len(trained) == 5
    longer = replace(plan, preset=replace(PRESET, training=replace(PRESET.training, max_steps=3)))
    with pytest.raises(ConfigurationError, match="max_steps: 2 there, 3 now"):
        reproduce_figure3(longer, [corpus], tmp_path, seeds=[0], progress=False)
    with pytest.raises(ConfigurationError, match="each once"):
        reproduce_figure3(plan, [corpus], tmp_path, seeds=[1, 1], progress=False)


def test_lines_that_go_on_from_a_twin(corpus, tmp_path):
    plan = planned("figure3d", PRESET, from_twin=3)
    assert [curve.key for curve in plan.curves][-2:] == [
        "twin3-step256-n128-k8-headwise",
        "twin3-step256-n256-k8-headwise",
    ]
    plan = replace(planned("figure3a", PRESET, from_twin=3), curves=planned("figure3a", PRESET, from_twin=3).curves[:2])
    done, _ = reproduce_figure3(plan, [corpus], tmp_path, seeds=[0], progress=False)
    trainings = sorted(path.name for path in (tmp_path / "trainings").iterdir())
    assert trainings == ["twin3-n16-full-seed0", "twin3-n16-k2-headwise-seed0", "twin3-seed0"]
    rows = [
        json.loads(line) for line in (tmp_path / "trainings" / "twin3-seed0" / "records.jsonl").read_text().splitlines()
    ]
    ended = [row["eval_loss"] for row in rows if "eval_loss" in row][-1]
    assert done[0].kept[0]["loss"] == pytest.approx(ended, abs=1e-6)  # at step 0
    assert done[1].kept[0]["loss"] != done[0].kept[0]["loss"]
    assert done[1].record.settings["twin_steps"] == 3
    assert len(done[1].record.metrics["quarters"]) == 4
    assert "had learned for 3 steps" in (tmp_path / "report.html").read_text()
    with pytest.raises(ConfigurationError, match="twin_steps: 3 there, None now"):
        reproduce_figure3(planned("figure3a", PRESET), [corpus], tmp_path, seeds=[0], progress=False)


def test_another_corpus_or_field_is_refused(corpus, tmp_path, monkeypatch):
    plan = planned("figure3a", PRESET)
    monkeypatch.setattr(module, "work_through", lambda parts, *_, **__: (parts, 0))
    parts = reproduce_figure3(plan, [corpus], tmp_path / "a", seeds=[0], progress=False)[0]
    moved = tmp_path / "texts.jsonl"
    moved.write_text(Path(corpus).read_text())
    again = reproduce_figure3(plan, [str(moved)], tmp_path / "a", seeds=[0], progress=False)[0]
    assert [part.identity for part in again] == [part.identity for part in parts]  # the same texts, elsewhere
    moved.write_text(moved.read_text().replace("rain", "snow"))
    for text, field, said in ((str(moved), "text", "corpus_key: "), (corpus, "body", "text_field: text there, body")):
        with pytest.raises(ConfigurationError, match=said):
            reproduce_figure3(plan, [text], tmp_path / "a", seeds=[0], text_field=field, progress=False)


def test_processes_of_torchrun_are_refused(corpus, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigurationError, match="one process a training"):
        reproduce_figure3(planned("figure3a", PRESET), [corpus], tmp_path, seeds=[0], progress=False)


def _row(curve, seed, loss, n=16, **others):
    settings = {"curve": curve, "label": curve, "seed": seed, "n": n, "k": None, **others}
    return {
        "settings": settings,
        "metrics": {"loss": loss, "unigram_loss": 6.0, "bigram_loss": 5.5, "parameters": 9, "seconds": 60.0},
    }


def test_ratios_are_seed_by_seed():
    rows = [
        _row("n16-full", 0, 4.0),
        _row("n16-full", 1, 5.0),
        _row("n16-x", 0, 4.4),
        _row("n16-x", 1, 5.0),
        _row("n8-y", 0, 1, 8),
    ]
    ratios = ratios_to_twin(rows)
    assert ratios == {"n16-full": [1.0, 1.0], "n16-x": [pytest.approx(1.1), 1.0], "n8-y": []}
    longer = [_row("step64-n16-full", 0, 4.0), _row("step64-n16-k4-headwise", 0, 4.4)]  # as in figure3d
    assert ratios_to_twin(longer)["step64-n16-k4-headwise"] == [pytest.approx(1.1)]
    mixed = [*rows, _row("twin9-n16-full", 0, 3.0), _row("twin9-n16-x", 0, 3.3)]  # each beside those of its kind
    assert ratios_to_twin(mixed) == {**ratios, "twin9-n16-full": [1.0], "twin9-n16-x": [pytest.approx(1.1)]}
    del rows[-1]["metrics"]["bigram_loss"]  # as of a streamed corpus
    cells = final_values(rows)
    assert cells[1][4] == "4.7000 ± 0.4243"
    assert cells[1][6:9] == ["1.00", "0.50", "1.0500 ± 0.0707"]
    assert cells[2][6:9] == ["5.00", "–", "–"]


def test_what_the_paper_says_beside_what_was_found():
    def row(n, k, loss, sharing="headwise"):
        return _row(f"n{n}-k{k}-{sharing}", 0, loss, n=n, k=k, projection="linear", sharing=sharing)

    rows = [_row("n16-full", 0, 4.0), row(16, 4, 4.4), row(16, 8, 4.1)]
    assert claims("figure3a", rows) == [
        Claim("n = 512, k = 128: nearly on par with full attention", "n = 16, k = 4: 1.100 of its loss", False)
    ]  # fmt: skip
    assert claims("figure3c", [row(16, 4, 4.0, "none"), row(16, 4, 4.04, "layerwise")]) == [
        Claim("layerwise sharing almost matches no sharing", "1.010 of its loss", True)
    ]  # fmt: skip
    assert claims("figure3d", [row(16, 8, 4.0), row(32, 8, 4.2)]) == [
        Claim("at one k the final value is about the same for every n", "losses 4.000 (n = 16), 4.200 (n = 32)", False)
    ]  # fmt: skip
    for losses in ((5.5, 5.5), (4.0, 7.5)):  # 0.5 nats below frequencies, and 1.5 above
        untold = claims("figure3d", [row(16, 8, losses[0]), row(32, 8, losses[1])])
        assert untold[0].here.endswith("; too near predicting frequencies to tell")
        assert claims_table(untold).rows[0][2] == "cannot tell"


def test_what_is_above_a_level_is_not_said_to_be_below_it():
    rows = [_row("n16-full", 0, 4.0), _row("n16-x", 0, 7.75)]
    assert [cells[6:8] for cells in final_values(rows)] == [["2.00", "1.50"], ["1.75 above", "2.25 above"]]
    assert claims("figure3c", rows) == claims("figure3d", rows[:1]) == []
