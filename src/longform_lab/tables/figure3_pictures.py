"""Figure 3's curves, drawn from the records of ``longform reproduce`` into docs/pictures.

::

    python -m longform_lab.tables.figure3_pictures
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from longform_lab.paper.figure3_plan import CLOSERS, FIGURES, planned, preset_of
from longform_lab.paper.figure3_plots import draw_figure3
from longform_lab.paper.parts import Finished
from longform_lab.records import RECORDS, ROOT, Record, read_records

PICTURES = ROOT / "docs" / "pictures"
SETTINGS = {"figure3-small": "", "figure3-bytes": "-bytes", "figure3-gpu": "-gpu"}  # a picture's name ends so
ALSO = {"figure3a": CLOSERS, "figure3d": ("window",)}


def _latest(records: Sequence[Record], sizes: Mapping[str, Any]) -> dict[Any, Record]:
    """The newest record of models of these ``sizes`` by line and seed."""
    return {
        (record.settings["curve"], record.settings["seed"]): record
        for record in sorted(records, key=lambda record: record.date)
        if sizes.items() <= record.settings.items()
    }


def _finished(latest: Mapping[Any, Record], curves: set[str]) -> list[Finished]:
    return [Finished(latest[key], _kept(latest[key])) for key in sorted(latest) if key[0] in curves]


def draw(records: Sequence[Record], folder: Path) -> list[Path]:
    """A picture for each part of the figure whose own lines were all trained, and one of those from a twin."""
    made = []
    for name, suffix in SETTINGS.items():
        preset = preset_of("small", name)
        sizes = {"hidden_size": preset.model["hidden_size"], "vocabulary": preset.tokenizer.vocab_size}
        latest = _latest(records, sizes)
        starts = {record.settings.get("twin_steps") for record in latest.values()}
        for figure in FIGURES:
            for twin_steps in sorted(starts, key=lambda steps: steps or 0):
                plan = planned(figure, preset, also=ALSO.get(figure, ()), from_twin=twin_steps)
                finished = _finished(latest, {curve.key for curve in plan.curves})
                own = {curve.key for curve in planned(figure, preset, from_twin=twin_steps).curves}
                if own <= {one.record.settings["curve"] for one in finished}:
                    twin = "" if twin_steps is None else "-from-twin"
                    made.append(folder / f"{figure}{twin}{suffix}.png")
                    draw_figure3(plan, finished, made[-1])
    return made


def _kept(record: Record) -> list[dict[str, float]]:
    curve: Any = record.metrics["curve"]
    return [{"step": step, "loss": loss, "perplexity": math.exp(loss)} for step, loss in curve]


def main() -> None:
    """Draw, and say what."""
    for path in draw(read_records(sorted(RECORDS.glob("pretraining.jsonl"))), PICTURES):
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
