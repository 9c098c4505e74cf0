"""One page of everything: each subject's part, and what the paper says beside what was found."""

import json
from pathlib import Path

import pytest

from longform.cli.main import main
from longform.data.bundled import speeches
from longform.runs.page import Table
from longform_lab.paper.everything import write_everything
from longform_lab.paper.reproduce import STAGES, SUBJECTS
from longform_lab.report import Claim, Report, Section


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": document.text}) + "\n" for document in speeches()[:12]))
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for name, fields in (
        ("sst2_train", ["sentence"]), ("sst2_dev", ["sentence"]), ("imdb_train", ["text"]),
        ("qnli_part", ["question", "sentence"]), ("mrpc_train", ["sentence1", "sentence2"]),
        ("rte_train", ["sentence1", "sentence2"]),
    ):  # fmt: skip
        said = ["the text is good", "the text is bad"] * 30
        rows = [{**dict.fromkeys(fields, text), "label": number % 2} for number, text in enumerate(said)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_every_subject_is_a_stage_once() -> None:
    assert sorted(STAGES) == sorted(SUBJECTS.keys() - {"all", "figure2"})  # figure2 is table3's


def test_the_page_has_each_part_and_its_claims(tmp_path: Path) -> None:
    claim = Claim("it is <linear>", "it grows", agrees=False)
    reports = {
        "table1": Report("Growth", ["A lead."], [Section("Results", Table(["a"], [["1"]]))], ["a note"], [claim]),
        "table2": Report("Accuracy", ["Another."], [Section("Results", Table(["b"], [["2"]]))]),
    }
    page = write_everything(tmp_path, reports, lacking=3)
    assert page.sections[0].table.rows == [["table1", "it is <linear>", "it grows", "no"]]
    page = (tmp_path / "report.html").read_text()
    for part in ("Growth", "A lead.", "a note", "Accuracy", "3 parts are not finished", "it is &lt;linear&gt;"):
        assert part in page


@pytest.mark.nightly  # about nine minutes
def test_everything_at_the_tiny_scale(
    texts: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["reproduce", "all", "--scale", "tiny", "--text", str(texts), "--data", str(data), "--seeds", "0"]
    assert main([*command, "--output", str(tmp_path / "paper")]) == 0
    said = capsys.readouterr().out
    assert f"[{len(STAGES)}/{len(STAGES)}] table2" in said
    page = (tmp_path / "paper" / "report.html").read_text()
    assert page.count("data:image/png;base64,") >= 9
    for name in STAGES:
        assert (tmp_path / "paper" / name / "report.html").is_file()
