"""The files that Table 2 writes: records, the table beside the paper's, the page."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from longform.pretrained.model_card import Table
from longform_lab.paper.parts import Finished
from longform_lab.records import provenance, write_records
from longform_lab.report import Claim, Report, Section, mean_and_spread, write_report

ORIGINAL = "original"
WHOLE = 256  # k of the windowed model at n = 512: each slot of a text of so many tokens is one token
WHOLE_SAID = (
    f"no text is longer than the {WHOLE} slots of the windowed model, so that each slot is a token, its attention "
    "full, and nothing is lost by construction."
)
PAPER = {  # n = 512: SST-2, IMDB, QNLI, QQP, average
    "original": (93.1, 94.1, 90.9, 90.9, 92.25),
    "linear-128-headwise": (92.4, 94.0, 90.4, 90.2, 91.75),
    "linear-128-key_value": (93.4, 93.4, 90.3, 90.3, 91.85),
    "linear-128-layerwise": (93.2, 93.8, 90.1, 90.2, 91.83),
    "linear-256-headwise": (93.2, 94.0, 90.6, 90.5, 92.08),
    "linear-256-key_value": (93.3, 93.6, 90.6, 90.6, 92.03),
    "linear-256-layerwise": (93.1, 94.1, 91.2, 90.8, 92.30),
}
IN_PAPER = ("SST-2", "IMDB", "QNLI", "QQP", "average")
POINTS = 1.0  # that an average may be further below its original than the paper's
AFTER_TASKS = ("average", "against the original", "seeds")  # heads of the table
Scores = dict[str, dict[str, dict[int, float]]]


def scores_of(rows: Sequence[Mapping[str, Any]]) -> tuple[Scores, dict[str, str]]:
    """Model -> task -> seed -> accuracy in percent, in the order of the rows; and the models' labels."""
    found: Scores = {}
    labels = {}
    for row in rows:
        settings = row["settings"]
        labels[settings["model"]] = settings["label"]
        tasks = found.setdefault(settings["model"], {})
        tasks.setdefault(settings["task"], {})[settings["seed"]] = 100 * row["metrics"]["accuracy"]
    return found, labels


def averages(scores: Scores, model: str, tasks: Sequence[str]) -> dict[int, float]:
    """Seed -> mean accuracy over ``tasks``, of seeds that have them all."""
    found = scores[model]
    if any(task not in found for task in tasks):
        return {}
    seeds = set.intersection(*(set(found[task]) for task in tasks))
    return {seed: sum(found[task][seed] for task in tasks) / len(tasks) for seed in sorted(seeds)}


def gaps(scores: Scores, tasks: Sequence[str]) -> dict[str, list[float]]:
    """Model -> average minus the original's, seed by seed, in points."""
    if ORIGINAL not in scores:
        return {}
    first = averages(scores, ORIGINAL, tasks)
    return {
        model: [value - first[seed] for seed, value in averages(scores, model, tasks).items() if seed in first]
        for model in scores
    }


