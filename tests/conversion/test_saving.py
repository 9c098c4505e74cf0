import resource
import shutil
from pathlib import Path

import pytest

import longform
from longform.errors import ConversionError


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture
def small_files_only():
    """No file above 20 kB can be written: what a full disk does to the weights, while the small files fit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_parents_are_made(bert_folder, tmp_path):
    folder = longform.convert(bert_folder, max_length=96).save_pretrained(tmp_path / "a" / "b")
    assert folder == tmp_path / "a" / "b"
    names = {path.name for path in folder.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "conversion_report.json"} <= names


def test_an_empty_folder_is_used(bert_folder, tmp_path):
    (tmp_path / "out").mkdir()
    assert (longform.convert(bert_folder, max_length=96).save_pretrained(tmp_path / "out") / "config.json").is_file()


def test_nothing_is_overwritten_unasked(bert_folder, tmp_path):
    result = longform.convert(bert_folder, max_length=96)
    folder = result.save_pretrained(tmp_path / "out")
    before = tree(folder)
    with pytest.raises(ConversionError, match="out is not empty; give another folder, or overwrite=True"):
        result.save_pretrained(folder)
    assert tree(folder) == before


def test_overwriting_replaces_an_earlier_result(bert_folder, tmp_path):
    folder = longform.convert(bert_folder, max_length=96).save_pretrained(tmp_path / "out")
    (folder / "left_over.txt").write_text("old")
    longform.convert(bert_folder, max_length=80).save_pretrained(folder, overwrite=True)
    assert '"max_position_embeddings": 80' in (folder / "config.json").read_text()
    assert not (folder / "left_over.txt").exists()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_overwriting_never_removes_other_peoples_files(bert_folder, tmp_path):
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "thesis.txt").write_text("years of work")
    with pytest.raises(ConversionError, match="not the result of a conversion"):
        longform.convert(bert_folder, max_length=96).save_pretrained(tmp_path / "papers", overwrite=True)
    assert tree(tmp_path / "papers") == {"thesis.txt": b"years of work"}


@pytest.mark.parametrize("where", [".", ".."])
def test_the_source_is_never_overwritten(bert_folder, where):
    before = tree(bert_folder)
    (bert_folder / where / "conversion_report.json").write_text("{}")
    with pytest.raises(ConversionError, match="holds the source"):
        longform.convert(bert_folder, max_length=96).save_pretrained(bert_folder / where, overwrite=True)
    (bert_folder / where / "conversion_report.json").unlink()
    assert tree(bert_folder) == before


def test_a_file_is_in_the_way(bert_folder, tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(ConversionError, match="out is a file"):
        longform.convert(bert_folder, max_length=96).save_pretrained(tmp_path / "out")
    with pytest.raises(ConversionError, match="could not be written"):
        longform.convert(bert_folder, max_length=96).save_pretrained(tmp_path / "out" / "below")
    assert (tmp_path / "out").read_text() == "mine"


def test_a_full_disk_leaves_nothing_behind(bert_folder, tmp_path, small_files_only):
    with pytest.raises(ConversionError, match="could not be written"):
        longform.convert(bert_folder, max_length=96).save_pretrained(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["bert"]


def test_a_full_disk_keeps_the_earlier_result(bert_folder, tmp_path, request):
    folder = longform.convert(bert_folder, max_length=96).save_pretrained(tmp_path / "out")
    before = tree(folder)
    request.getfixturevalue("small_files_only")
    with pytest.raises(ConversionError, match="nothing there was changed"):
        longform.convert(bert_folder, max_length=80).save_pretrained(folder, overwrite=True)
    assert tree(folder) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bert", "out"]


def test_the_source_may_be_gone_by_then(bert_folder, tmp_path):
    result = longform.convert(bert_folder, max_length=96)
    shutil.rmtree(bert_folder)
    assert (result.save_pretrained(tmp_path / "out") / "model.safetensors").is_file()
