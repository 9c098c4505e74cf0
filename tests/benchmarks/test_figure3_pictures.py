from typing import Any

from longform_lab.records import Record
from longform_lab.tables.draw import draw_trainings

SIZES = {"hidden_size": 192, "vocabulary": 1024}  # of the small scale


def trained(curve: str, seed: int, *, date: str = "2026-01-01", **others: Any) -> Record:
    settings = {"curve": curve, "label": curve, "seed": seed, "n": 128, **SIZES, **others}
    metrics = {"loss": 1.5, "unigram_loss": 3.0, "curve": [[0, 5.0], [10, 2.0], [20, 1.5]]}
    return Record(name="pretraining", metrics=metrics, settings=settings, date=date)


def test_parts_of_which_there_are_trainings_are_drawn(tmp_path):
    several_k = ("full", "k16-headwise", "k32-headwise", "k64-headwise")
    records = [trained(f"n128-{key}", 0) for key in several_k]
    records += [trained("n128-full", 0, date="2026-01-02"), trained("n128-k32-window", 1)]
    shared = [f"k32-{sharing}" for sharing in ("none", "headwise", "key_value", "layerwise")]
    records += [trained(f"twin9-n128-{key}", 0, twin_steps=9) for key in ("full", *shared, "k16-headwise")]
    records += [trained("n128-k32-none", 0, hidden_size=64)]  # of another scale
    bytes_read = {"hidden_size": 64, "vocabulary": 261, "n": 64}
    records += [
        trained(f"n64-{key}", 0, **bytes_read) for key in ("full", "k8-headwise", "k16-headwise", "k32-headwise")
    ]
    made = draw_trainings(records, tmp_path)
    assert [path.name for path in made] == ["figure3a.png", "figure3c-from-twin.png", "figure3a-bytes.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in made)
    assert draw_trainings([], tmp_path / "none") == []
