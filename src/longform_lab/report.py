"""The report of a study, the same for all: sections of sentences, pictures and a table; claims and notes at the end."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from longform.files import write_text
from longform.pretrained.model_card import Heading, Table, markdown
from longform_lab.page import Block, Bullets, Picture, write_page

TABLE, REPORT = "table.md", "report.html"
VERDICTS = {True: "yes", False: "no", None: "cannot tell"}


class Claim(NamedTuple):
    """Claim of the paper, what was found here, and whether the two agree; None: what was found cannot tell."""

    paper: str
    here: str
    agrees: bool | None


class Section(NamedTuple):
    """A part of a report; ``pictures``: files in the report's folder, with what one sees on them."""

    title: str
    table: Table | None = None
    pictures: Sequence[tuple[str, str]] = ()
    text: Sequence[str] = ()


@dataclass(frozen=True)
class Report:
    """A page: ``lead`` and ``notes`` are sentences; ``foot``: how it was made."""

    title: str
    lead: list[str]
    sections: list[Section]
    notes: list[str] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    foot: str = ""

    def blocks(self, folder: Path, level: int = 2) -> list[Block]:
        """Blocks of the page below its title; ``folder`` has the pictures, headings are of ``level``."""
        found: list[Block] = [*self.lead]
        for section in self.sections:
            found += [Heading(section.title, level), *section.text]
            found += [Picture.read(folder / name, said) for name, said in section.pictures]
            found += [] if section.table is None else [section.table]
        if self.claims:
            found += [Heading("Beside the paper", level), claims_table(self.claims)]
        if self.notes:
            found += [Heading("Notes", level), Bullets(self.notes)]
        return found


def claims_table(claims: Sequence[Claim]) -> Table:
    """A row a claim."""
    rows = [[claim.paper, claim.here, VERDICTS[claim.agrees]] for claim in claims]
    return Table(["the paper", "here", "agrees"], rows, words=3)


def write_report(output: Path, report: Report) -> None:
    """``table.md``, tables and notes, and ``report.html``; the pictures are in ``output`` already."""
    tables = [(section.title, section.table) for section in report.sections if section.table is not None]
    shown = [block for title, table in tables for block in (Heading(title), table)]
    write_text(output / TABLE, markdown([*shown, *report.notes]))
    write_page(output / REPORT, report.title, report.blocks(output), foot=report.foot)


def listed(facts: Mapping[str, Any]) -> str:
    """Names and values in one line."""
    return ", ".join(f"{name} {value}" for name, value in facts.items())


def mean_and_spread(values: Sequence[float], form: str) -> str:
    """The mean, and behind ± the sample standard deviation where there are several."""
    mean = format(statistics.fmean(values), form)
    return mean if len(values) < 2 else f"{mean} ± {statistics.stdev(values):{form}}"
