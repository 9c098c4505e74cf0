"""Whole documents, end to end: each reading is checked, then timed in turn; what is there is not measured again."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from longform.cli.main import main
from longform.errors import ConfigurationError
from longform.inference.encoders import Encoder
from longform_lab.records import read_records
from longform_lab.speed import readings
from longform_lab.speed.checks import WrongOutput
from longform_lab.speed.documents import measure_documents
from longform_lab.speed.readings import CHUNKS, all_readings

TEXTS = ["the near far good text " * 12, "bad long short it is " * 7, "far and near " * 20]


@pytest.fixture(autouse=True)
def _short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readings, "CHUNK", 32)


def test_longforms_beside_chunks(bert_folder: Path, longform_folder: Path, tmp_path: Path) -> None:
    said: list[str] = []
    options: dict[str, Any] = {"threads": [1], "repeats": 3, "only": ["Longform, window 32", "Longform, own"]}
    also = tmp_path / "also.jsonl"
    longforms = {"own": longform_folder}
    found = measure_documents(TEXTS, bert_folder, longforms, tmp_path, also=also, tell=said.append, **options)
    assert {record.settings["reading"] for record in found if record.settings["reading"].endswith("float32")} == {
        CHUNKS, "Longform, window 32, float32", "Longform, own, float32",
    }  # fmt: skip
    for record in found:
        assert record.metrics["missing"] is None
        assert record.metrics["cosine"] > 0.99
        assert record.metrics["tokens_per_second"] == pytest.approx(
            record.settings["tokens"] / record.metrics["seconds"]
        )
    assert found[0].metrics["against_chunks"] == 1
    assert read_records([also]) == found
    again = measure_documents(TEXTS, bert_folder, longforms, tmp_path, tell=said.append, **options)
    assert again == found
    with pytest.raises(ConfigurationError, match='no reading begins with "windows"; there are chunks, transformers'):
        measure_documents(TEXTS, bert_folder, {}, tmp_path, **options | {"only": ["windows"]})


def test_a_longform_that_would_cut_a_document_is_not_timed(
    bert_folder: Path, longform_folder: Path, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"threads": [1], "repeats": 1, "only": ["Longform, own"], "tell": lambda said: None}
    texts = [*TEXTS, "near " * 5000]
    found = measure_documents(texts, bert_folder, {"own": longform_folder}, tmp_path, **options)
    own = next(record.metrics for record in found if record.settings["reading"] == "Longform, own, float32")
    limit = Encoder.from_pretrained(longform_folder).limit
    assert own["missing"].startswith(f"takes {limit:,} tokens, and the longest document has 5,002: convert it")


def test_a_wrong_reading_is_not_timed(bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readings, "in_one_piece", lambda folder, texts: np.zeros((len(texts), 24), np.float32))
    options: dict[str, Any] = {"threads": [1], "repeats": 1, "only": ["Longform, pure mean"], "tell": lambda said: None}
    found = measure_documents(TEXTS, bert_folder, {}, tmp_path, **options)
    assert found[0].metrics["missing"] is None
    wrong = {record.settings["reading"]: record.metrics for record in found}["Longform, pure mean, float32"]
    assert wrong == {"missing": "a vector is wrong: cosine 0.0000, at least 0.9999 is allowed"}
    reading = next(each for each in all_readings(bert_folder, {}, tmp_path, length=256, dtypes=["float32"]))
    with pytest.raises(WrongOutput):
        reading.check(Encoder.from_pretrained(bert_folder, pooling="cls", normalise=True), TEXTS, 256)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")  # of the packages that export
def test_other_runtimes(bert_folder: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(readings.LOWEST, "int8", 0.5)  # random weights take rounding worse than trained ones
    (tmp_path / "texts").mkdir()
    for place, text in enumerate(TEXTS):
        (tmp_path / "texts" / f"{place}.txt").write_text(text)
    command = ["benchmark", "--preset", "documents", "--texts", str(tmp_path / "texts"), "--original", str(bert_folder)]
    command += ["--threads", "1", "--repeats", "1", "--output", str(tmp_path / "out"), "--readings", "chunks"]
    assert main(command) == 0
    found = read_records([tmp_path / "out" / "documents.jsonl"])
    names = [record.settings["reading"] for record in found]
    for runtime in ("ONNX Runtime float32", "ONNX Runtime int8", "OpenVINO"):
        assert f"chunks, {runtime}" in names
    assert [record.metrics["missing"] for record in found] == [None] * len(found)
    assert "chunks, OpenVINO" in capsys.readouterr().out
