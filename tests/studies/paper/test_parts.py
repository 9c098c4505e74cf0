"""Parts: finished ones are files, one process a part, a result of other settings is refused."""

import pytest

from longform.data.storage import locked
from longform.errors import CheckpointError, ConfigurationError
from longform_lab.paper.parts import FINISHED, LOCKS, Part, work_through
from longform_lab.records import Record


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
