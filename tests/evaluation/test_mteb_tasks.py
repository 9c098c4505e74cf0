"""mteb on local data: its number is that of ``mteb.evaluate`` called by hand, and of our own retrieval."""

import json
from pathlib import Path
from typing import Any

import mteb
import pytest
from sentence_transformers import SentenceTransformer
from tiny_models import make_sentence_transformer, save_longform

import longform
from longform.errors import ConfigurationError
from longform.evaluation.comparison import RunSettings, contenders
from longform.evaluation.mteb_tasks import evaluate_tasks, local_task, named_tasks
from longform.evaluation.retrieval_comparison import compare_retrieval
from longform.evaluation.retrieval_data import read_retrieval

pytestmark = pytest.mark.filterwarnings("ignore")  # mteb's own deprecations
WORDS = ["near", "far", "good", "bad", "long", "short", "text"]


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    documents = [{"id": f"d{n}", "text": " ".join(WORDS[(n * k) % 7] for k in range(1, 30 + n))} for n in range(30)]
    queries = [{"query": " ".join(WORDS[n % 7 :][:3]), "relevant": [f"d{n}", f"d{n + 7}"]} for n in range(20)]
    for name, rows in (("queries", queries), ("documents", documents)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "queries.jsonl", tmp_path / "documents.jsonl"


@pytest.fixture
def folder(tmp_path: Path, tiny_tokenizer: Any) -> Path:
    return make_sentence_transformer(
        save_longform(tmp_path / "model", tiny_tokenizer), pooling={}, normalise=True,
        config_sentence_transformers={"prompts": {"query": "good: ", "document": "text: "}},
    )  # fmt: skip


def test_local_data_give_the_number_of_mteb_and_of_our_own(
    files: tuple[Path, Path], folder: Path, tmp_path: Path
) -> None:
    data = read_retrieval(*files)
    rows = evaluate_tasks(folder, [local_task("Mine", data)], tmp_path / "out", progress=False)
    by_hand = mteb.evaluate(
        SentenceTransformer(str(folder)), [local_task("Mine", data)], cache=None, show_progress_bar=False
    )
    assert rows[0]["score"] == pytest.approx(100 * by_hand.task_results[0].get_score(), abs=1e-9)
    settings, models = RunSettings(progress=False), contenders(longform=str(folder), original=None)
    own = compare_retrieval(
        models, *files, settings, query_field="query", relevant_field="relevant", id_field="id", text_field="text"
    )
    assert rows[0]["score"] == pytest.approx(own[0]["ndcg@10"], abs=0.01)  # mteb rounds to five digits
    assert 10 < rows[0]["score"] < 90
    options: Any = {"longform": folder, "original": folder, "original_length": 5, "progress": False}
    found = longform.evaluate("mteb", files[0], documents=files[1], output=tmp_path / "python", **options)
    assert [(each["name"], each["mteb_task"]) for each in found.records] == [
        ("longform", "LocalRetrieval"), ("original, cut", "LocalRetrieval")
    ]  # fmt: skip
    assert found.records[0]["score"] == rows[0]["score"] != found.records[1]["score"]
    assert (tmp_path / "python" / "original" / "LocalRetrieval.json").exists()
    assert "LocalRetrieval" in found.report


def test_results_are_kept_while_model_and_data_are_the_same(
    files: tuple[Path, Path], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    first = evaluate_tasks(folder, [local_task("Mine", read_retrieval(*files))], out, progress=False)
    with monkeypatch.context() as patch:
        patch.setattr(mteb, "evaluate", None)
        assert evaluate_tasks(folder, [local_task("Mine", read_retrieval(*files))], out, progress=False) == first
    files[0].write_text(json.dumps({"query": "far", "relevant": "d3"}) + "\n")
    other = evaluate_tasks(folder, [local_task("Mine", read_retrieval(*files))], out, progress=False)
    assert other[0]["score"] != first[0]["score"]
    with pytest.raises(ConfigurationError, match=r"out\" was begun with other settings or data \(max_length: None"):
        evaluate_tasks(folder, [], out, max_length=20)


def test_a_task_that_mteb_lacks() -> None:
    with pytest.raises(ConfigurationError, match=r"no such task: .*STSBenchmrk"):
        named_tasks(["STSBenchmrk"])
    with pytest.raises(ConfigurationError, match=r"no such task: .*STSBenchmrk"):
        longform.evaluate("mteb", "STSBenchmrk", longform="nowhere")
