"""One page of all the paper's tables and figures, with what the paper says of each beside what was found here."""

from collections.abc import Mapping
from pathlib import Path

from longform.pretrained.model_card import Heading, Table
from longform_lab.page import write_page
from longform_lab.report import REPORT, Report, Section, claims_table


def write_everything(output: Path, reports: Mapping[str, Report], *, lacking: int) -> Report:
    """``report.html`` of the subjects in ``reports``, each in a folder of its name; returns the page of the claims.

    ``lacking``: parts that other processes are at.
    """
    rows = [[name, *cells] for name, report in reports.items() for cells in claims_table(report.claims).rows]
    table = Table(["subject", "the paper", "here", "agrees"], rows, words=4)
    lead = [
        "Linformer (arXiv 2006.04768) measured on this machine, at sizes that may be far from the paper's: each page "
        "says which. In tables the paper's value stands in brackets, where it has one.",
        *([f"{lacking} parts are not finished."] if lacking else []),
    ]
    page = Report("The paper's tables and figures", lead, [Section("What the paper says, and what was found", table)])
    blocks = page.blocks(output)
    for name, report in reports.items():
        blocks += [Heading(report.title), *report.blocks(output / name, level=3)]
    write_page(output / REPORT, page.title, blocks)
    return page
