"""Accuracy against training time, drawn from the records of ``longform compare`` into docs/pictures.

::

    python -m longform_lab.tables.compare_pictures
"""

from collections.abc import Sequence
from pathlib import Path

from longform_lab.compare.plots import draw_against_time
from longform_lab.pictures import new_figure, save_figure
from longform_lab.records import RECORDS, ROOT, Record, read_records
from longform_lab.tables.compare_tables import COMPARE_TABLES, groups, picture_name, results
from longform_lab.tables.write import chosen_rows

PICTURES = ROOT / "docs" / "pictures"


def draw(records: Sequence[Record], folder: Path) -> list[Path]:
    """A picture for each data set and budget that a table shows."""
    made = []
    for name, definition in COMPARE_TABLES.items():
        for group in groups(chosen_rows(name, definition, records)):
            settings = group[0]["settings"]
            folder.mkdir(parents=True, exist_ok=True)
            figure = new_figure(7.0, 5.0)
            draw_against_time(
                figure.subplots(), results(group), task=settings["task"], share=settings["most_frequent_class"]
            )
            save_figure(figure, folder / picture_name(settings))
            made.append(folder / picture_name(settings))
    return made


def main() -> None:
    """Draw, and say what."""
    for path in draw(read_records(sorted(RECORDS.glob("compare.jsonl"))), PICTURES):
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
