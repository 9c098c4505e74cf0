"""The page of the demo, and what it says in one line; ``results``: those of all steps, by name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from longform.pretrained.model_card import Table
from longform_lab.demo.learning import LAYER_SLOTS, LAYER_WIDTH, STACKS
from longform_lab.demo.pipeline import DOCUMENTS, WORK
from longform_lab.evaluation.comparison import difference_of
from longform_lab.pictures import finish, picture
from longform_lab.report import Report, Section, listed, write_report

LONGFORM, OTHER = "#0b7a75", "#b8b2a7"


def learned_gain(results: Mapping[str, Any]) -> str:
    """Accuracy of the default layer, the paper's E and nn.TransformerEncoder, and the difference with its interval."""
    names = ("longform, default", "nn.TransformerEncoder", "the paper's learned E")
    ours, full, paper = (results[name] for name in names)
    better = difference_of(ours["per_text"], paper["per_text"]).signed
    return (
        f"one digit among many is named right in {ours['accuracy']:.1f} % by the default layer, in "
        f"{paper['accuracy']:.1f} % by the paper's learned E: better by {better}; "
        f"in {full['accuracy']:.1f} % by nn.TransformerEncoder"
    )


def shown_learned(results: Mapping[str, Any]) -> str:
    """The accuracy of each stack, a line each, and the time of one layer at the greatest length."""
    lines = [f"{results[name]['accuracy']:4.1f} %  {name}" for name in STACKS]
    last = results["layer"]["rows"][-1]
    faster, length = last["full"] / last["longform"], last["length"]
    lines.append(f"{faster:4.1f}    times as fast as full attention: a layer, forward and backward, {length:,} tokens")
    return f"\n{'':14}".join(lines)


def report_demo(folder: Path, results: Mapping[str, Any], environment: Mapping[str, Any]) -> None:
    """Write the page."""
    found = results["answers"]
    lead = [
        f"A layer that learns: {learned_gain(results)}.",
        f"{found['documents']} speeches, of 2,000 to 16,000 words, were read whole and cut into {found['passages']} "
        "passages; below are the answers to three questions. How well passages are found, beside what people do today, "
        "was measured elsewhere: docs/lab/quality.md.",
    ]
    answers = [[row["question"], f"{row['document']}, {row['place']}", row["passage"]] for row in found["rows"]]
    sections = [
        _learned(results, folder / WORK),
        Section("Questions to long speeches", Table(["question", "found in", "passage"], answers, words=3)),
        Section(
            "Documents of your own",
            text=[f'longform search FOLDER "your question", or longform serve --documents {DOCUMENTS}: a page.'],
        ),
    ]
    write_report(
        folder, Report("A layer that learns, and questions to long speeches", lead, sections, foot=listed(environment))
    )


def _learned(results: Mapping[str, Any], work: Path) -> Section:
    """The stacks side by side, with pictures of that and of the time of one layer against length."""
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
        "a layer must look at content. All stacks see the same batches; Longform's differ only in their slots, one for "
        "4 tokens (full attention: one for each); the package has as many. A guess is right in 10 %."
    )
    said = (
        f"accuracy of each stack with its 95 % interval, and the time of one layer of width {LAYER_WIDTH} with k = "
        f"{LAYER_SLOTS} slots against length, beside full attention"
    )
    _draw(results, work / "layer.png")
    return Section("A layer that learns", table, pictures=[(f"{WORK}/layer.png", said)], text=[text])


def _draw(results: Mapping[str, Any], path: Path) -> None:
    """The two pictures side by side."""
    accuracy = [results[name]["accuracy"] for name in STACKS]
    ends = [results[name]["interval"] for name in STACKS]
    beyond = [[value - low for value, (low, _) in zip(accuracy, ends, strict=True)]]
    beyond.append([high - value for value, (_, high) in zip(accuracy, ends, strict=True)])
    times = results["layer"]["rows"]
    with picture(path, 10.0, 3.4, 1, 2) as (left, right):
        left.barh(list(STACKS), accuracy, xerr=beyond, color=[LONGFORM, *[OTHER] * (len(STACKS) - 1)])
        left.invert_yaxis()
        finish(left, "one digit among many", "accuracy, %", "", xlim=(0, 100))
        for name, colour, label in (
            ("longform", LONGFORM, f"Longform, k = {LAYER_SLOTS}"),
            ("full", OTHER, "full attention"),
        ):
            right.plot([row["length"] for row in times], [row[name] for row in times], "o-", color=colour, label=label)
        finish(right, "one layer", "tokens", "ms, forward and backward", xscale="log", yscale="log")
