"""The page of the demo, and what it says in one line.

``rows``: the records of ``compare_retrieval``, the Longform's first.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from longform.evaluation.comparison import difference_of
from longform.runs.page import Table
from longform_lab.demo.pipeline import WORK
from longform_lab.pictures import finish, picture
from longform_lab.report import Report, Section, listed, write_report

Rows = Sequence[Mapping[str, Any]]
MEASURE = "ndcg@10"
LONGFORM, OTHER = "#0b7a75", "#b8b2a7"


def gain(rows: Rows) -> str:
    """How much better or worse the Longform finds than the original does, cut and in chunks, and how sure that is.

    Of chunks of several lengths those that find most are taken.
    """
    longform, cut, *others = alone(rows)
    chunks = max((row for row in others if row["strategy"] == "chunk-average"), key=lambda row: row[MEASURE])
    beside = (
        f"than {named(row)} by {difference_of(longform['per_query'], row['per_query']).signed}" for row in (cut, chunks)
    )
    return f"{MEASURE} {longform[MEASURE]:.1f} by Longform; better {', '.join(beside)} points (95 % intervals)"


def shown_scores(rows: Rows) -> str:
    """The score of each contender, a line each, which the summary's columns are beside."""
    return f"\n{'':14}".join(f"{row[MEASURE]:4.1f}  {named(row)}" for row in rows)


def alone(rows: Rows) -> Rows:
    """Contenders that are not fused with BM25."""
    return [row for row in rows if row["compared_with"] == rows[0]["name"]]


def named(row: Mapping[str, Any]) -> str:
    """A contender, and what it reads of a document."""
    return f"{row['name']} ({row['reads']})"


def report_finding(
    folder: Path,
    results: Mapping[str, Any],
    examples: Sequence[tuple[str, str]],
    environment: Mapping[str, Any],
) -> None:
    """Write the page; ``examples``: queries, and the ids of the speeches that they were taken from."""
    speeches, passages = results["speeches"]["rows"], results["passages"]["rows"]
    facts = results["prepare"]
    lead = [
        f"{gain(speeches)}.",
        f"{facts['queries']} passages were taken out of {facts['documents']} speeches ({facts['words']:,} words), none "
        "from the beginning of one. Each is to find the speech that it comes from among all of them: the words "
        "themselves are not there any more. In chunks, a passage is read alone. The Longform reads the speech as a "
        "whole, and its passages know the rest.",
    ]
    sections = [
        _compared("One vector a speech", speeches, folder / WORK / "speeches.png"),
        _compared("The best passage of each speech", passages, folder / WORK / "passages.png"),
        Section("Passages that were asked for", text=[f"{speech}: {query}" for query, speech in examples]),
        Section(
            "Documents of your own",
            text=[f"longform serve {folder.as_posix()}/model --open: a page that searches them."],
        ),
    ]
    write_report(folder, Report("Find what stands deep in long documents", lead, sections, foot=listed(environment)))


def _compared(title: str, rows: Rows, path: Path) -> Section:
    draw_scores(rows, path)
    shown = [
        [
            row["name"],
            row["reads"],
            f"{row[MEASURE]:.1f}",
            "{:.1f} to {:.1f}".format(*row["interval"]),
            f"{row['recall@1']:.1f}",
            _beside(rows[0], row),
            f"{row['seconds']:,.1f}",
        ]
        for row in rows
    ]
    heads = ["", "reads", MEASURE, "95 % interval", "found first, %", "better than Longform by", "seconds"]
    said = f"bars with intervals: {MEASURE} of {len(rows)} contenders, {title.lower()}"
    return Section(title, Table(heads, shown, words=2), [(f"{path.parent.name}/{path.name}", said)])


def _beside(longform: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    if row is longform:
        return ""
    return difference_of(row["per_query"], longform["per_query"]).signed


def draw_scores(rows: Rows, path: Path) -> None:
    """A bar for each contender, best below, with its interval."""
    ordered = sorted(rows, key=lambda row: -row[MEASURE])
    with picture(path, 8.0, 0.8 + 0.4 * len(rows)) as axes:
        for place, row in enumerate(ordered):
            low, high = row["interval"]
            axes.barh(place, row[MEASURE], color=LONGFORM if row is rows[0] else OTHER)
            axes.plot([low, high], [place, place], color="#333333", linewidth=1.2)
        axes.set_yticks(range(len(ordered)), [named(row) for row in ordered])
        axes.invert_yaxis()
        finish(axes, "", f"{MEASURE}, with 95 % intervals", "", xlim=(0, 100))
