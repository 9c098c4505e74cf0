"""What ``longform reproduce`` and ``compare`` write alike: tables as Markdown, a self-contained page; records."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from longform.data.text import atomic_write
from longform.runs.pictures import inline_picture
from longform.runs.records import Record

RECORDS, TABLE, REPORT = "records.jsonl", "table.md", "report.html"
STYLE = """
body { margin:0 auto; max-width:1080px; padding:32px 24px 64px; color:#1c2330; background:#fff;
  font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif; }
h1 { font-size:30px; margin:0 0 6px; } h2 { font-size:22px; margin:44px 0 8px; }
p,li { max-width:80ch; } table { border-collapse:collapse; font-size:14.5px; font-variant-numeric:tabular-nums; }
th,td { padding:5px 11px; border-bottom:1px solid #e3e7ed; text-align:right; } th { color:#5d6879; font-weight:600; }
th:first-child,td:first-child { text-align:left; } img { max-width:100%; height:auto; }
.soft { color:#5d6879; } .wide { overflow-x:auto; }
"""


@dataclass(frozen=True)
class Table:
    """Heads of the columns, and rows of cells, all as shown."""

    heads: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        """As a document has it."""
        lines = [self.heads, ["---", *["--:"] * (len(self.heads) - 1)], *self.rows]
        return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines) + "\n"

    def html(self) -> str:
        """As a page has it."""
        first = "".join(f"<th>{escape(head)}</th>" for head in self.heads)
        body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in self.rows)
        return f'<div class="wide"><table><thead><tr>{first}</tr></thead><tbody>{body}</tbody></table></div>'


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
    with atomic_write(output / RECORDS) as file:
        file.writelines(f"{record.to_line()}\n" for record in records)
    tables = [("", report.table), *report.others]
    with atomic_write(output / TABLE) as file:
        file.write("\n".join((f"## {title}\n\n" if title else "") + table.markdown() for title, table in tables))
    parts = [f"<h1>{escape(report.title)}</h1>", *(f"<p>{escape(said)}</p>" for said in report.lead)]
    parts += [inline_picture(output / name, said=said) for name, said in report.pictures]
    parts += [f"<h2>{escape(title or 'Results')}</h2>{table.html()}" for title, table in tables]
    parts += ["<h2>Notes</h2><ul>", *(f"<li>{escape(said)}</li>" for said in report.notes), "</ul>"]
    parts.append(f'<p class="soft">{escape(provenance(records))}</p>')
    write_page(output / REPORT, report.title, parts)


def write_page(path: Path, title: str, parts: Iterable[str]) -> None:
    """One self-contained HTML file of ``parts``, which are HTML."""
    with atomic_write(path) as file:
        file.write(
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
            f'content="width=device-width,initial-scale=1"><title>{escape(title)}</title><style>{STYLE}</style>'
            f"</head><body>{''.join(parts)}</body></html>\n"
        )


def provenance(records: Iterable[Record]) -> str:
    """On what machine, with what versions, from what code."""
    facts = dict.fromkeys(
        f"{record.hardware['gpu'] or record.hardware['cpu']}, {record.hardware['threads']} threads, torch "
        f"{record.versions['torch']}, transformers {record.versions['transformers']}, code {record.commit} of "
        f"{record.date[:10]}"
        for record in records
    )
    return f"Measured on {'; '.join(facts)}." if facts else "Nothing measured yet."


def mean_and_spread(values: Sequence[float], form: str) -> str:
    """The mean, and behind ± the sample standard deviation where there are several."""
    mean = sum(values) / len(values)
    if len(values) < 2:
        return format(mean, form)
    return f"{mean:{form}} ± {deviation(values):{form}}"


def deviation(values: Sequence[float]) -> float:
    """Sample standard deviation; 0 for one value."""
    mean = sum(values) / len(values)
    return (sum((value - mean) ** 2 for value in values) / max(1, len(values) - 1)) ** 0.5
