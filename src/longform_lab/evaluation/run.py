"""The scores of one task as one call: a Longform on whole texts, its original on cut texts and in chunks.

The function behind ``longform evaluate``; what is measured, and how, is in ``longform_lab.evaluation.comparison``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longform.errors import ConfigurationError
from longform_lab.evaluation import comparison, retrieval_comparison
from longform_lab.evaluation.comparison import Interval
from longform_text.inference.settings import DEFAULT_BATCH_TOKENS
from longform_text.summary import table

MEASURES: dict[str, Callable[..., list[dict[str, Any]]]] = {
    "classification": comparison.compare_classification,
    "sts": comparison.compare_similarity,
    "retrieval": retrieval_comparison.compare_retrieval,
}
NOT_IN_TABLE = (  # fields of the records alone, or of other tables
    "task",
    "model",
    "strategy",
    "max_length",
    "labels",
    "f1",
    "confusion",
    "interval",
    "compared_with",
    "difference",
    "per_query",
)


@dataclass(frozen=True)
class EvaluationResult:
    """The scores of a task: a record for each model and way of reading."""

    task: str
    records: list[dict[str, Any]]

    @property
    def report(self) -> str:
        """The tables that the command prints."""
        rows = [{name: value for name, value in each.items() if name not in NOT_IN_TABLE} for each in self.records]
        confusions = [_confusion(each) for each in self.records if "confusion" in each]
        intervals = [_intervals(self.records)] if "interval" in self.records[0] else []
        return "\n".join([table(self.task, rows), *intervals, *confusions])


def evaluate(
    task: str,
    data: Any,
    *,
    longform: str | Path | None = None,
    original: str | Path | None = None,
    documents: Any = None,
    max_length: int | None = None,
    original_length: int | None = None,
    batch_tokens: int = DEFAULT_BATCH_TOKENS,
    overlap: int = 0,
    dtype: str = "float32",
    device: str = "auto",
    progress: bool = True,
    **options: Any,
) -> EvaluationResult:
    """Score a Longform on whole texts, and its original (folder or hub name) cut where it ends and in chunks.

    ``task``: "classification", "sts" or "retrieval".
    ``data``: a file, rows or a table (DataFrame, ``datasets``) with the fields of the task, or columns in a tuple:
    (texts, labels), (texts, labels, second texts), (texts, others, scores), (queries, ids of their documents).
    ``documents``, of retrieval: the same, as columns (ids, texts). ``max_length``,
    ``original_length``: tokens of the Longform and of the original, None for all that they have positions for, of a
    classifier what it was fine-tuned on; each record says what it ``reads``. ``overlap``: tokens that neighbouring
    chunks share. ``options``: those of the task's function in ``longform_lab.evaluation.comparison``,
    ``retrieval_comparison``, such as ``text_field``, ``label_field``, ``bm25``.

    Raises ConfigurationError for another task, and without a model or documents; DataError for the data.
    """
    if task not in MEASURES:
        raise ConfigurationError(f'task is "{task}"; it is one of {", ".join(MEASURES)}')
    if (task == "retrieval") != (documents is not None):
        raise ConfigurationError(f'documents are for task="retrieval", which needs them; here task="{task}"')
    names = [None if each is None else str(each) for each in (longform, original)]
    models = comparison.contenders(
        longform=names[0], original=names[1], max_length=max_length, original_length=original_length
    )
    how = comparison.RunSettings(
        batch_tokens=batch_tokens, overlap=overlap, dtype=dtype, device=device, progress=progress
    )
    given = (data, documents) if task == "retrieval" else (data,)
    return EvaluationResult(task, MEASURES[task](models, *given, how, **options))


def _confusion(record: dict[str, Any]) -> str:
    labels, f1 = record["labels"], record["f1"]
    rows = [
        {"truth": label, **dict(zip(labels, counts, strict=True)), "F1": f1.get(label, float("nan"))}
        for label, counts in zip(labels, record["confusion"], strict=True)
    ]
    return table(f"{record['name']}: columns are predictions", rows)


def _intervals(records: Sequence[dict[str, Any]]) -> str:
    (score,) = (name for name in records[0] if name.startswith("ndcg@"))
    rows = [
        {
            "name": record["name"],
            f"{score}, 95 %": "{:.1f} to {:.1f}".format(*record["interval"]),
            **dict(zip(("better by, 95 %", "than"), _beside(record), strict=True)),
        }
        for record in records
    ]
    return table("intervals over queries, differences query by query", rows)


def _beside(record: dict[str, Any]) -> tuple[str, str]:
    """Difference from the row that it is compared with, and that row's name; empty for the first row."""
    other = record["compared_with"]
    return ("", "") if other == record["name"] else (Interval(*record["difference"]).signed, other)
