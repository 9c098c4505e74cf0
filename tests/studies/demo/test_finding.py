"""The demo that finds: what is taken out and asked for, what it writes, that it goes on."""

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from tiny_models import make_sentence_transformer, save_bert, save_longform

import longform
from longform.data.text import Document
from longform.errors import CheckpointError, ConfigurationError
from longform_lab.demo import finding, learning
from longform_lab.demo.pipeline import Pipeline
from longform_lab.demo.run import run_demo

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
    short = make_sentence_transformer(save_bert(tmp_path / "short", tiny_tokenizer), pooling=pooling, normalise=True)
    monkeypatch.setattr(finding, "local_source", {finding.LONGFORM: str(long), finding.ORIGINAL: str(short)}.get)
    monkeypatch.setattr(finding, "speeches", lambda: speeches)


def test_passages_are_taken_out_and_from_behind_the_beginning(speeches: list[Document]) -> None:
    scale = finding.FindingScale(speeches=4, queries=2, beginning=120, chunk_tokens=24)
    asked = finding.passages(speeches, scale, seed=0)
    assert [document.id for document in asked.documents] == ["speech-0", "speech-2", "speech-4", "speech-6"]
    assert len(asked.queries) == 8
    whole, parted = ({each.id: each.text for each in some} for some in (speeches, asked.documents))
    for query, speech in zip(asked.queries, asked.relevant, strict=True):
        assert query in whole[speech][100:]
        assert query not in parted[speech]
    for name, text in parted.items():
        assert text[:120] == whole[name][:120]
        lost = sum(len(query) for query, speech in zip(asked.queries, asked.relevant, strict=True) if speech == name)
        assert abs(len(whole[name]) - lost - len(text)) <= 4  # spaces
    assert finding.passages(speeches, scale, seed=0) == asked
    assert finding.passages(speeches, scale, seed=1).queries != asked.queries


@pytest.mark.usefixtures("models")
def test_it_writes_a_report_and_a_model_and_is_then_only_summed_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, said = tmp_path / "demo", []
    results = run_demo(folder, scale="tiny", say=said.append)
    rows = results["speeches"]["rows"]
    assert [(row["name"], row["reads"]) for row in rows[:4]] == [
        ("longform", "first 64 tokens (it takes 640)"), ("original, cut", "first 32 tokens"),
        ("original, chunks averaged", "chunks of 24 tokens (it takes 32)"), ("BM25", "all words"),
    ]  # fmt: skip
    assert all(len(row["per_query"]) == 6 for row in rows + results["passages"]["rows"])
    gain = sum(rows[0]["per_query"]) / 6 - sum(rows[1]["per_query"]) / 6
    summary = said[-1].splitlines()
    assert f"better than original, cut (first 32 tokens) by {gain:+.1f} (" in summary[1]
    right = [sum(results[name]["per_text"]) / 4 for name in ("longform, default", "the paper's learned E")]
    assert f"right in {right[0]:.1f} % by the default layer, in {right[1]:.1f} % by" in summary[0]
    assert f"better by {right[0] - right[1]:+.1f} (" in summary[0]
    assert f"longform serve {folder}/model --open" in summary[-1]
    page = (folder / "report.html").read_text()
    assert f"by {gain:+.1f} (" in page
    assert page.count("data:image/png;base64,") == 3
    assert re.search(r'(src|href|url)\s*[=(](?!"data:image/png;base64,)', page) is None
    records = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    assert [row["record"] for row in records] == ["run"] + ["learned"] * 4 + ["layer"] * 2 + ["speeches"] * 7 + [
        "passages"
    ] * 3
    assert longform.Encoder.from_pretrained(folder / "model").encode(["good"]).shape == (1, 24)
    monkeypatch.setattr(finding, "compared", None)
    assert run_demo(folder, scale="tiny", say=said.append) == results
    with pytest.raises(ConfigurationError, match=r"seed: 0 there, 1 now.*--restart"):
        run_demo(folder, scale="tiny", seed=1)


@pytest.mark.usefixtures("models")
def test_interrupted_it_does_not_repeat_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared, done = finding.compared, []

    def stopping(*models: Any, score: str, chunk_tokens: int) -> Any:
        done.append(score)
        if done == ["document", "best-chunk"]:
            raise KeyboardInterrupt
        return compared(*models, score=score, chunk_tokens=chunk_tokens)

    monkeypatch.setattr(finding, "compared", stopping)
    with pytest.raises(KeyboardInterrupt):
        run_demo(tmp_path / "demo", scale="tiny", say=lambda _: None)
    run_demo(tmp_path / "demo", scale="tiny", say=lambda _: None)
    assert done == ["document", "best-chunk", "best-chunk"]


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
    assert json.loads((folder / "demo.json").read_text()) == {"task": "learn and find", "seed": 0, "scale": "tiny"}
    assert not (folder / "results.json").exists()
    assert (tmp_path / "mine.txt").read_text() == "kept"


@pytest.mark.parametrize("damaged", ["demo.json", "results.json"])
def test_a_damaged_state_says_what_to_do(tmp_path: Path, damaged: str) -> None:
    (tmp_path / "demo.json").write_text('{"task": "learn and find", "seed": 0, "scale": "tiny"}')
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
