"""The demo from end to end at its smallest scale: what it writes, that it resumes, what it refuses."""

import json
import re

import pytest
import torch
from transformers import AutoModelForSequenceClassification, pipeline

import longform
from longform.data.bundled import bundled_encoder_folder
from longform.errors import CheckpointError, ConfigurationError
from longform_lab.demo import steps
from longform_lab.demo.measuring import LONG, LONGER, ORIGINAL, measure_lengths
from longform_lab.demo.pipeline import Pipeline
from longform_lab.demo.run import run_demo


class Interruption(BaseException):
    """Stands for Ctrl-C."""


ROWS = [{"model": "longform", "length": length, "seconds": length / 1e3, "mib": length / 1e2} for length in (8, 16)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "demo"
    said = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "measure_lengths", lambda *_: ROWS)  # takes a process; see the nightly test
        results = run_demo(folder, task="classify", scale="tiny", say=said.append)
    return folder, results, "\n".join(said)


@pytest.fixture
def no_measuring(monkeypatch):
    monkeypatch.setattr(steps, "measure_lengths", lambda *_: ROWS)


def test_it_announces_six_steps_and_sums_up_in_about_ten_lines(finished):
    folder, results, said = finished
    assert [f"[{number}/6]" in said for number in range(1, 7)] == [True] * 6
    summary = said[said.index("Longform demo:") :].splitlines()
    assert 9 <= len(summary) <= 12
    accuracy = results["test longform"]["accuracy"]
    assert any(f"Longform {accuracy:.1%}" in line for line in summary)
    assert any(str(folder / "report.html") in line for line in summary)


def test_the_model_loads_and_answers_in_a_pipeline(finished):
    folder, results, _ = finished
    model = AutoModelForSequenceClassification.from_pretrained(folder / "model")
    assert isinstance(model, longform.LinformerForSequenceClassification)
    assert model.config.max_position_embeddings == 96
    answer = pipeline("text-classification", model=str(folder / "model"), device="cpu")("the iron of zinc", top_k=None)
    assert sorted(one["label"] for one in answer) == results["prepare"]["labels"] == ["fruit", "metal", "river"]
    assert {file.name for file in (folder / "model").iterdir()} == {
        "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"
    }  # fmt: skip


def test_the_report_stands_alone_and_has_every_part(finished):
    folder, results, _ = finished
    page = (folder / "report.html").read_text()
    assert re.search(r'(src|href|url)\s*[=(](?!"data:image/png;base64,)', page) is None
    for part in ("Original and Longform", "What is taken for what", "Learning curves", "Time and memory", "to do next"):
        assert part in page
    assert "at most one from each group of near duplicates" in page
    assert f"Healing read {results['heal']['tokens']:,} tokens without labels" in page
    assert re.findall(r'alt="([^"]+)"', page) == [
        "confusion matrix of the Longform on the test texts", "confusion matrix of the original on the test texts",
        "training loss and validation score of both fine-tunings, and the loss of healing",
        "time and peak memory of one document against its tokens, a line a model",
    ]  # fmt: skip
    assert f"{results['test longform']['macro_f1']:.1%}" in page


def test_every_measurement_is_in_the_records(finished):
    folder, _, _ = finished
    rows = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    assert rows[0]["record"] == "run"
    assert rows[0]["scale"] == "tiny"
    assert rows[0]["torch"] == torch.__version__
    tested = next(row for row in rows if row.get("name") == "test longform")
    assert sum(map(sum, tested["confusion"])) == len(tested["truth"]) == 24
    assert [(row["model"], row["length"]) for row in rows if row["record"] == "measure"] == [
        ("longform", 8), ("longform", 16)
    ]  # fmt: skip
    assert {row["event"] for row in rows if row["record"] == "train longform"} == {"train", "evaluation"}


@pytest.mark.nightly  # a process that imports everything
def test_each_model_is_measured_at_its_lengths(finished):
    folder, _, _ = finished
    lengths = {LONG: (8, 96), ORIGINAL: (48,), LONGER: (96,)}
    rows = measure_lengths(str(bundled_encoder_folder()), folder / "model", lengths, 1)
    assert [(row["model"], row["length"]) for row in rows] == [(LONG, 8), (LONG, 96), (ORIGINAL, 48), (LONGER, 96)]
    assert all(row["seconds"] > 0 for row in rows)


def test_both_models_had_the_same_budget(finished):
    _, results, _ = finished
    long, original = results["train longform"], results["train original"]
    assert (long["texts"], long["steps"]) == (original["texts"], original["steps"])
    assert (long["max_length"], original["max_length"]) == (96, 48)
    assert long["rows"][0]["learning_rate"] == original["rows"][0]["learning_rate"]


def test_the_original_is_the_encoder_itself_with_a_head_like_the_longforms(finished):
    folder, _, _ = finished
    work = folder / "work"
    long, original = (
        AutoModelForSequenceClassification.from_pretrained(work / name) for name in ("start-longform", "start-original")
    )
    for name, value in long.classifier.state_dict().items():
        other = original.classifier.state_dict()[name]
        assert other.shape == value.shape
        assert not torch.equal(other, value), "each is fitted to its own embeddings"
    from transformers import BertModel

    encoder = BertModel.from_pretrained(work / "encoder").eval()
    ids = torch.randint(5, 20, (3, 48))
    mask = torch.arange(48)[None] < torch.tensor([48, 31, 5])[:, None]
    with torch.no_grad():
        expected = encoder(ids, mask.long()).last_hidden_state[mask]
        given = original.linformer.eval()(ids, mask.long()).last_hidden_state[mask]
    torch.testing.assert_close(given, expected, rtol=1e-4, atol=1e-4)


