"""Records of a run that was killed after its last step, and what is left of a run that was killed when complete."""

from pathlib import Path

from longform.training.engine.records import Records
from longform.training.engine.run_folder import RunFolder


def test_the_end_of_a_run_that_was_killed_while_it_was_saved_is_recorded_once(tmp_path: Path) -> None:
    first = Records(tmp_path)
    for event in ("train", "end"):
        first.add(event, 8)
    again = Records(tmp_path)
    again.restore(8)
    again.add("end", 8)
    assert [row["event"] for row in again.rows] == ["train", "end"]
    finished = Records(tmp_path)
    finished.restore(8, ended=True)
    assert finished.rows == again.rows


def test_checkpoints_that_a_complete_run_could_not_delete_are_deleted_at_the_next_start(tmp_path: Path) -> None:
    def opened() -> RunFolder:
        run = RunFolder(tmp_path, {"kind": "test"}, kept=True, main=True)
        run.open(restart=False, wait=lambda: None)
        return run

    opened().finish(lambda place: (place / "model.safetensors").touch(), wait=lambda: None)
    (tmp_path / "checkpoint-8.pt").touch()
    (tmp_path / "unfinished-model").mkdir()
    assert opened().complete
    assert {path.name for path in tmp_path.iterdir()} == {"model.safetensors", "records.jsonl", "run.json"}