def accuracy_table(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Heads and cells: a row a model, a column a task; mean ± sample standard deviation over seeds, in percent.

    In brackets the paper's, whose original is RoBERTa-base and whose average is over QQP in place of MRPC and RTE.
    """
    scores, labels = scores_of(rows)
    tasks = list(dict.fromkeys(row["settings"]["task"] for row in rows))
    apart = gaps(scores, tasks)
    cells = []
    for model, found in scores.items():
        mean = averages(scores, model, tasks)
        cells.append(
            [
                labels[model],
                *(
                    _beside(mean_and_spread(list(found[task].values()), ".1f"), model, task) if task in found else "–"
                    for task in tasks
                ),
                _average(mean, model, tasks),
                _gap(apart.get(model, []), of_itself=model == ORIGINAL),
                str(max(len(seeds) for seeds in found.values())),
            ]
        )
    return ["model", *tasks, *AFTER_TASKS], cells


def _average(mean: Mapping[int, float], model: str, tasks: Sequence[str]) -> str:
    """The mean over seeds; the paper's beside it where three of its four tasks are among ``tasks``."""
    if not mean:
        return "–"
    shown = mean_and_spread(list(mean.values()), ".2f")
    return _beside(shown, model, "average") if {*IN_PAPER[:3]} <= {*tasks} else shown


def _beside(shown: str, model: str, task: str) -> str:
    """The value, and in brackets the paper's where it has one."""
    if model not in PAPER or task not in IN_PAPER:
        return shown
    return f"{shown} ({PAPER[model][IN_PAPER.index(task)]:g})"


def _gap(points: Sequence[float], *, of_itself: bool) -> str:
    return mean_and_spread(points, "+.2f").replace("± +", "± ") if points and not of_itself else "–"


def report_table2(finished: Sequence[Finished], output: Path, *, asked: int) -> None:
    """Write all of it from the fine-tunings that are finished."""
    rows = [one.row for one in finished]
    records = [one.record for one in finished]
    write_records(output / "records.jsonl", records)
    write_report(output, page_of_table2(rows, asked=asked, foot=provenance(list(map(vars, records)))))


def page_of_table2(rows: Sequence[Mapping[str, Any]], *, asked: int, foot: str = "") -> Report:
    """The page, of the fine-tunings that are finished."""
    scores, labels = scores_of(rows)
    tasks = list(dict.fromkeys(row["settings"]["task"] for row in rows))
    return Report(
        "Table 2: fine-tuned accuracy",
        [_lead(rows[0]["settings"]), f"{len(rows)} of {asked} fine-tunings are done."],
        [Section("Results", Table(*accuracy_table(rows)))],
        _notes(rows),
        claims(labels, gaps(scores, tasks)),
        foot,
    )


def claims(labels: Mapping[str, str], apart: Mapping[str, Sequence[float]]) -> list[Claim]:
    """The paper's distances to its original, beside those here."""
    return [
        Claim(
            f"{labels[model]}: {PAPER[model][-1] - PAPER[ORIGINAL][-1]:+.2f} points to the original",
            f"{_gap(points, of_itself=False)} points",
            PAPER[model][-1] - PAPER[ORIGINAL][-1] - sum(points) / len(points) <= POINTS,
        )
        for model, points in apart.items()
        if points and model in PAPER and model != ORIGINAL
    ]


def _lead(settings: Mapping[str, Any]) -> str:
    healed = settings["healing_tokens"]
    return (
        f"Accuracy on the dev part after fine-tuning {settings['original']}, n = {settings['n']}: "
        f"{settings['epochs']:g} passes, learning rate {settings['learning_rate']:g}, the same texts, order and "
        "head for every model. "
        + (
            f"Converted models were healed on {healed:,} tokens of unlabelled text first."
            if healed
            else "Converted models were fine-tuned as converted, without healing: their attention has learned nothing "
            "of its own before, where the paper's Linformer was pre-trained."
        )
    )


def _notes(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    amounts = {row["settings"]["task"]: row["settings"] for row in rows}
    short = [task for task, found in amounts.items() if found["max_length"] <= WHOLE]
    return [
        "± is the sample standard deviation over seeds; a seed decides about head, order and dropout. The last column "
        "compares averages seed by seed, in points.",
        "The weights after the pass with the best accuracy on the dev part count, for every model alike: the "
        "accuracies are a little too high, the differences are not. The dev part is the file beside the training file "
        "(SST-2), or a fifth of the one file, held out; with --data hf the validation split, of IMDB the test split.",
        *([f"{', '.join(short)}: {WHOLE_SAID}"] if short else []),
        *(
            f"{task}: {found['train']:,} texts to train on, {found['dev']:,} to measure on, cut at "
            f"{found['max_length']} tokens."
            for task, found in amounts.items()
        ),
    ]
