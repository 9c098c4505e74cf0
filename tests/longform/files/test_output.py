"""Which outputs are refused: an input under any name, the other kind of thing, another process's."""

import hashlib
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import longform
from longform.digests import digests, foreign
from longform.errors import ConfigurationError
from longform.files import check_output, entries, sole_output

NAMES = st.lists(st.sampled_from(["a", "b", "a.jsonl"]), min_size=1, max_size=3)


@given(read=NAMES, written=NAMES, folder=st.booleans(), linked=st.booleans())
def test_output_is_refused_exactly_where_it_and_an_input_hold_each_other(
    tmp_path_factory, read, written, folder, linked
):
    root = tmp_path_factory.mktemp("tree")
    source, output = root.joinpath(*read), root.joinpath(*written)
    source.mkdir(parents=True)
    if linked:
        (root / "link").symlink_to(root)
        output = root.joinpath("link", *written)
    shorter = min(len(read), len(written))
    if read[:shorter] == written[:shorter]:
        with pytest.raises(ConfigurationError, match="the input"):
            check_output(output, inputs=(str(source),), folder=folder)
    else:
        assert check_output(output, inputs=(str(source),), folder=folder) == output


@pytest.mark.parametrize("link", [os.symlink, None])
def test_file_that_is_read_is_no_output_under_any_name(tmp_path: Path, link) -> None:
    source, output = tmp_path / "texts.jsonl", tmp_path / "sub" / ".." / "texts.jsonl"
    (tmp_path / "sub").mkdir()
    source.write_text("mine")
    if link is not None:
        output = tmp_path / "other.jsonl"
        link(source, output)
    for inputs in ((source,), ("hub/name", str(source))):
        with pytest.raises(ConfigurationError, match=r'is the input ".*texts.jsonl": give another output'):
            check_output(output, inputs=inputs)


def test_what_is_no_name_of_a_file_is_passed_over(tmp_path: Path) -> None:
    inputs = ("a/hub-name", "a\x00b", "long " * 1000, None, object(), ["a"])
    assert check_output(tmp_path / "out.jsonl", inputs=inputs) == tmp_path / "out.jsonl"


def test_files_that_are_written_beside_it_count(tmp_path: Path) -> None:
    (tmp_path / "out.jsonl.partial").write_text("{}")
    with pytest.raises(ConfigurationError, match=r"the input .*out\.jsonl\.partial\""):
        check_output(tmp_path / "out.jsonl", inputs=(tmp_path / "out.jsonl.partial",), beside=(".partial",))


def test_folder_is_no_file_and_a_file_no_folder(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("mine")
    os.mkfifo(tmp_path / "pipe")
    for name, folder, said in (
        ("folder", False, "is a folder: give a file"), ("file", True, "is a file: give a folder"),
        ("pipe", False, "is a device or pipe"), ("file/below/x", False, 'below ".*file", which is a file'),
    ):  # fmt: skip
        with pytest.raises(ConfigurationError, match=said):
            check_output(tmp_path / name, folder=folder)


def test_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to("target")
    assert check_output(tmp_path / "link", folder=True) == tmp_path / "target"


def test_one_process_at_a_time_under_any_name(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to("run")
    with sole_output(tmp_path / "run", folder=True):
        for name in ("run", "link", "run/../run"):
            said = "is being written by another process: wait until it has ended"
            with pytest.raises(ConfigurationError, match=said), sole_output(tmp_path / name, folder=True):
                pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "run"]


def test_two_threads_are_two_writers(tmp_path: Path) -> None:
    refused = []

    def write() -> None:
        try:
            with sole_output(tmp_path / "out.jsonl"):
                pass
        except ConfigurationError as error:
            refused.append(error)

    with sole_output(tmp_path / "out.jsonl"):
        thread = threading.Thread(target=write)
        thread.start()
        thread.join()
    assert len(refused) == 1


def test_lock_is_inside_a_folder_beside_which_nothing_can_be_written(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "volume").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with sole_output(tmp_path / "volume", folder=True) as folder:
        assert [path.name for path in folder.iterdir()] == [".volume.lock"]
        assert entries(folder) == []


def test_what_was_added_or_changed_since_is_foreign(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("a", "sub/b", "sub/c"):
        (tmp_path / name).write_text(name)
    written = digests(tmp_path)
    (tmp_path / "report").write_text("")
    assert foreign(tmp_path, written, but=("report",)) == []
    whole = {name: hashlib.sha256(name.encode()).hexdigest() for name in written}  # as older versions wrote it
    assert foreign(tmp_path, whole, but=("report",)) == []
    (tmp_path / "sub" / "c").unlink()
    assert foreign(tmp_path, written, but=("report",)) == []
    (tmp_path / "a").write_text("b")
    assert foreign(tmp_path, written, but=("report",)) == ["a"]
    (tmp_path / "thesis").mkdir()
    assert foreign(tmp_path, written, but=("report",)) == ["thesis"]


def test_what_a_killed_process_left_of_the_files_beside_an_output_goes_too(tmp_path: Path) -> None:
    left = [f".out.jsonl{end}.{os.getpid()}.12ab.unfinished" for end in ("", ".settings")]
    for name in (*left, "out.jsonl.settings"):
        (tmp_path / name).touch()
    with sole_output(tmp_path / "out.jsonl", beside=(".settings",)):
        assert not any((tmp_path / name).exists() for name in left)
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl.settings"]


def test_no_model_is_in_a_folder_whose_name_is_not_utf_8(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/mod\xe9le"))
    for path in (folder, folder / "below"):
        with pytest.raises(ConfigurationError, match="is not UTF-8, and no model can be there: rename it"):
            check_output(path, folder=True)
        assert check_output(path, folder=True, models=False) == path
        assert check_output(path / "a.jsonl") == path / "a.jsonl"
    folder.mkdir()
    for read in (longform.Encoder.from_pretrained, longform.convert):
        with pytest.raises(ConfigurationError, match="rename it"):
            read(folder)
