"""``longform align``: what its options and a recipe mean."""

import json
import re
from pathlib import Path

import pytest

from longform.cli import align
from longform.cli.arguments import parse
from longform.cli.main import main
from longform.training.alignment.settings import AlignmentSource

EXAMPLE = Path(__file__).parents[2] / "examples" / "align.yaml"


def sources(*options: str) -> list[AlignmentSource]:
    return align._sources(parse(align.parser(), ["model", *options, "--output", "out"]))


def test_pairs_queries_and_texts() -> None:
    assert sources("a", "b") == [AlignmentSource(pairs="a"), AlignmentSource(pairs="b")]
    assert sources("a", "--query-field", "q") == [AlignmentSource(pairs="a", query_field="q")]
    given = sources("a", "--documents", "d", "--relevant-field", "doc", "--first", "9")
    assert given == [AlignmentSource(queries="a", documents="d", relevant_field="doc", first=9)]
    assert sources("a", "--make", "[title, halves]") == [AlignmentSource(texts="a", make=["title", "halves"])]


def test_a_recipe() -> None:
    first, second = sources("--config", str(EXAMPLE))
    assert first == AlignmentSource(
        queries="queries.jsonl", documents="documents.jsonl", relevant_field="doc", weight=2
    )
    assert (second.texts, list(second.make), second.weight) == ("papers.parquet", ["title", "passage"], 1)
    assert parse(align.parser(), ["model", "--output", "out", "--config", str(EXAMPLE)]).documents_per_step == 8


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], 'give PAIRS, or a recipe: --config FILE.yaml with a list "sources"'),
        (["a", "--config", str(EXAMPLE)], "give PAIRS, or a recipe"),
        (["a", "--documents", "d", "--make", "[title]"], "--documents goes with queries, --make with texts alone"),
        (["a", "--make", "[titel]"], 'make="titel"; .*did you mean "title"'),
        (["a", "--schedule", "linaer"], r"linear"),
        (["a", "--documents-per-step", "1"], "documents_per_step=1 must be at least 2"),
    ],
)
def test_what_cannot_be_meant(
    options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["align", "model", *options, "--output", str(tmp_path / "out")]) == 2
    assert re.search(said, capsys.readouterr().err)


def test_it_trains_and_says_what_came_of_it(
    sentence_transformer_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"query": f"the {word} one", "document": f"a {word} text. " * 9} for word in "abcdefghij"]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = [str(sentence_transformer_folder), str(tmp_path / "pairs.jsonl"), "--output", str(tmp_path / "out")]
    assert main(["align", *given, "--max-steps", "2", "--documents-per-step", "4", "--max-length", "20"]) == 0
    said = capsys.readouterr()
    assert re.search(r"^before +held-out documents: nDCG@10 [01]\.\d{4}, short texts: ", said.out)
    assert "trained  2 steps of 8 documents in all" in said.out
    assert said.out.splitlines()[-1].startswith(f"next  longform evaluate retrieval --longform {tmp_path / 'out'}")
    assert "aligning, step 2: ndcg" in said.err
    assert json.loads((tmp_path / "out" / "run.json").read_text())["status"] == "complete"
