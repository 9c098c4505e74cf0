"""The tables of docs/lab/compare.md: a caption, a picture and a table for each data set and budget."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from longform_lab.compare.architectures import ARCHITECTURES
from longform_lab.compare.plots import clock
from longform_lab.compare.results import Result
from longform_lab.compare.run import BASELINE, EVERY
from longform_lab.compare.sequences import READS
from longform_lab.compare.tasks import SCALES
from longform_lab.tables.table_kinds import Cells, Rows, Table

MISSING = "–"
WINDOWED = {row.name for row in ARCHITECTURES.values() if row.windowed}
PUBLISHED = {"full": 37.10, "linformer": 37.25}  # ListOps of 2,000 symbols: Nyströmformer's runs (arXiv 2102.03902)
PUBLISHED_LENGTH = 2_000
OWN = ("architecture", "projection_init", "features")  # settings in which the rows of one table may differ
POOLED_BY = {
    "mean": "mean pooling",
    "cls": "the first token's state pooled",
    "lead": "mean pooling that favours the first tokens",
    "cls_mean": "first state and mean pooled",
    "cls_lead": "first state and lead mean pooled",
}


def groups(rows: Rows) -> list[list[Mapping[str, Any]]]:
    """Records of one data set and budget together, architectures in their usual order; of each the newest."""
    found: dict[str, dict[tuple[str, bool], Mapping[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["date"]):
        settings = {name: value for name, value in row["settings"].items() if name not in OWN}
        settings["pooling"] = _pooling(settings)
        which = (row["settings"]["architecture"], _begins_at_random(row["settings"]))
        found.setdefault(json.dumps(settings, sort_keys=True), {})[which] = row
    return [
        sorted(group.values(), key=lambda row: EVERY.index(row["settings"]["architecture"])) for group in found.values()
    ]


def results(group: Rows) -> list[Result]:
    """Records as the results that the pictures take."""
    return [_result(row) for row in group]


def _result(row: Mapping[str, Any]) -> Result:
    name = row["settings"]["architecture"]
    about = {"hardware": row["hardware"]}
    if name == BASELINE:
        title = f"{READS[row['settings']['kind']]} + logistic regression"
        return Result(name, title, facts=about, **row["metrics"])
    known = ARCHITECTURES[name]
    title, family = known.title, known.family
    if _begins_at_random(row["settings"]):
        title, family = f"{title}, E begun as N(0, 1/k)", "variant"
    return Result(name, title, family, facts=about, **row["metrics"])


def _begins_at_random(settings: Mapping[str, Any]) -> bool:
    """Whether a row is of a Linformer with E of N(0, 1/k): also where it could not be chosen yet."""
    return settings["architecture"] == "linformer" and settings.get("projection_init", "normal") == "normal"


def picture_name(settings: Mapping[str, Any]) -> str:
    """File of a group's picture in docs/pictures."""
    data = re.sub(r"[^a-z0-9]+", "-", settings["task"].lower().removesuffix(".parquet")).strip("-")
    budget = f"{settings['length']}-{settings['steps']}" + ("" if settings["device"] == "cpu" else "-gpu")
    seed = f"-seed{settings['seed']}" if settings["seed"] else ""
    usual = SCALES[settings["kind"], settings["scale"]]
    rate = "" if settings["learning_rate"] == usual.learning.learning_rate else f"-rate{settings['learning_rate']:g}"
    made = usual.examples[2]  # test texts, where they are generated
    tested = "" if made in (0, settings["test_texts"]) else f"-tested{settings['test_texts']}"
    pooling = "" if _pooling(settings) == "mean" else f"-{_pooling(settings)}"
    return f"compare-{data}-{settings['scale']}-{budget}{pooling}{rate}{tested}{seed}.png"


def _pooling(settings: Mapping[str, Any]) -> str:
    """Pooling of a row, also of one measured before it could be chosen."""
    return settings.get("pooling", "mean")


def caption(group: Rows) -> str:
    """Caption: what was compared, in two sentences."""
    settings = group[0]["settings"]
    windowed = not WINDOWED.isdisjoint(row["settings"]["architecture"] for row in group)
    window = f", window {settings['window']}" if windowed else ""
    vocabulary = f"{settings['vocabulary']:,} tokens" if settings["vocabulary"] else "vectors"
    return (
        f"**{settings['task']}**, scale {settings['scale']}: {settings['layers']} layers of width "
        f"{settings['hidden_size']}, {settings['heads']} heads, feed-forward {settings['intermediate_size']}, "
        f"vocabulary {vocabulary}, at most {settings['length']:,} tokens a text, k = {settings['projected_length']}"
        f"{window}, {POOLED_BY[_pooling(settings)]}; {settings['steps']:,} steps of {settings['batch_size']} texts, "
        f"rate {settings['learning_rate']:g}, seed {settings['seed']}. {settings['train_texts']:,} texts to train on, "
        f"{settings['validation_texts']:,} to choose the best weights, {settings['test_texts']:,} to test, of which "
        f"the most frequent class has {settings['most_frequent_class']:.1%}."
    )


def comparisons(rows: Rows) -> Cells:
    """Paragraphs: for each group its caption, picture and table."""
    said = []
    for group in groups(rows):
        settings = group[0]["settings"]
        picture = f"![test accuracy against training time: {settings['task']}](../pictures/{picture_name(settings)})"
        said += [caption(group), picture, _markdown(group)]
    return [], [[paragraph] for paragraph in said]


def _markdown(group: Rows) -> str:
    settings = group[0]["settings"]
    used = clock(results(group))
    published = settings["kind"] == "listops" and settings["length"] == PUBLISHED_LENGTH
    heads = [
        "architecture",
        "accuracy, %",
        *(["published, %"] if published else []),
        "macro-F1, %",
        f"training, {'processor' if used == 'cpu_seconds' else 'wall-clock'} s",
        "training, tokens/s",
        "testing, ms a text",
        "memory of a step, MiB",
        "parameters",
    ]
    lines = [heads, ["---"] * len(heads)]
    for result in results(group):
        spent = getattr(result, used)
        speed = result.tokens / spent if result.tokens and spent else None
        lines.append(
            [
                result.title,
                _shown(result.accuracy, ".2%").rstrip("%"),
                *([_shown(PUBLISHED.get(result.name), ".2f")] if published else []),
                _shown(result.macro_f1, ".2%").rstrip("%"),
                _shown(spent, ",.0f"),
                _shown(speed, ",.0f"),
                _shown(result.milliseconds_per_text, ",.1f"),
                _shown(result.memory_mib, ",.0f"),
                _shown(result.parameters, ",d"),
            ]
        )
    return "\n".join(_line(cells) for cells in lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _shown(value: float | None, form: str) -> str:
    return MISSING if value is None else format(value, form)


TABLE_KINDS = {"compare": "text", "listops": "listops", "digits": "digits"}  # table -> --task of its records
COMPARE_TABLES = {
    name: Table(make=comparisons, records="compare", where={"settings.kind": kind})
    for name, kind in TABLE_KINDS.items()
}
