import json
import os
import resource
import shutil
from pathlib import Path

import pytest
from transformers import AutoModel

import longform
from longform.errors import ConfigurationError, ConversionError
from longform.files import sole_output


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
    with pytest.raises(
        ConfigurationError, match=r'out" is not empty: give another folder, or overwrite=True \(--restart\)'
    ):
        result.save_pretrained(folder)
    assert tree(folder) == before


@pytest.mark.parametrize("name", [".mine.lock", ".mine.unfinished", f".mine.{os.getppid()}.ab.unfinished"])
def test_a_hidden_file_makes_a_folder_not_empty(bert_folder, tmp_path, name):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).touch()
    with pytest.raises(ConfigurationError, match="is not empty"):
        longform.convert(bert_folder, max_length=96).save_pretrained(tmp_path / "out")


def test_overwriting_replaces_an_earlier_result(bert_folder, tmp_path):
    folder = longform.convert(bert_folder, max_length=96).save_pretrained(tmp_path / "out")
    longform.convert(bert_folder, max_length=80).save_pretrained(folder, overwrite=True)
    assert '"max_position_embeddings": 80' in (folder / "config.json").read_text()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_overwriting_never_removes_other_peoples_files(bert_folder, tmp_path):
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "thesis.txt").write_text("years of work")
    with pytest.raises(ConfigurationError, match="not the result of a conversion"):
        longform.convert(bert_folder, max_length=96).save_pretrained(tmp_path / "papers", overwrite=True)
    assert tree(tmp_path / "papers") == {"thesis.txt": b"years of work"}


@pytest.mark.parametrize("name", ["papers/thesis.txt", "run.json", "papers", "config.json"])
def test_what_was_added_or_changed_since_is_named_and_stays(bert_folder, tmp_path, name):
    result = longform.convert(bert_folder, max_length=96)
    folder = result.save_pretrained(tmp_path / "out")
    if name == "papers":
        (folder / name).mkdir()
    else:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("{}")
    before = tree(folder)
    with pytest.raises(ConfigurationError, match=rf"not all in it is as the conversion left it \({name.split('/')[0]}"):
        result.save_pretrained(folder, overwrite=True)
    assert tree(folder) == before
    assert (folder / name).exists()


def test_a_model_trained_since_is_not_overwritten(bert_folder, tmp_path):
    result = longform.convert(bert_folder, max_length=96)
    folder = result.save_pretrained(tmp_path / "out")
    model = AutoModel.from_pretrained(folder)
    next(model.parameters()).data += 1  # as a training does
    model.save_pretrained(folder)
    before = tree(folder)
    with pytest.raises(ConfigurationError, match=r"model\.safetensors"):
        result.save_pretrained(folder, overwrite=True)
    assert tree(folder) == before


def test_a_conversion_that_does_not_say_what_it_wrote_is_not_overwritten(bert_folder, tmp_path):
    result = longform.convert(bert_folder, max_length=96)
    folder = result.save_pretrained(tmp_path / "out")
    report = json.loads((folder / "conversion_report.json").read_text())
    assert sorted(report.pop("files")) == sorted(set(tree(folder)) - {"conversion_report.json"})
    (folder / "conversion_report.json").write_text(json.dumps(report))
    with pytest.raises(ConfigurationError, match="not all in it is as the conversion left it"):
        result.save_pretrained(folder, overwrite=True)


@pytest.mark.parametrize("where", [".", "..", "below"])
def test_the_source_is_never_overwritten(bert_folder, where):
    before = tree(bert_folder)
    with pytest.raises(ConfigurationError, match=r"(is|holds|is inside) the input \".*bert\""):
        longform.convert(bert_folder, max_length=96).save_pretrained(bert_folder / where, overwrite=True)
    assert tree(bert_folder) == before


def test_a_link_stays_and_its_target_is_written(bert_folder, tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to("disk")
    result = longform.convert(bert_folder, max_length=96)
    for overwrite in (False, True):
        result.save_pretrained(tmp_path / "out", overwrite=overwrite)
        assert os.readlink(tmp_path / "out") == "disk"
        assert (tmp_path / "disk" / "model.safetensors").is_file()
    (tmp_path / "source").symlink_to(bert_folder)
    with pytest.raises(ConfigurationError, match="the input"):
        result.save_pretrained(tmp_path / "source", overwrite=True)


def test_what_another_process_writes_is_not_written_too(bert_folder, tmp_path):
    result = longform.convert(bert_folder, max_length=96)
    refused = pytest.raises(ConfigurationError, match="is being written by another process")
    with sole_output(tmp_path / "out", folder=True), refused:
        result.save_pretrained(tmp_path / "out")


def test_a_result_that_was_moved_aside_by_a_killed_conversion_is_put_back(bert_folder, tmp_path):
    result = longform.convert(bert_folder, max_length=96)
    folder = result.save_pretrained(tmp_path / "out")
    before = tree(folder)
    folder.rename(tmp_path / f".out.{os.getpid()}.ab12.older")
    with pytest.raises(ConfigurationError, match="is not empty"):
        result.save_pretrained(folder)
    assert tree(folder) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bert", "out"]


def test_a_file_is_in_the_way(bert_folder, tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(ConfigurationError, match='out" is a file: give a folder'):
        longform.convert(bert_folder, max_length=96).save_pretrained(tmp_path / "out")
    with pytest.raises(ConfigurationError, match=r'would be below ".*out", which is a file'):
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
