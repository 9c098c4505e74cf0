"""The page of the demo, and what it says in one line.

``rows``: the records of ``compare_retrieval``, the Longform's first; ``results``: those of all steps, by name.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from longform.runs.page import Table
from longform_lab.demo.learning import LAYER_SLOTS, LAYER_WIDTH, STACKS
from longform_lab.demo.pipeline import WORK
from longform_lab.evaluation.comparison import difference_of
from longform_lab.pictures import finish, picture
from longform_lab.report import Report, Section, listed, write_report

Rows = Sequence[Mapping[str, Any]]
MEASURE = "ndcg@10"
TRAINING = (
    "minilm-16k was trained for 60 steps on other texts, the original here was not; "
    "docs/guides/search-and-rag.md has the original with the same training beside it"
)
LONGFORM, OTHER = "#0b7a75", "#b8b2a7"


def gain(rows: Rows) -> str:
    """How much better or worse the Longform finds than the original does, cut and in chunks, and how sure that is."""
    longform, cut, chunks = rows[:3]
    beside = (
        f"than {named(row)} by {difference_of(longform['per_query'], row['per_query']).signed}" for row in (cut, chunks)
    )
    return f"{MEASURE} {longform[MEASURE]:.1f} by Longform; better {', '.join(beside)} points (95 % intervals)"


def learned_gain(results: Mapping[str, Any]) -> str:
    """How much better the default layer learns than the paper's E does, how sure that is, and full attention."""
    ours, full, paper, _ = (results[name] for name in STACKS)
    better = difference_of(ours["per_text"], paper["per_text"]).signed
    return (
        f"one digit among many is named right in {ours['accuracy']:.1f} % by the default layer, in "
        f"{paper['accuracy']:.1f} % by the paper's learned E: better by {better}; "
        f"in {full['accuracy']:.1f} % by full attention"
    )


def shown_learned(results: Mapping[str, Any]) -> str:
    """The accuracy of each stack, a line each, and the time of one layer at the greatest length."""
    lines = [f"{results[name]['accuracy']:4.1f} %  {name}" for name in STACKS]
    last = results["layer"]["rows"][-1]
    faster, length = last["full"] / last["longform"], last["length"]
    lines.append(f"{faster:4.1f}    times as fast as full attention: a layer, forward and backward, {length:,} tokens")
    return f"\n{'':14}".join(lines)


def shown_scores(rows: Rows) -> str:
    """The score of each contender, a line each, which the summary's columns are beside."""
    return f"\n{'':14}".join(f"{row[MEASURE]:4.1f}  {named(row)}" for row in rows)


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
        f"A layer that learns: {learned_gain(results)}.",
        f"Find in long documents: {gain(speeches)}.",
        f"{facts['queries']} passages were taken out of {facts['documents']} speeches ({facts['words']:,} words), none "
        "from the beginning of one. Each is to find the speech that it comes from among all of them: the words "
        "themselves are not there any more. In chunks, a passage is read alone. The Longform reads the speech as a "
        "whole, and its passages know the rest.",
        f"{TRAINING}.",
    ]
    sections = [
        *_learned(results, folder / WORK),
        _compared("One vector a speech", speeches, folder / WORK / "speeches.png"),
        _compared("The best passage of each speech", passages, folder / WORK / "passages.png"),
        Section("Passages that were asked for", text=[f"{speech}: {query}" for query, speech in examples]),
        Section(
            "Documents of your own",
            text=[f"longform serve {folder.as_posix()}/model --open: a page that searches them."],
        ),
    ]
    write_report(
        folder,
        Report("A layer that learns, and what stands deep in long documents", lead, sections, foot=listed(environment)),
    )


def _learned(results: Mapping[str, Any], work: Path) -> list[Section]:
    """The stacks side by side, and the time of one layer against length, with a picture."""
    ours = results[next(iter(STACKS))]
    rows = []
    for name in STACKS:
        row = results[name]
        low, high = row["interval"]
        better = "" if row is ours else difference_of(row["per_text"], ours["per_text"]).signed
        rows.append([name, f"{row['accuracy']:.1f}", f"{low:.1f} to {high:.1f}", better, f"{row['seconds']:.1f}"])
    table = Table(["", "accuracy, %", "95 % interval", "better than the default by", "seconds"], rows)
    text = (
        "Each text is a row of handwritten digits, one of them inverted; which digit is it? Its place says nothing, so "
        "a layer must look at content. The stacks differ in their slots alone, one for 4 tokens (full attention: one "
        "for each), and see the same batches; a guess is right in 10 %."
    )
    times = results["layer"]["rows"]
    with picture(work / "layer.png", 7.0, 3.6) as axes:
        for name, colour, label in (
            ("longform", LONGFORM, f"Longform, k = {LAYER_SLOTS}"),
            ("full", OTHER, "full attention"),
        ):
            axes.plot([row["length"] for row in times], [row[name] for row in times], "o-", color=colour, label=label)
        finish(axes, "", "tokens", "milliseconds, forward and backward", xscale="log", yscale="log")
    said = (
        f"time of one layer of width {LAYER_WIDTH} with k = {LAYER_SLOTS} slots against length, beside full attention"
    )
    layer = Section("One layer against length", pictures=[(f"{WORK}/layer.png", said)], text=[f"{said.capitalize()}."])
    return [Section("A layer that learns", table, text=[text]), layer]


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
