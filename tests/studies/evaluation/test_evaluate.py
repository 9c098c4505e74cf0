"""longform evaluate: the same scores from files, tables and columns, and the report that the command prints."""

import json
from pathlib import Path
from typing import Any

import datasets
import pandas
import pytest

from longform.cli.main import main
from longform.errors import ConfigurationError, DataError
from longform_lab.evaluation.run import EvaluationResult, evaluate

TEXTS = ["the near text", "far far it", "good and bad for long", "x"]
OPTIONS: dict[str, Any] = {"progress": False, "batch_tokens": 200}
LABELLED = [{"text": text, "label": label} for text, label in zip(TEXTS, ["bad", "good", "odd", "bad"], strict=True)]
PAIRS = [{"sentence1": "near", "sentence2": text, "score": place} for place, text in enumerate(TEXTS)]
DOCUMENTS = [{"id": str(place), "text": text} for place, text in enumerate(TEXTS)]
QUERIES = [{"query": text, "relevant": [str(place)]} for place, text in enumerate(TEXTS)]


def columns(rows: list[dict[str, Any]]) -> tuple[Any, ...]:
    return tuple(pandas.DataFrame(rows)[name] for name in rows[0])


def scores(result: EvaluationResult) -> list[dict[str, Any]]:
    return [{name: value for name, value in record.items() if name != "seconds"} for record in result.records]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(("task", "rows"), [("classification", LABELLED), ("sts", PAIRS)])
def test_whatever_holds_the_data_has_the_same_scores(
    task: str, rows: list[dict[str, Any]], classifier_folder: Path, tmp_path: Path
) -> None:
    options = {"longform": classifier_folder, **OPTIONS}
    expected = scores(evaluate(task, write(tmp_path / "a.jsonl", rows), **options))
    for same in (rows, pandas.DataFrame(rows), datasets.Dataset.from_list(rows), columns(rows)):
        assert scores(evaluate(task, same, **options)) == expected


def test_queries_and_documents_in_memory(longform_folder: Path, bert_folder: Path) -> None:
    options = {"longform": longform_folder, "original": bert_folder, **OPTIONS}
    found = evaluate("retrieval", QUERIES, documents=pandas.DataFrame(DOCUMENTS), **options)
    assert [record["recall@1"] for record in found.records] == [100.0] * 3
    assert scores(evaluate("retrieval", columns(QUERIES), documents=columns(DOCUMENTS), **options)) == scores(found)
    with pytest.raises(ConfigurationError, match='documents are for task="retrieval", which needs them'):
        evaluate("retrieval", QUERIES, **options)
    with pytest.raises(DataError, match='the list of texts: the id "0" occurs twice'):
        evaluate("retrieval", QUERIES, documents=[*DOCUMENTS, DOCUMENTS[0]], **options)


def test_the_report_is_what_the_command_prints(
    classifier_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write(tmp_path / "a.jsonl", LABELLED)
    result = evaluate("classification", data, longform=classifier_folder, progress=False)
    assert main(["evaluate", "classification", "--data", str(data), "--longform", str(classifier_folder)]) == 0
    said = capsys.readouterr().out
    ours = result.report.replace(f"{result.records[0]['seconds']:.4f}", "seconds")
    for line in (line for line in ours.splitlines() if "seconds" not in line):
        assert line in said
    assert "longform: columns are predictions" in said


def test_what_cannot_be_evaluated(longform_folder: Path) -> None:
    with pytest.raises(ConfigurationError, match='task is "similarity"; it is one of classification, sts'):
        evaluate("similarity", PAIRS, longform=longform_folder)
    with pytest.raises(ConfigurationError, match="nothing to evaluate"):
        evaluate("sts", PAIRS)
    with pytest.raises(DataError, match=r'texts:0: no field "sentence1"; the fields there are: text, label'):
        evaluate("sts", pandas.DataFrame(LABELLED), longform=longform_folder)
    with pytest.raises(DataError, match="of one length, of sentence1, sentence2, score; their lengths here: 4, 4, 1"):
        evaluate("sts", (TEXTS, TEXTS, [1]), longform=longform_folder)