def test_a_finished_demo_is_only_summed_up(finished, monkeypatch):
    folder, results, _ = finished
    monkeypatch.setattr(steps, "prepare", None)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    said = []
    assert run_demo(folder, task="classify", scale="tiny", say=said.append) == results
    assert "finished" in said[0]
    assert "accuracy" in said[-1]
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_another_seed_in_the_same_folder_is_refused(finished):
    with pytest.raises(ConfigurationError, match=r"seed: 0 there, 1 now.*--restart"):
        run_demo(finished[0], task="classify", scale="tiny", seed=1)


def _interrupt(monkeypatch, callback, place):
    """Stop in the middle of training: after optimiser step ``place``."""
    from longform.training.records import RecordingCallback

    original = getattr(RecordingCallback, callback)

    def stopping(self, args, state, control, **kwargs):
        original(self, args, state, control, **kwargs)
        if (self.description, state.global_step) == place:
            raise Interruption

    monkeypatch.setattr(RecordingCallback, callback, stopping)


def _beginnings(monkeypatch):
    """A list that gets what is trained, and from which step on."""
    from longform.training.records import RecordingCallback

    original, begun = RecordingCallback.on_train_begin, []

    def watching(self, args, state, control, **kwargs):
        begun.append((self.description, state.global_step))
        original(self, args, state, control, **kwargs)

    monkeypatch.setattr(RecordingCallback, "on_train_begin", watching)
    return begun


@pytest.mark.nightly
def test_interrupted_anywhere_it_goes_on_to_the_same_result(finished, tmp_path, monkeypatch, no_measuring):
    folder = tmp_path / "demo"
    begun = _beginnings(monkeypatch)
    for place, at in ((("distilling", 3), "healed/checkpoint-2"), (("fine-tuning", 11), "longform/checkpoint-10")):
        with monkeypatch.context() as patched:
            _interrupt(patched, "on_step_end", place)
            with pytest.raises(Interruption):
                run_demo(folder, task="classify", scale="tiny", say=lambda _: None)
        assert (folder / "work" / at).is_dir()
        assert not (folder / "model").exists()
    with monkeypatch.context() as patched:
        patched.setattr(steps, "place_model", _raise)
        with pytest.raises(Interruption):
            run_demo(folder, task="classify", scale="tiny", say=lambda _: None)
    said = []
    results = run_demo(folder, task="classify", scale="tiny", say=said.append)
    assert said[0].startswith("Going on where it was interrupted")
    assert begun == [("distilling", 0), ("distilling", 2), *[("fine-tuning", step) for step in (0, 10, 0)]]
    for name in ("test longform", "test original"):
        expected = {key: value for key, value in finished[1][name].items() if key != "seconds"}
        assert {key: value for key, value in results[name].items() if key != "seconds"} == expected
    assert (folder / "report.html").is_file()


def _raise(*_, **__):
    raise Interruption


def test_a_restart_clears_only_a_demo(tmp_path, monkeypatch):
    folder = tmp_path / "demo"
    (folder / "work").mkdir(parents=True)
    (folder / "demo.json").write_text('{"seed": 4, "scale": "tiny"}')
    (folder / "results.json").write_text('{"finish": {}}')
    (folder / "mine.txt").write_text("kept")
    monkeypatch.setattr(steps, "prepare", _raise)
    with pytest.raises(ConfigurationError, match="not empty"):
        run_demo(tmp_path, task="classify", scale="tiny")
    with pytest.raises(ConfigurationError, match="not made by the demo"):
        run_demo(tmp_path, task="classify", scale="tiny", restart=True)
    (folder / "mine.txt").rename(tmp_path / "mine.txt")
    with pytest.raises(Interruption):
        run_demo(folder, task="classify", scale="tiny", restart=True)
    assert json.loads((folder / "demo.json").read_text()) == {"task": "classify", "seed": 0, "scale": "tiny"}
    assert not (folder / "results.json").exists()
    assert (tmp_path / "mine.txt").read_text() == "kept"


@pytest.mark.parametrize("damaged", ["demo.json", "results.json"])
def test_a_damaged_state_says_what_to_do(tmp_path, damaged):
    (tmp_path / "demo.json").write_text('{"task": "classify", "seed": 0, "scale": "tiny"}')
    (tmp_path / "results.json").write_text("{}")
    (tmp_path / damaged).write_text('{"seed": ')
    with pytest.raises(CheckpointError, match="--restart"):
        run_demo(tmp_path, task="classify", scale="tiny")


def test_an_unknown_scale(tmp_path):
    with pytest.raises(ConfigurationError, match='scale="huge"; it is one of full, tiny'):
        run_demo(tmp_path, scale="huge")


def test_a_step_is_done_once(tmp_path):
    pipeline = Pipeline(tmp_path / "demo", {"seed": 0})
    pipeline.open()
    assert pipeline.step("one", lambda: {"value": (1, 2)})["value"] == [1, 2]  # as a resumed run will read it
    again = Pipeline(tmp_path / "demo", {"seed": 0})
    again.open()
    assert again.step("one", _raise) == pipeline.results["one"]
