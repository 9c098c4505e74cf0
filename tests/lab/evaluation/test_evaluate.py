"""longform evaluate: each contender is run its own way, whatever holds the data, and bad data has clear errors."""

from pathlib import Path
from typing import Any

import datasets
import pandas
import pytest
from json_lines import write_lines

from longform.errors import ConfigurationError, DataError
from longform_lab.evaluation.comparison import (
    RunSettings,
    compare_classification,
    compare_similarity,
    contenders,
    label_ids,
)
from longform_lab.evaluation.retrieval_comparison import compare_retrieval
from longform_lab.evaluation.run import EvaluationResult, evaluate
from longform_text.cli.main import main

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


@pytest.mark.parametrize(("task", "rows"), [("classification", LABELLED), ("sts", PAIRS)])
def test_whatever_holds_the_data_has_the_same_scores(
    task: str, rows: list[dict[str, Any]], classifier_folder: Path, tmp_path: Path
) -> None:
    options = {"longform": classifier_folder, **OPTIONS}
    expected = scores(evaluate(task, write_lines(tmp_path / "a.jsonl", rows), **options))
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
    data = write_lines(tmp_path / "a.jsonl", LABELLED)
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


SETTINGS = RunSettings(progress=False, batch_tokens=200)
FIELDS = ["one", "two", "score"]
RETRIEVAL = {"query_field": "query", "relevant_field": "relevant", "id_field": "id", "text_field": "text"}


@pytest.fixture
def models(bert_folder: Path, longform_folder: Path) -> list[Any]:
    return contenders(longform=str(longform_folder), original=str(bert_folder))


def test_similarity(models: list[Any], tmp_path: Path) -> None:
    rows = [
        {"one": "the near", "two": text, "score": str(at)} for at, text in enumerate(["far " * 40, "a", "the near"])
    ]
    data = write_lines(tmp_path / "a.jsonl", rows)
    records = compare_similarity(models, data, SETTINGS, fields=FIELDS)
    assert [record["strategy"] for record in records] == ["whole", "cut", "chunk-average"]
    assert [record["truncated"] for record in records] == [0, 1, 0]
    assert all(-100 <= record["spearman"] <= 100 for record in records)
    with pytest.raises(ConfigurationError, match="first text, second text, score"):
        compare_similarity(models, data, SETTINGS, fields=FIELDS[:2])
    with pytest.raises(DataError, match=r"a\.jsonl:1: the field \"score\": 'much' is not a number"):
        compare_similarity(models, write_lines(data, [{**rows[0], "score": "much"}]), SETTINGS, fields=FIELDS)


def test_characters_that_no_tokenizer_takes_are_replaced(models: list[Any], tmp_path: Path) -> None:
    rows = [{"one": "the near", "two": text, "score": at} for at, text in enumerate(["far \ud800", "a\x00b", "the"])]
    found = compare_similarity(models[:1], write_lines(tmp_path / "a.jsonl", rows), SETTINGS, fields=FIELDS)
    clean = [{**row, "two": text} for row, text in zip(rows, ["far \ufffd", "a b", "the"], strict=True)]
    expected = compare_similarity(models[:1], write_lines(tmp_path / "b.jsonl", clean), SETTINGS, fields=FIELDS)
    assert found[0]["spearman"] == pytest.approx(expected[0]["spearman"])
    with pytest.raises(DataError, match=r'a\.jsonl:1: the field "two" is int .*, not text'):
        compare_similarity(models, write_lines(tmp_path / "a.jsonl", [{**rows[0], "two": 3}]), SETTINGS, fields=FIELDS)


