from benchmarks import figure3_pictures
from longform.runs.records import Record


def trained(curve: str, seed: int, *, date: str = "2026-01-01") -> Record:
    settings = {"curve": curve, "label": curve, "seed": seed, "n": 64}
    metrics = {"loss": 1.5, "unigram_loss": 3.0, "curve": [[0, 5.0], [10, 2.0], [20, 1.5]]}
    return Record(name="pretraining", metrics=metrics, settings=settings, date=date)


def test_parts_of_which_there_are_trainings_are_drawn(tmp_path):
    records = [trained("n64-full", 0), trained("n64-full", 0, date="2026-01-02"), trained("n64-k16-window", 1)]
    made = figure3_pictures.draw(records, tmp_path)
    assert [path.name for path in made] == ["figure3a.png"]  # of the others there is the twin at most
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in made)
    assert figure3_pictures.draw([], tmp_path / "none") == []
