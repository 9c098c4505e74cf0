"""A rival reads all that it has positions for unless the user says otherwise, and every row says what was read."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import make_sentence_transformer, save_bert, save_longform, save_mpnet

import longform
from longform_lab.demo.learning import STACKS
from longform_lab.demo.pipeline import WORK
from longform_lab.demo.report import report_demo
from longform_lab.evaluation.run import evaluate
from longform_lab.tables.long_retrieval_tables import beside_each_other
from longform_text.inference.loading import load_limited

TEXT = "the near text is far and good " * 20  # 140 tokens
ROWS = [{"id": name, "text": f"{name} {TEXT}"} for name in ("near", "far", "long")]
QUERIES = [{"query": row["text"][:9], "relevant": row["id"]} for row in ROWS]
PAIRS = [{"sentence1": row["text"], "sentence2": "far", "score": place} for place, row in enumerate(ROWS)]
OPTIONS: dict[str, Any] = {"progress": False, "batch_tokens": 200}


@pytest.fixture
def folders(tiny_tokenizer: Any, tmp_path: Path) -> dict[str, Path]:
    """A Longform of 64 tokens, and an original of 32 whose folder asks for 9."""
    made = {"pooling": {"pooling_mode_mean_tokens": True}, "normalise": True}
    long = save_longform(tmp_path / "long", tiny_tokenizer)
    return {
        "longform": make_sentence_transformer(long, **made),
        "original": make_sentence_transformer(
            save_bert(tmp_path / "short", tiny_tokenizer), sentence_bert_config={"max_seq_length": 9}, **made
        ),
    }


def measured(task: str, folders: dict[str, Path], **options: Any) -> dict[str, str]:
    if task == "sts":
        found = evaluate("sts", PAIRS, **folders, **OPTIONS, **options)
    else:
        found = evaluate(task, QUERIES, documents=ROWS, **folders, **(OPTIONS | options))
    assert all(word in found.report for record in found.records for word in record["reads"].split())
    return {record["name"]: record["reads"] for record in found.records}


@pytest.mark.parametrize("task", ["sts", "retrieval"])
def test_a_folder_that_asks_for_less_is_no_handicap(task: str, folders: dict[str, Path]) -> None:
    assert measured(task, folders) == {
        "longform": "first 64 tokens", "original, cut": "first 32 tokens",
        "original, chunks averaged": "chunks of 32 tokens",
    }  # fmt: skip
    assert measured(task, folders, original_length=9, max_length=50) == {
        "longform": "first 50 tokens (it takes 64)", "original, cut": "first 9 tokens (it takes 32)",
        "original, chunks averaged": "chunks of 9 tokens (it takes 32)",
    }  # fmt: skip


def test_what_is_said_is_what_is_read(folders: dict[str, Path]) -> None:
    def cut(**options: Any) -> dict[str, Any]:
        return evaluate("retrieval", QUERIES, documents=ROWS, **folders, **OPTIONS, **options).records[1]

    assert (cut()["tokens"], cut(original_length=9)["tokens"]) == (3 * 32, 3 * 9)


def test_the_best_chunk_of_a_rival_is_cut_to_what_the_rival_takes(folders: dict[str, Path]) -> None:
    assert measured("retrieval", folders, score="best-chunk", chunk_tokens=32) == {
        "longform": "chunks of 32 tokens, 64 tokens read together",
        "original, cut": "chunks of 32 tokens of the first 32 tokens",
        "original, chunks cut first": "chunks of 30 tokens, each read alone",
    }  # fmt: skip


def test_a_classifier_reads_what_it_was_fine_tuned_on(longform_folder: Path, tmp_path: Path) -> None:
    data = [{"text": TEXT, "label": label} for label in ("good", "bad") * 6]
    settings = longform.FinetuningSettings(max_steps=1, max_length=12, validation_fraction=0.25, bf16=False)
    longform.finetune(longform_folder, data, settings, output=tmp_path / "tuned", progress=False)
    (found,) = evaluate("classification", data, longform=tmp_path / "tuned", **OPTIONS).records
    assert (found["reads"], found["tokens"]) == ("first 12 tokens (it takes 64)", 12 * 12)


def test_positions_that_begin_with_the_padding_s_rows_are_not_counted(tiny_tokenizer: Any, tmp_path: Path) -> None:
    from transformers import AutoModel

    folder = save_mpnet(tmp_path / "mpnet", tiny_tokenizer)
    assert load_limited(AutoModel, folder, max_length=None)[2] == 32


def test_better_by_has_one_sign_everywhere(folders: dict[str, Path], tmp_path: Path) -> None:
    """Of a row it is what the row has more than the one that is named beside it."""
    found = evaluate("retrieval", QUERIES, documents=ROWS, bm25=True, **folders, **OPTIONS)
    for row, value in zip(found.records, (10.0, 50.0, 60.0, 90.0), strict=False):
        row |= {"per_query": [value] * 3, "difference": (value - 10.0,) * 3}
    long, cut, chunks, words = found.records[:4]
    (shown,) = (line for line in found.report.splitlines() if "+40.0 (+40.0 to +40.0)" in line)
    assert "original, cut" in shown
    answer = {"question": "where?", "document": "near", "place": "line 1", "passage": "<b>here"}
    results = {"layer": {"rows": [{"length": 8, "longform": 1.0, "full": 2.0}]},
               "answers": {"rows": [answer], "documents": 1, "passages": 1}}  # fmt: skip
    for name, right in zip(STACKS, (90.0, 80.0, 80.0, 10.0, 10.0, 20.0), strict=True):
        results[name] = {"accuracy": right, "interval": [right, right], "per_text": [right] * 3, "seconds": 1.0}
    (tmp_path / WORK).mkdir()
    report_demo(tmp_path, results, {})
    page = (tmp_path / "report.html").read_text()
    assert "better by +80.0 (+80.0 to +80.0)" in page
    assert "<td>-80.0 (-80.0 to -80.0)</td>" in page  # of the paper's E, under "better than the default by"
    assert "&lt;b&gt;here" in page
    heads, body = beside_each_other([
        {"settings": {"data": "a", "contender": name}, "metrics": {"per_query": [each["per_query"]]}}
        for name, each in (("original, chunks averaged", chunks), ("BM25", words), ("minilm-16k", long), ("cut", cut))
    ])  # fmt: skip
    better = heads.index("better than chunks by")
    assert [line[better] for line in body] == ["", *(f"{x:+.1f} ({x:+.1f} to {x:+.1f})" for x in (30.0, -50.0, -10.0))]
    assert np.mean(long["per_query"]) == 10
