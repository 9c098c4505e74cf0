"""The command ``longform evaluate TASK``: scores of a Longform on whole texts, of its original on cut texts.

The original is run twice: on texts cut where its positions end, and on chunks of that length.
"""

import json
from typing import Any

from longform.choices import RETRIEVAL_SCORES
from longform.errors import ConfigurationError
from longform_text.cli.arguments import (
    add_options,
    add_settings,
    command,
    command_parser,
    print_next,
)
from longform_text.data.token_store import input_paths

AT_ONCE = True

SUMMARY = "score models on labels, similarity or retrieval"

SHARED = ("longform", "original", "max_length", "original_length", "batch_tokens", "overlap", "dtype", "device")
LABELLED = ("text_field", "label_field", "pair_field")
REMEMBERED = "null: as in the model's fine-tuning"
RETRIEVAL = ("query_field", "relevant_field", "id_field", "text_field", "depth", "score", "chunk_tokens", "bm25")
EXAMPLES = {
    "classification": "--data labelled.jsonl --longform classifier",
    "sts": "--data pairs.jsonl --longform minilm-16k",
    "retrieval": "--queries queries.jsonl --documents documents.jsonl --longform minilm-16k --bm25",
}


def parser() -> Any:
    """One subcommand a task."""
    made = command_parser(
        "evaluate",
        "Score a Longform on whole texts, and compare it with its original on cut texts and on chunks.",
        example="sts --data pairs.jsonl --longform minilm-16k",
        texts=False,
    )
    tasks = made.add_subcommands(dest="task", required=True)
    tasks.add_subcommand("classification", _classification(), help="accuracy, macro-F1, confusion (or regression)")
    tasks.add_subcommand("sts", _similarity(), help="similarity of pairs: Spearman x 100")
    tasks.add_subcommand("retrieval", _retrieval(), help="nDCG and recall x 100")
    return made


def run(settings: Any) -> None:
    """Measure, print the tables, write the records."""
    from longform_text.cli.beforehand import check_models, check_texts
    from longform_text.settings import check_device, check_least

    task = settings[settings.task]
    if not (task.longform or task.original):
        raise ConfigurationError("nothing to evaluate: give --longform, --original, or both")
    check_models(task.longform, task.original)
    check_texts(task.get("data"), fields=task.get("fields") or (task.get("text_field"), task.get("label_field")))
    check_texts(task.get("queries"), fields=(task.get("query_field"), task.get("relevant_field")))
    check_texts(task.get("documents"), fields=(task.get("id_field"), task.get("text_field")))
    check_device(task.device)
    check_least(task, max_length=1, original_length=1, overlap=0, batch_tokens=1)
    from longform.files import atomic_write, check_output
    from longform_lab.evaluation.run import evaluate

    names = {"sts": ("fields",), "retrieval": ("documents", *RETRIEVAL), "classification": LABELLED}
    data = task.queries if settings.task == "retrieval" else task.data
    inputs = (task.longform, task.original, data, task.get("documents"))
    output = None if task.output is None else check_output(task.output, inputs=input_paths(inputs))
    result = evaluate(settings.task, data, **{name: task[name] for name in (*SHARED, *names[settings.task])})
    print(result.report)
    if output is not None:  # last: should writing fail, the scores are on the screen
        with atomic_write(output) as file:
            file.writelines(json.dumps(record) + "\n" for record in result.records)
    print_next(_next(settings.task, task.longform or task.original))


def _next(task: str, model: str) -> str:
    if task == "classification":
        return command("predict", model, "texts.jsonl", "--output", "labels.jsonl")
    return command("embed", model, "texts.jsonl", "--output", "vectors.jsonl")


def _task_parser(task: str, description: str) -> Any:
    from longform_text.inference.settings import InferenceSettings  # not above, for quick help: it imports numpy

    made = command_parser(f"evaluate {task}", description, example=EXAMPLES[task])
    add_options(
        made,
        ("longform", str | None, None, "folder of a Longform, which reads whole texts"),
        ("original", str | None, None, "folder or hub name of the original, which reads cut texts and chunks"),
        ("original_length", int | None, None, "tokens of the original; null: all that fit"),
        ("output", str | None, None, "jsonl file for the scores of each row of the table"),
    )
    add_settings(made, InferenceSettings, only=("overlap", "dtype", "device", "batch_tokens", "max_length"))
    return made


def _similarity() -> Any:
    made = _task_parser("sts", "Spearman x 100 between cosines and people's judgements.")
    made.add_argument("--data", required=True, help=".jsonl, .parquet or hf:NAME[:CONFIG]:SPLIT")
    made.add_argument(
        "--fields", type=list[str], default=["sentence1", "sentence2", "score"], help="first text, second text, score"
    )
    return made


def _retrieval() -> Any:
    made = _task_parser(
        "retrieval",
        "Rank all documents for every query by cosine; nDCG with its 95 % interval over queries (bootstrap).",
    )
    made.add_argument("--queries", required=True, help=".jsonl, .parquet or hf:NAME[:CONFIG]:SPLIT")
    made.add_argument("--documents", required=True, help="documents, in a file like --queries")
    add_options(
        made,
        ("query_field", None, "query", "a query's text"),
        ("relevant_field", None, "relevant", "id, or list of ids, of a query's documents"),
        ("id_field", None, "id", "a document's id"),
        ("text_field", None, "text", "a document's text"),
        ("depth", int, 10, "ranks that nDCG counts (10: nDCG@10)"),
        (
            "score",
            RETRIEVAL_SCORES,
            "document",
            "document: one vector for each document; best-chunk: its best chunk counts",
        ),
        ("chunk_tokens", int, 256, "tokens of a chunk"),
        (
            "bm25",
            bool,
            False,
            "also score BM25, a search by words, and each model fused with it by reciprocal rank (extra bm25)",
        ),
    )
    return made


def _classification() -> Any:
    made = _task_parser("classification", "Score fine-tuned models on labelled documents.")
    made.add_argument("--data", required=True, help=".jsonl, .parquet or hf:NAME[:CONFIG]:SPLIT")
    add_options(
        made,
        ("text_field", str | None, None, f'field with the text; {REMEMBERED}, else "text"'),
        (
            "label_field",
            str | None,
            None,
            f'field with the label (name or number; a list for multi-label models); {REMEMBERED}, else "label"',
        ),
        ("pair_field", str | None, None, f"second text of a pair, without chunks; {REMEMBERED}"),
    )
    return made
