"""A page of ``longform reproduce``: records, tables as Markdown, and HTML, the same for every table and figure."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from longform.runs.files import write_text
from longform.runs.page import Heading, Table, markdown
from longform_lab.page import Block, Bullets, Picture, write_page
from longform_lab.records import Record, provenance

RECORDS, TABLE, REPORT = "records.jsonl", "table.md", "report.html"
VERDICTS = {True: "yes", False: "no", None: "cannot tell"}


class Claim(NamedTuple):
    """Claim of the paper, what was found here, and whether the two agree; None: what was found cannot tell."""

    paper: str
    here: str
    agrees: bool | None


@dataclass(frozen=True)
class Report:
    """A page: ``lead`` and ``notes`` are sentences, ``pictures`` files in the folder with what one sees on them."""

    title: str
    lead: list[str]
    table: Table
    pictures: list[tuple[str, str]]
    notes: list[str] = field(default_factory=list)
    others: list[tuple[str, Table]] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)

    def blocks(self, folder: Path, level: int = 2) -> list[Block]:
        """Blocks of the page below its title; ``folder`` has the pictures, headings are of ``level``."""
        beside = [Heading("Beside the paper", level), claims_table(self.claims)] if self.claims else []
        others = [block for title, table in self.others for block in (Heading(title, level), table)]
        return [
            *self.lead,
            *(Picture.read(folder / name, said) for name, said in self.pictures),
            Heading("Results", level),
            self.table,
            *others,
            *beside,
            *([Heading("Notes", level), Bullets(self.notes)] if self.notes else []),
        ]


def claims_table(claims: Sequence[Claim]) -> Table:
    """A row a claim."""
    rows = [[claim.paper, claim.here, VERDICTS[claim.agrees]] for claim in claims]
    return Table(["the paper", "here", "agrees"], rows, words=3)


def write_report(output: Path, report: Report, records: Sequence[Record]) -> None:
    """``records.jsonl``, ``table.md`` and ``report.html``; the pictures are in ``output`` already."""
    write_text(output / RECORDS, "".join(f"{record.to_line()}\n" for record in records))
    others = [block for title, table in report.others for block in (Heading(title), table)]
    write_text(output / TABLE, markdown([report.table, *others]))
    write_page(output / REPORT, report.title, report.blocks(output), foot=provenance(records))


def mean_and_spread(values: Sequence[float], form: str) -> str:
    """The mean, and behind ± the sample standard deviation where there are several."""
    mean = format(statistics.fmean(values), form)
    return mean if len(values) < 2 else f"{mean} ± {statistics.stdev(values):{form}}"
