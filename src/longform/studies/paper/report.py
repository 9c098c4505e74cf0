"""A page of ``longform reproduce``: records, tables as Markdown, and HTML, the same for every table and figure."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from longform.runs.files import write_text
from longform.runs.page import Bullets, Heading, Picture, Table, markdown, write_page
from longform.runs.records import Record, provenance

RECORDS, TABLE, REPORT = "records.jsonl", "table.md", "report.html"


@dataclass(frozen=True)
class Report:
    """A page: ``lead`` and ``notes`` are sentences, ``pictures`` files in the folder with what one sees on them."""

    title: str
    lead: list[str]
    table: Table
    pictures: list[tuple[str, str]]
    notes: list[str] = field(default_factory=list)
    others: list[tuple[str, Table]] = field(default_factory=list)


def write_report(output: Path, report: Report, records: Sequence[Record]) -> None:
    """``records.jsonl``, ``table.md`` and ``report.html``; the pictures are in ``output`` already."""
    write_text(output / RECORDS, "".join(f"{record.to_line()}\n" for record in records))
    others = [block for title, table in report.others for block in (Heading(title), table)]
    write_text(output / TABLE, markdown([report.table, *others]))
    pictures = [Picture.read(output / name, said) for name, said in report.pictures]
    blocks = [
        *report.lead,
        *pictures,
        Heading("Results"),
        report.table,
        *others,
        Heading("Notes"),
        Bullets(report.notes),
    ]
    write_page(output / REPORT, report.title, blocks, foot=provenance(records))


def mean_and_spread(values: Sequence[float], form: str) -> str:
    """The mean, and behind ± the sample standard deviation where there are several."""
    mean = format(statistics.fmean(values), form)
    return mean if len(values) < 2 else f"{mean} ± {statistics.stdev(values):{form}}"