def test_retrieval_finds_the_same_text(models: list[Any], tmp_path: Path) -> None:
    texts = {"a": "the near text", "b": "far far it", "c": "good and bad for long"}
    documents = write_lines(tmp_path / "d.jsonl", [{"id": name, "text": text} for name, text in texts.items()])
    queries = write_lines(
        tmp_path / "q.jsonl",
        [
            {"query": texts["a"], "relevant": "a"},
            {"query": texts["b"], "relevant": ["b"]},
            {"query": texts["c"], "relevant": '["c"]'},
        ],
    )
    for record in compare_retrieval(models, queries, documents, SETTINGS, **RETRIEVAL):
        assert record["ndcg@10"] == record["recall@1"] == pytest.approx(100)
    write_lines(queries, [{"query": "x", "relevant": "z"}])
    with pytest.raises(DataError, match="no document has the id z"):
        compare_retrieval(models, queries, documents, SETTINGS, **RETRIEVAL)
    write_lines(queries, [{"query": "x", "relevant": "a"}, {"query": "x", "relevant": "[a"}])
    with pytest.raises(DataError, match=r"q\.jsonl:2: the field \"relevant\" is '\[a', neither .* nor a JSON list"):
        compare_retrieval(models, queries, documents, SETTINGS, **RETRIEVAL)


def test_retrieval_by_the_best_chunk_finds_a_passage(models: list[Any], tmp_path: Path) -> None:
    filling = "good bad long short it is for of a and " * 2
    texts = {"a": f"{filling}. the near near text.", "b": f"{filling}. far far far.", "c": filling}
    documents = write_lines(tmp_path / "d.jsonl", [{"id": name, "text": text} for name, text in texts.items()])
    queries = write_lines(tmp_path / "q.jsonl", [{"query": filling, "relevant": "c"}])
    options: dict[str, Any] = {**RETRIEVAL, "score": "best-chunk", "chunk_tokens": 8}
    records = compare_retrieval(models, queries, documents, SETTINGS, **options)
    assert all(0 <= record["ndcg@10"] <= 100 for record in records)
    assert [record["truncated"] for record in records] == [0, 0, 0]
    with pytest.raises(ConfigurationError, match='score is "odd"; it is one of document, best-chunk'):
        compare_retrieval(models, queries, documents, SETTINGS, **(options | {"score": "odd"}))


def test_an_id_may_begin_with_a_bracket(models: list[Any], tmp_path: Path) -> None:
    documents = write_lines(tmp_path / "d.jsonl", [{"id": "[a", "text": "the near"}, {"id": "b", "text": "far"}])
    queries = write_lines(tmp_path / "q.jsonl", [{"query": "the near", "relevant": "[a"}])
    (found,) = compare_retrieval(models[:1], queries, documents, SETTINGS, **RETRIEVAL)
    assert found["recall@1"] == 100


def test_classification(classifier_folder: Path, bert_classifier_folder: Path, tmp_path: Path) -> None:
    models = contenders(longform=str(classifier_folder), original=str(bert_classifier_folder))
    rows = [
        {"text": "the " * at, "more": "far", "label": label} for at, label in enumerate(["bad", "good", "odd"] * 12)
    ]
    data = write_lines(tmp_path / "a.jsonl", rows)
    records = compare_classification(models, data, SETTINGS)
    assert [record["truncated"] for record in records] == [0, 5, 0]
    for record in records:
        assert sum(map(sum, record["confusion"])) == 36
        assert 0 <= record["accuracy"] <= 1
    assert len(compare_classification(models, data, SETTINGS, pair_field="more")) == 2
    with pytest.raises(DataError, match=r"a\.jsonl:1: no field \"topic\""):
        compare_classification(models, data, SETTINGS, label_field="topic")
    write_lines(data, [{"text": "the", "label": "new"}])
    with pytest.raises(DataError, match="no label 'new'"):
        compare_classification(models, data, SETTINGS)


def test_labels_become_ids() -> None:
    known = {"bad": 0, "good": 1}
    assert label_ids(["good", "bad"], known).tolist() == [1, 0]
    assert label_ids([1, 0], known).tolist() == [1, 0]
    with pytest.raises(DataError, match=r"no label 'odd' \(unseen in training\); it has: bad, good"):
        label_ids(["good", "odd"], known)
    with pytest.raises(DataError, match="no label '2'"):
        label_ids([2], known)
    with pytest.raises(DataError, match=r"mixed types \(int, str\)"):
        label_ids(["good", 1], known)


def test_a_number_is_a_name_where_names_are_numbers() -> None:
    stars = {str(count): place for place, count in enumerate(range(1, 6))}
    assert label_ids([1, 5], stars).tolist() == [0, 4]
    with pytest.raises(DataError, match="no label '0'"):
        label_ids([0, 1, 5], stars)
