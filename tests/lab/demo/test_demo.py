"""The demo: what it writes, that it goes on, that it clears nothing of others."""

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from json_lines import read_lines
from tiny_models import make_sentence_transformer, save_longform

import longform
from longform.errors import CheckpointError, ConfigurationError
from longform_lab.demo import learning, searching
from longform_lab.demo.pipeline import Pipeline
from longform_lab.demo.run import run_demo
from longform_text.data.text import Document

WORDS = ["near", "far", "good", "bad", "short", "long", "iron", "river", "fruit", "metal"]


@pytest.fixture(scope="module")
def speeches() -> list[Document]:
    draw = random.Random(1)
    sentences = [[f"The {' '.join(draw.choices(WORDS, k=7))}." for _ in range(12)] for _ in range(8)]
    return [Document(f"speech-{place}", " ".join(each), {}) for place, each in enumerate(sentences)]


@pytest.fixture
def models(tiny_tokenizer: Any, tmp_path: Path, speeches: list[Document], monkeypatch: pytest.MonkeyPatch) -> None:
    pooling = {"pooling_mode_mean_tokens": True}
    long = make_sentence_transformer(
        save_longform(tmp_path / "long", tiny_tokenizer, max_position_embeddings=640, attention_window=80),
        pooling=pooling, normalise=True,
    )  # fmt: skip
    monkeypatch.setattr(searching, "ENCODER", str(long))
    monkeypatch.setattr(searching, "speeches", lambda: speeches)


@pytest.mark.usefixtures("models")
def test_it_writes_a_report_and_an_index_and_is_then_only_summed_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, said = tmp_path / "demo", []
    results = run_demo(folder, scale="tiny", say=said.append)
    found = results["answers"]
    assert sorted(path.name for path in (folder / "documents").glob("*.txt")) == ["speech-2.txt", "speech-6.txt"]
    assert [row["question"] for row in found["rows"]] == list(searching.QUESTIONS)
    for row in found["rows"]:
        assert row["passage"] in (folder / "documents" / row["document"]).read_text()
    summary = said[-1].splitlines()
    right = [sum(results[name]["per_text"]) / 4 for name in ("longform, default", "the paper's learned E")]
    assert f"right in {right[0]:.1f} % by the default layer, in {right[1]:.1f} % by" in summary[0]
    assert f"better by {right[0] - right[1]:+.1f} (" in summary[0]
    assert f"longform search {folder}/documents" in summary[-1]
    page = (folder / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 1
    assert re.search(r'(src|href|url)\s*[=(](?!"data:image/png;base64,)', page) is None
    records = read_lines(folder / "records.jsonl")
    assert [row["record"] for row in records] == ["run"] + ["learned"] * len(learning.STACKS) + ["layer"] * 2 + [
        "answers"
    ] * 3
    index = longform.Index(folder / "documents" / ".longform", searching.ENCODER, chunk_tokens=24)
    assert len(index) == found["passages"] > 2
    monkeypatch.setattr(searching, "answered", None)
    assert run_demo(folder, scale="tiny", say=said.append) == results
    with pytest.raises(ConfigurationError, match=r"seed: 0 there, 1 now.*--restart"):
        run_demo(folder, scale="tiny", seed=1)


@pytest.mark.usefixtures("models")
def test_interrupted_it_does_not_repeat_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answered, learned, done = searching.answered, learning.learned, []

    def stopping(*given: Any) -> Any:
        done.append("answered")
        return _raise() if len(done) == 1 + len(learning.STACKS) else answered(*given)

    monkeypatch.setattr(learning, "learned", lambda *given: done.append("learned") or learned(*given))
    monkeypatch.setattr(searching, "answered", stopping)
    with pytest.raises(KeyboardInterrupt):
        run_demo(tmp_path / "demo", scale="tiny", say=lambda _: None)
    run_demo(tmp_path / "demo", scale="tiny", say=lambda _: None)
    assert done == ["learned"] * len(learning.STACKS) + ["answered"] * 2


def _raise(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


def test_a_restart_clears_only_a_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "demo"
    (folder / "work").mkdir(parents=True)
    (folder / "demo.json").write_text('{"seed": 4, "scale": "tiny"}')
    (folder / "results.json").write_text('{"finish": {}}')
    (folder / "mine.txt").write_text("kept")
    monkeypatch.setattr(learning, "learned", _raise)
    with pytest.raises(ConfigurationError, match="not empty"):
        run_demo(tmp_path, scale="tiny")
    with pytest.raises(ConfigurationError, match="not made by the demo"):
        run_demo(tmp_path, scale="tiny", restart=True)
    (folder / "mine.txt").rename(tmp_path / "mine.txt")
    with pytest.raises(KeyboardInterrupt):
        run_demo(folder, scale="tiny", restart=True)
    assert json.loads((folder / "demo.json").read_text()) == {"task": "learn and search", "seed": 0, "scale": "tiny"}
    assert not (folder / "results.json").exists()
    assert (tmp_path / "mine.txt").read_text() == "kept"


@pytest.mark.parametrize("damaged", ["demo.json", "results.json"])
def test_a_damaged_state_says_what_to_do(tmp_path: Path, damaged: str) -> None:
    (tmp_path / "demo.json").write_text('{"task": "learn and search", "seed": 0, "scale": "tiny"}')
    (tmp_path / "results.json").write_text("{}")
    (tmp_path / damaged).write_text('{"seed": ')
    with pytest.raises(CheckpointError, match="--restart"):
        run_demo(tmp_path, scale="tiny")


def test_an_unknown_scale(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match='scale="huge"; it is one of full, tiny'):
        run_demo(tmp_path, scale="huge")


def test_a_step_is_done_once(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path / "demo", {"seed": 0})
    pipeline.open()
    assert pipeline.step("one", lambda: {"value": (1, 2)})["value"] == [1, 2]  # as a resumed run will read it
    again = Pipeline(tmp_path / "demo", {"seed": 0})
    again.open()
    assert again.step("one", _raise) == pipeline.results["one"]
