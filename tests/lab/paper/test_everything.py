"""Parts of a reproduction, each done once by one process, and one page of everything."""

from pathlib import Path

import pytest
from json_lines import write_lines

from longform.errors import CheckpointError, ConfigurationError
from longform.files import locked
from longform.pretrained.model_card import Table
from longform_lab.paper.everything import write_everything
from longform_lab.paper.parts import FINISHED, LOCKS, Part, work_through
from longform_lab.paper.reproduce import STAGES, SUBJECTS
from longform_lab.records import Record
from longform_lab.report import Claim, Report, Section
from longform_text.cli.main import main
from longform_text.data.bundled import speeches


def _part(name, done, **identity):
    def work():
        done.append(name)
        return Record(name="made-up", metrics={"value": 1.5}), [name]

    return Part(name, identity, work)


def _through(parts, folder):
    reported = []
    found = work_through(parts, folder, reported.append, described="parts", progress=False)
    return found, [len(finished) for finished in reported]


def test_what_is_lacking_is_done_once(tmp_path):
    done = []
    (finished, lacking), reported = _through([_part("a", done), _part("b", done)], tmp_path)
    assert (done, lacking, reported) == (["a", "b"], 0, [1, 2, 2])
    assert [(one.kept, one.row["metrics"]) for one in finished] == [(["a"], {"value": 1.5}), (["b"], {"value": 1.5})]
    (again, _), reported = _through([_part("a", done), _part("b", done), _part("c", done)], tmp_path)
    assert (done, reported) == (["a", "b", "c"], [3, 3])
    assert again[:2] == finished


def test_a_part_of_another_process_is_left_to_it(tmp_path):
    done = []
    with locked(tmp_path / LOCKS / "a") as mine:
        (finished, lacking), _ = _through([_part("a", done), _part("b", done)], tmp_path)
    assert (mine, done, len(finished), lacking) == (True, ["b"], 1, 1)
    assert _through([_part("a", done), _part("b", done)], tmp_path)[0][1] == 0


def test_other_settings_and_damage_are_refused(tmp_path):
    _through([_part("a", [], steps=3)], tmp_path)
    with pytest.raises(ConfigurationError, match="steps: 3 there, 4 now"):
        _through([_part("a", [], steps=4)], tmp_path)
    (tmp_path / FINISHED / "a.json").write_text('{"identity"')
    with pytest.raises(CheckpointError, match="delete it to do a again"):
        _through([_part("a", [], steps=3)], tmp_path)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "texts.jsonl", ({"text": document.text} for document in speeches()[:12]))


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
        write_lines(folder / f"{name}.jsonl", rows)
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
